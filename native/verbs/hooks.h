/* The verbs hook: what its files share. */
#ifndef FORENSICS_VERBS_HOOKS_H
#define FORENSICS_VERBS_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/log.h"
#include "verbs/abi.h"
#include "verbs/next.h"

#pragma GCC visibility push(hidden) /* what only this library uses is reached without a table */

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define GROW(field, value) STORE(field, LOAD(field) + (value))

#define CONTEXTS 64u
#define CQS 4096u
#define PAIRS 2048u
#define MARKS 512u       /* signaled requests in flight on one queue pair; more are counted, not lost from sight */
#define POLLS_A_STAMP 32u /* reading the clock costs more than an empty poll may */
#define GONE 1           /* key of an entry that was removed: a search goes on behind it */

/* A device context whose table was changed, with what it held before. */
struct hooked_context {
    struct verbs_context *context;
    verbs_post_send post_send;
    verbs_post_recv post_recv;
    verbs_poll poll;
};

/* A completion queue that was polled through us. */
struct polled_cq {
    struct verbs_cq *cq;
    struct verbs_context *context;
    verbs_poll poll;
    uint64_t stamp;  /* a poll at or after the last one but POLLS_A_STAMP */
    uint32_t empties;
} __attribute__((aligned(64)));

/* A signaled request in flight, with the unsignaled ones before it. */
struct mark { uint64_t time, bytes; uint32_t wrs; };

struct pair {
    struct shim_queue_pair *slot; /* NULL: not in use */
    struct verbs_qp *qp;          /* NULL: destroyed */
    const struct verbs_cq *send_cq;
    uint32_t taken;               /* by the thread that counts */
    bool failed;                  /* counters are frozen */
    bool blind;                   /* the count was lost: it says nothing about what is in flight any more */
    bool polled;                  /* completions of its sends come through us */
    bool all_signaled;
    uint32_t head, tail;          /* of marks */
    uint64_t tail_wrs, tail_bytes;
    uint64_t extra, extra_wrs, extra_bytes, extra_since; /* signaled requests beyond MARKS */
    uint64_t busy_from;           /* busy is summed up to here */
    uint64_t spread_from;         /* where the last completion's bytes began */
    uint32_t completions;
    const void *poster;           /* thread of the last post */
    uint64_t probe;               /* wr_id of a probe in flight, 0 none */
    struct { uint64_t bytes, busy; } window[SHIM_WINDOW];
    struct mark marks[MARKS];
};

/* contexts.c */
extern struct hooked_context hooked_contexts[CONTEXTS];
extern struct polled_cq polled_cqs[CQS];
void hook_context(struct verbs_context *context);
void keep_hooked(struct verbs_context *context); /* a provider may fill its table again later */
void unhook_context(struct verbs_context *context);
void forget_context(struct verbs_context *context);
struct polled_cq *meet_cq(struct verbs_cq *cq);
void forget_cq(const struct verbs_cq *cq);
void verbs_lock(void);
void verbs_unlock(void);

static inline uint32_t place_of(const void *pointer, uint32_t size)
{
    return (uint32_t)(((uint64_t)(uintptr_t)pointer * 0x9E3779B97F4A7C15ull) >> 48) & (size - 1);
}

static inline struct hooked_context *hooked_context_of(const struct verbs_context *context)
{
    for (uint32_t at = place_of(context, CONTEXTS), step = 0; step < CONTEXTS; at = (at + 1) & (CONTEXTS - 1), step++)
        if (__atomic_load_n(&hooked_contexts[at].context, __ATOMIC_ACQUIRE) == context)
            return &hooked_contexts[at];
    return NULL;
}

/* pairs.c */
struct pair *pair_of_number(const struct verbs_context *context, uint32_t number);
struct pair *pair_of(struct verbs_qp *qp);
void pair_created(struct verbs_qp *qp, bool all_signaled);
void pair_modified(struct verbs_qp *qp, const struct verbs_qp_attributes *attributes, int mask);
void pair_destroyed(const struct verbs_context *context, uint32_t number);
void pairs_polled(const struct verbs_cq *cq);
struct pair *pair_at(uint32_t index); /* NULL beyond the last one */
bool pair_enter_slowly(struct pair *pair);

/* Two threads may post to and poll one queue pair. Never waits for long: a count that would have to is given up. */
static inline bool pair_enter(struct pair *pair)
{
    return __builtin_expect(__atomic_exchange_n(&pair->taken, 1u, __ATOMIC_ACQUIRE) == 0, 1) || pair_enter_slowly(pair);
}

static inline void pair_leave(struct pair *pair)
{
    __atomic_store_n(&pair->taken, 0u, __ATOMIC_RELEASE);
}

/* posts.c */
struct before_post { uint64_t tail_wrs, tail_bytes; bool counted; };
void count_posts(struct pair *pair, const struct verbs_send_wr *first, const struct verbs_send_wr *end,
                 struct before_post *before);
void count_refused(struct pair *pair, const struct verbs_send_wr *first, const struct verbs_send_wr *bad,
                   const struct before_post *before);
void show_oldest(struct pair *pair);
int hooked_post_send(struct verbs_qp *qp, struct verbs_send_wr *wr, struct verbs_send_wr **bad);
int hooked_post_recv(struct verbs_qp *qp, struct verbs_recv_wr *wr, struct verbs_recv_wr **bad);

/* completions.c */
void count_completions(struct polled_cq *cq, const struct verbs_wc *wc, int count, uint64_t now);

/* spread.c */
void spread_bytes(struct shim_queue_pair *slot, uint64_t from, uint64_t to, uint64_t bytes, uint64_t poll_gap);

/* polls.c */
int hooked_poll(struct verbs_cq *cq, int room, struct verbs_wc *wc);

/* probe.c: off unless FORENSICS_SHIM_PROBE=1 */
extern bool probing;
extern uint32_t probes_in_flight;
void probe_setting(void);
void probe_stalled(struct polled_cq *cq, uint64_t now);
int swallow_probes(struct polled_cq *cq, struct verbs_wc *wc, int count);

/* gids.c */
void learn_gid(const struct verbs_context *context, uint8_t port, int index, const uint8_t *gid);
bool known_gid(const struct verbs_context *context, uint8_t port, int index, uint8_t *gid);

/* hooks.c: ours for a name that was looked up, or `real` itself when the name is none of ours. */
void *hook_for(const char *name, void *real);

#pragma GCC visibility pop

#endif
