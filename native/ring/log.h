/* Writing the log: what the NCCL, profiler and verbs hooks of the collector use. The layout is forensics/shim_log.h.
 *
 * Rules for a hook: it never returns an error to the program, and on the hot path it never allocates, locks, or does I/O.
 * Every function here may be called before the log exists, after it failed, and in a forked child: it then does nothing, or
 * returns NULL. A slot returned once stays writable memory for the life of the process, also after the log stopped. */
#ifndef FORENSICS_RING_LOG_H
#define FORENSICS_RING_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "forensics/shim_log.h"
#include "ring/table.h"
#include "ring/ticks.h"

/* What is hidden anyway must also be known to be, or each access goes through a table. */
#pragma GCC visibility push(hidden)

/* The parts of the mapped file; all pointers are NULL or all are valid. */
struct shim_log {
    struct shim_head *head;
    struct shim_live *live;
    struct forensics_clock_reading *clocks;
    struct shim_comm *comms;
    struct shim_proxy_op *proxy_ops;
    struct shim_queue_pair *queue_pairs;
    struct shim_epoch_bin *epochs;
    struct shim_ring *rings;
    struct shim_record *records;
    uint32_t clock_count, comm_count, proxy_op_count, queue_pair_count, ring_count;
};

struct shim_cursor {
    struct shim_record *records; /* NULL: no ring of this class yet */
    struct shim_ring *ring;
    uint64_t mask;
    uint64_t next; /* records published */
    uint32_t thread; /* OS thread id of the owner */
};

/* Private to the thread. One cache line, as each call reads it; not more, as it lies in static thread-local storage: a library
 * that is loaded late shares what the loader keeps in reserve there with every other one, and may ask for no larger alignment than the
 * program did: 64 on x86, on AArch64 often 16 ("cannot allocate memory in static TLS block"). */
#if defined(__aarch64__)
#define SHIM_THREAD_ALIGNMENT 16
#else
#define SHIM_THREAD_ALIGNMENT 64
#endif
struct shim_thread {
    struct shim_cursor calls;    /* of SHIM_RING_CALLS: the only one that is wanted in a hurry */
    struct shim_cursor *cursors; /* of the other ring classes, by their number; NULL until the first record */
    uint32_t inside;             /* depth of calls through the NCCL hook: NCCL calls itself */
    uint32_t groups;             /* open ncclGroupStart */
    uint32_t refused;            /* classes (bits) for which no ring was free */
    uint32_t starting;           /* inside shim_start: what it calls must not come back to us */
} __attribute__((aligned(SHIM_THREAD_ALIGNMENT)));
_Static_assert(sizeof(struct shim_thread) == 64, "one cache line");

extern struct shim_log shim_log;
#define shim_recording shim_hot.recording
#define shim_incarnation shim_hot.incarnation
#define shim_covered shim_hot.covered
extern _Thread_local struct shim_thread shim_self __attribute__((tls_model("initial-exec")));

/* What all thread-local storage of this thread is found by; NULL where that is not known. */
static inline char *shim_thread_pointer(void)
{
    char *thread = NULL;

#if defined(__LP64__) && defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(thread));
#elif defined(__LP64__) && defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(thread));
#endif
    return thread;
}

/* This is shim_self. It lies at the same distance from the thread pointer in all threads, but only the loader knows it, and tells
 * it in a table that is one more page to read. */
static inline struct shim_thread *shim_me(void)
{
    ptrdiff_t self = shim_hot.self; /* set before anybody can call */

    return __builtin_expect(self != 0, 1) ? (struct shim_thread *)(void *)(shim_thread_pointer() + self) : &shim_self;
}

/* True while the log takes records. */
static inline bool shim_on(void)
{
    return __builtin_expect(__atomic_load_n(&shim_recording, __ATOMIC_ACQUIRE) != 0, 1);
}

/* Makes the log and its heartbeat on the first NCCL or verbs call of the process; cheap afterwards. Returns shim_on(). Keeps
 * errno. Not for constructors: a process that never uses NCCL or verbs leaves nothing behind. */
bool shim_start(void);

/* Ends the heartbeat, for whoever leaves the process to its other threads; recording goes on. */
void shim_heartbeat_stop(void);

/* Why something was not recorded: the first reason stays in the file. Does not stop the log. */
void shim_tell(enum shim_reason reason, int error, const char *note);

/* --- Records ------------------------------------------------------------------------------------------------------------ */

/* Slow path of shim_reserve: finds the thread a ring of this class. */
struct shim_record *shim_reserve_first(enum shim_ring_class ring_class);

