/* The profiler hook: what its files share. The versions are adapters (versions.c) over one core. */
#ifndef FORENSICS_PROFILER_HOOKS_H
#define FORENSICS_PROFILER_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiler/abi.h"
#include "ring/log.h"

#pragma GCC visibility push(hidden) /* what only this library uses is reached without a table */

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

/* What NCCL keeps for us is a number, not an address: a handle of another process (a proxy may work for a peer), of an event
 * that ended, or of a slot that was used again does not match the key in its slot and is ignored. */
enum handle_kind {
    HANDLE_GROUP = 1, HANDLE_API = 2, HANDLE_OPERATION = 3, HANDLE_PROXY = 4, HANDLE_STEP = 5, HANDLE_KERNEL = 6,
};

#define HANDLE_SLOTS 4096u /* 13 bits are there */

static inline enum handle_kind handle_kind(uint64_t handle) { return (enum handle_kind)(handle & 7); }
static inline uint32_t handle_slot(uint64_t handle) { return (uint32_t)(handle >> 3) & (HANDLE_SLOTS - 1); }
static inline uint32_t handle_generation(uint64_t handle) { return (uint32_t)(handle >> 32); }
static inline uint32_t handle_step(uint64_t handle) { return (uint32_t)(handle >> 16) & 0xFFFF; }

static inline uint64_t make_handle(enum handle_kind kind, uint32_t slot, uint32_t generation)
{
    return (uint64_t)kind | (uint64_t)slot << 3 | (uint64_t)generation << 32;
}

static inline uint64_t step_handle(uint64_t proxy, uint32_t step)
{
    return (proxy & ~7ull) | HANDLE_STEP | (uint64_t)(step & 0xFFFF) << 16;
}

/* The stream of an API event travels in its handle to the operations under it. */
static inline uint64_t api_handle(const void *stream) { return (uint64_t)(uintptr_t)stream << 8 | HANDLE_API; }

/* One communicator as NCCL initialised us for it. */
struct profiler_context {
    uint32_t used;
    uint32_t version;
    struct shim_comm *comm; /* NULL: not known yet (v1 to v3 tell it with the first operation) */
    uint8_t generation;     /* of the communicator's slot */
    uint32_t *p2p_numbers;  /* for each peer: sent, received */
    uint32_t peers;
};

/* A collective or point-to-point operation, as every version tells it. */
struct profiler_task {
    enum shim_kind kind;
    uint64_t count, comm_hash, stream;
    const char *comm_name;
    int32_t peer; /* or root */
    uint8_t dtype, algorithm, protocol;
};

struct operation {
    uint64_t key;
    uint32_t children; /* proxy operations and kernels in progress */
    uint32_t stopped;  /* NCCL has enqueued it */
    uint32_t counted;  /* in ops_done */
    struct profiler_context *context;
    struct shim_comm *comm;
    uint16_t comm_slot;
    uint8_t comm_generation, kind, algorithm, protocol;
    uint32_t number, p2p_number;
    int32_t peer;
    uint64_t start, bytes, channels;
    struct shim_call *call; /* its record, when the API hook is silent */
    uint64_t call_sequence;
};

struct live_step {
    uint64_t key;   /* 0: none */
    uint32_t stage; /* 0 begun, else 1 + enum shim_wait; 1-3 of a sender, 4-6 of a receiver */
    uint64_t since;
};

/* A proxy operation NCCL announced. It gets a slot in the log when it first moves: NCCL also announces proxies that never
 * report anything, not even their end (CollNet, shared memory; 2.28 on). */
struct live_proxy {
    uint64_t key;
    struct shim_proxy_op *slot;
    struct profiler_context *context; /* NULL for another process */
    struct operation *operation;
    uint64_t operation_key, parent, start;
    uint32_t fifo; /* steps that were seen waiting for the peer (v1 to v3) */
    struct proxy_op_members members;
    struct live_step steps[SHIM_STEPS];
};

/* contexts.c */
struct profiler_context *profiler_begin(uint32_t version, int *mask);
void profiler_end(struct profiler_context *context);
struct profiler_context *profiler_context_of(void *context); /* NULL when it is none of ours */
void profiler_know_comm(struct profiler_context *context, struct shim_comm *comm);
void profiler_learn_comm(struct profiler_context *context, int32_t rank, const struct profiler_task *task);
uint32_t profiler_p2p_number(struct profiler_context *context, int32_t peer, enum shim_kind kind);
uint32_t profiler_first_generation(void);

/* operations.c */
void *operation_start(struct profiler_context *context, int32_t rank, const struct profiler_task *task);
void operation_stop(uint64_t handle);
struct operation *operation_of(uint64_t handle); /* NULL when it is gone */
bool operation_was_ours(uint64_t handle);        /* whether this process gave it, be it gone or not */
void operation_child_began(struct operation *operation, uint64_t start, uint8_t channel);
void operation_child_ended(struct operation *operation, uint64_t key, uint64_t bytes, uint64_t now);
void operations_forget(void);
void *kernel_start(uint64_t parent);
void kernel_stop(uint64_t handle);

/* proxies.c */
void *proxy_start(void *context, uint64_t parent, const struct proxy_op_members *members);
void proxy_stop(uint64_t handle);
struct shim_proxy_op *proxy_move(struct live_proxy *proxy); /* gives it a slot in the log; NULL when there is none */
void proxies_abandon(const struct profiler_context *context);
void proxies_forget(void);
extern struct live_proxy live_proxies[HANDLE_SLOTS];

/* steps.c */
void *step_start(uint64_t parent, uint32_t number);
void step_stop(uint64_t handle);
void step_move(struct live_proxy *proxy, struct live_step *step, uint32_t stage, uint64_t bytes);
void steps_wait_for_peer(uint64_t proxy, uint32_t steps);
void steps_close(struct live_proxy *proxy, struct shim_proxy_op *slot, uint64_t now);

extern const uint8_t step_stages[STATE_LIMIT];

/* Called on every turn of NCCL's progress loop while a step waits: one comparison when nothing is new. */
static inline void step_state(uint64_t handle, uint32_t state, uint64_t bytes)
{
    struct live_proxy *proxy = &live_proxies[handle_slot(handle)];
    struct live_step *step = &proxy->steps[handle_step(handle) % SHIM_STEPS];
    uint32_t stage = state < STATE_LIMIT ? step_stages[state] : 0;

    if (LOAD(step->key) == handle && stage > LOAD(step->stage))
        step_move(proxy, step, stage, bytes);
}

/* names.c: NCCL's words and v1's numbers; 255 (0 for a kind) when unknown. */
enum shim_kind kind_of_name(const char *name);
enum shim_kind kind_of_number(uint8_t number);
uint8_t dtype_of_name(const char *name);
uint8_t algorithm_of_name(const char *name);
uint8_t protocol_of_name(const char *name);

#pragma GCC visibility pop

#endif