/* NULL: the thread has no ring but that of calls, if any. */
static inline struct shim_cursor *shim_cursor(struct shim_thread *me, enum shim_ring_class ring_class)
{
    if (ring_class == SHIM_RING_CALLS)
        return &me->calls;
    return me->cursors != NULL ? &me->cursors[ring_class] : NULL;
}

/* shim_reserve for who has just asked shim_on. */
static inline struct shim_record *shim_reserve_on(struct shim_thread *me, enum shim_ring_class ring_class)
{
    struct shim_cursor *cursor = shim_cursor(me, ring_class);
    struct shim_record *record;
    uint64_t number;

    if (__builtin_expect(cursor == NULL || cursor->records == NULL, 0))
        return shim_reserve_first(ring_class);
    number = cursor->next + 1;
    record = &cursor->records[cursor->next & cursor->mask];
    __atomic_store_n(&record->sequence, SHIM_BUSY | number, __ATOMIC_RELAXED);
    __atomic_store_n(&record->check, (uint32_t)number, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return record;
}

/* The head of the ring lies in another page: the heartbeat brings it up to date, and readers go by the records. */
static inline void shim_publish_call(struct shim_thread *me, struct shim_record *record)
{
    __atomic_store_n(&record->sequence, ++me->calls.next, __ATOMIC_RELEASE);
}

static inline void shim_publish_at(struct shim_cursor *cursor, struct shim_record *record)
{
    uint64_t number = ++cursor->next;

    __atomic_store_n(&record->sequence, number, __ATOMIC_RELEASE);
    __atomic_store_n(&cursor->ring->head, number, __ATOMIC_RELEASE);
}

/* The next record of this thread's ring, marked as being written; NULL when nothing is recorded (counted where it is a loss).
 * Fill everything but sequence and check, then shim_publish it before the thread reserves another one of this class. */
static inline struct shim_record *shim_reserve(enum shim_ring_class ring_class)
{
    return shim_on() ? shim_reserve_on(shim_me(), ring_class) : NULL;
}

static inline void shim_publish(struct shim_record *record, enum shim_ring_class ring_class)
{
    shim_publish_at(shim_cursor(shim_me(), ring_class), record);
}

/* --- Coverage ----------------------------------------------------------------------------------------------------------- */

/* Bits may be set before the log exists: they are kept and written when it is made. */
enum shim_coverage { SHIM_CALLED = 0, SHIM_HOOKED = 1, SHIM_UNRESOLVED = 2 };
void shim_cover_first(enum shim_coverage what, unsigned word, uint64_t bit);

static inline void shim_cover(enum shim_coverage what, unsigned word, unsigned number)
{
    uint64_t bit = 1ull << number;

    if (__builtin_expect((__atomic_load_n(&shim_covered[what][word], __ATOMIC_RELAXED) & bit) == 0, 0))
        shim_cover_first(what, word, bit);
}

static inline void shim_cover_function(enum shim_coverage what, enum shim_kind function)
{
    shim_cover(what, 0, (unsigned)function);
}

static inline void shim_cover_hook(enum shim_coverage what, enum shim_hook hook)
{
    shim_cover(what, 1, (unsigned)hook);
}

/* --- Communicators ------------------------------------------------------------------------------------------------------ */

/* A new slot, state SHIM_COMM_STARTING. identity 0: unknown; rank, ranks SHIM_UNKNOWN: unknown. NULL: none free (counted).
 * Slots of destroyed communicators are taken again, oldest first, only when no fresh one is left. */
struct shim_comm *shim_comm_claim(uint64_t identity, uint64_t parent, int32_t rank, int32_t ranks);

/* A slot for a handle whose making was not seen. NULL: none free, or the handle is that of a closed communicator, whose memory is
 * gone. With all slots taken this is one load: more communicators than slots cost no scan and no lock. */
struct shim_comm *shim_comm_claim_unseen(uint64_t handle);

/* The slot of this ncclComm_t, or NULL. A few nanoseconds. The two words near at hand are an excerpt of the table, which knows all
 * handles; both are written under the lock. */
struct shim_comm *shim_comm_far(uint64_t handle);
static inline struct shim_comm *shim_comm_find_on(uint64_t handle)
{
    uint64_t word = shim_near_word(handle);
    uint32_t place = shim_near_place(handle);

    for (uint32_t second = 0; second < 2 && word != 0; second++) {
        uint64_t found = __atomic_load_n(&shim_hot.near[place ^ second], __ATOMIC_ACQUIRE);

        if ((found & ~SHIM_NEAR_SLOTS) == word)
            return &shim_hot.comms[found & SHIM_NEAR_SLOTS];
    }
    return shim_comm_far(handle);
}

static inline struct shim_comm *shim_comm_find(uint64_t handle)
{
    return shim_on() ? shim_comm_find_on(handle) : NULL;
}

/* Binds the handle that init returned. */
void shim_comm_bind(struct shim_comm *comm, uint64_t handle);

/* The handle means nothing any more (destroy, abort): `state` says why. */
void shim_comm_close(struct shim_comm *comm, enum shim_comm_state state);

/* For the profiler hook: the slot of the communicator whose init is running now with this rank and size (claimed by the NCCL
 * hook), else the one already bound to comm_id and rank, else a new slot with SHIM_COMM_FROM_PROFILER. Sets comm_id, nodes, name. */
struct shim_comm *shim_comm_for_profiler(uint64_t comm_id, int32_t rank, int32_t ranks, int32_t nodes, const char *name);

/* For profiler versions that tell no identity at init: the slot being initialised by this thread, else NULL. */
struct shim_comm *shim_comm_starting_here(void);

void shim_comm_name(struct shim_comm *comm, const char *name);

static inline uint16_t shim_comm_slot(const struct shim_comm *comm)
{
    return comm == NULL ? (uint16_t)SHIM_NO_COMM : (uint16_t)(comm - shim_hot.comms);
}

extern struct shim_counter shim_more_counters[];
#define SHIM_PAIRS_BYTES(ranks) ((1 + 2 * (size_t)(ranks)) * sizeof(uint32_t))

static inline struct shim_counter *shim_counter_of(uint32_t slot)
{
    return slot < SHIM_COUNTERS ? &shim_hot.counters[slot] : &shim_more_counters[slot - SHIM_COUNTERS];
}

/* journal.c, by the heartbeat and at the end: what the records of calls say of the communicators, into their slots, before newer
 * records overwrite them. */
void shim_checkpoint(void);

/* FNV-1a, 64 bits: the identity of what is shared by all members (unique id; or parent, color and number of the split). */
uint64_t shim_hash(const void *bytes, size_t count, uint64_t seed);
#define SHIM_HASH_SEED 0xcbf29ce484222325ull

/* --- Proxy operations and queue pairs ----------------------------------------------------------------------------------- */

/* A cleared slot in state SHIM_SLOT_FREE with its new generation; fill it, then shim_slot_publish. Any thread may claim; slots
 * that ended longest ago are taken first. NULL: none free (counted). */
struct shim_proxy_op *shim_proxy_op_claim(void);
void shim_proxy_op_publish(struct shim_proxy_op *op); /* state ACTIVE: the heartbeat samples it from now on */
void shim_proxy_op_end(struct shim_proxy_op *op);     /* state ENDED; the slot stays readable until it is claimed again */

/* Keyed by context and number; generation = how many queue pairs had this key. NULL: none free (counted). Its epoch bins are
 * shim_queue_pair_bins. */
struct shim_queue_pair *shim_queue_pair_claim(uint64_t context, uint32_t number);
struct shim_queue_pair *shim_queue_pair_find(uint64_t context, uint32_t number); /* active ones; lock free */
void shim_queue_pair_end(struct shim_queue_pair *qp);

static inline struct shim_epoch_bin *shim_queue_pair_bins(const struct shim_queue_pair *qp)
{
    return &shim_log.epochs[(size_t)(qp - shim_log.queue_pairs) * SHIM_EPOCH_BINS];
}

static inline uint32_t shim_queue_pair_slot(const struct shim_queue_pair *qp)
{
    return (uint32_t)(qp - shim_log.queue_pairs);
}

/* posted.c: connects flows with queue pairs. This thread posted sends to a queue pair; it told of a step that it posted, whose flow
 * they belong to; what it posted belongs to no flow. */
void shim_posted_on(const struct shim_queue_pair *qp);
void shim_flow_posted(struct shim_proxy_op *op);
void shim_posted_forget(void);

/* Adds bytes, and the time since the poll before, to the bin of this tick, where a writer does not spread them. One writer for each
 * queue pair. */
void shim_epoch_add(struct shim_queue_pair *qp, uint64_t now, uint64_t bytes, uint64_t poll_gap);

/* SHIM_PROXY_STATE or SHIM_PROXY_DONE, and its SHIM_PROXY_WAITS, into this thread's ring of that class. */
void shim_record_proxy(const struct shim_proxy_op *op, enum shim_kind kind, enum shim_ring_class ring_class, uint64_t now);

/* SHIM_QP_EVENT into the rare ring. */
void shim_record_qp_event(const struct shim_queue_pair *qp, enum shim_qp_event event, uint64_t now);

/* SHIM_OP_DONE: fill all but sequence, check and kind. */
void shim_record_done(const struct shim_done_record *done);

#pragma GCC visibility pop

#endif
