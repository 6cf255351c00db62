/* The part of NCCL's profiler plugin interface that the hook needs, declared anew: only numbers, sizes and offsets are taken
 * from NCCL (src/include/plugin/profiler/profiler_v1.h .. v6.h and nccl_profiler.h of 2.23.4 .. 2.30.7). */
#ifndef FORENSICS_PROFILER_ABI_H
#define FORENSICS_PROFILER_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum profiler_event {
    EVENT_GROUP = 1 << 0, EVENT_COLL = 1 << 1, EVENT_P2P = 1 << 2, EVENT_PROXY_OP = 1 << 3, EVENT_PROXY_STEP = 1 << 4,
    EVENT_KERNEL = 1 << 6, EVENT_GROUP_API = 1 << 8, EVENT_COLL_API = 1 << 9, EVENT_P2P_API = 1 << 10,
};

enum profiler_state {
    /* Of a proxy operation, up to v3; steps and bytes so far come with them. */
    STATE_SEND_FIFO_WAIT = 1, STATE_SEND_DONE = 3, STATE_RECV_DONE = 7,
    /* Of a step. */
    STATE_SEND_GPU_WAIT = 8, STATE_SEND_WAIT = 9, STATE_RECV_WAIT = 10, STATE_RECV_FLUSH_WAIT = 11, STATE_RECV_GPU_WAIT = 12,
    /* From v4 on. */
    STATE_PROXY_IN_PROGRESS = 19, STATE_SEND_PEER_WAIT = 20,
    STATE_LIMIT = 32,
};

/* All versions: what begins a descriptor, and the members that never changed. `type` is one byte up to v4. */
struct proxy_op_members { int32_t pid; uint8_t channel; int32_t peer, steps, chunk_bytes, is_send; };

struct coll_v1 {
    const char *name; uint64_t comm_hash, sequence; uint8_t function; const void *send; void *recv; size_t count; int32_t root;
    uint8_t dtype; uint32_t redop; size_t traffic; uint8_t channels, warps, algorithm, protocol; int32_t collnet, nvls;
};
struct p2p_v1 {
    const char *name; uint64_t comm_hash; uint8_t function; void *buffer; uint8_t dtype; size_t count; int32_t peer;
};

struct coll_v2 {
    const char *name; uint64_t comm_hash, sequence; const char *function; const void *send; void *recv; size_t count;
    int32_t root; const char *dtype; size_t traffic; uint8_t channels, warps; const char *algorithm, *protocol;
};
struct coll_v3 {
    const char *name; uint64_t comm_hash, sequence; const char *function; const void *send; void *recv; size_t count;
    int32_t root; const char *dtype; uint8_t channels, warps; const char *algorithm, *protocol;
};
struct p2p_v2 {
    const char *name; uint64_t comm_hash; const char *function; void *buffer; const char *dtype; size_t count; int32_t peer;
};

/* v4 to v6; the later ones append the group. */
struct coll_v4 {
    uint64_t sequence; const char *function; const void *send; void *recv; size_t count; int32_t root; const char *dtype;
    uint8_t channels, warps; const char *algorithm, *protocol;
};
struct p2p_v4 { const char *function; void *buffer; const char *dtype; size_t count; int32_t peer; uint8_t channels; };
struct coll_api { const char *function; size_t count; const char *dtype; int32_t root; void *stream; bool captured; };
struct p2p_api { const char *function; size_t count; const char *dtype; void *stream; bool captured; };

struct profiler_event_descriptor {
    union { uint8_t narrow_type; uint64_t type; };
    void *parent;
    int32_t rank;
    union {
        struct coll_v1 coll_v1;
        struct coll_v2 coll_v2;
        struct coll_v3 coll_v3;
        struct coll_v4 coll_v4;
        struct p2p_v1 p2p_v1;
        struct p2p_v2 p2p_v2;
        struct p2p_v4 p2p_v4;
        struct coll_api coll_api;
        struct p2p_api p2p_api;
        struct proxy_op_members proxy_op;
        int32_t step;
    };
};

/* Arguments of a state: up to v3 of a proxy operation; from v4 on of a step. May be NULL. */
struct state_arguments_v1 { size_t bytes; int32_t steps; };
struct state_arguments_v4 { size_t bytes; };

typedef int (*profiler_start)(void *context, void **handle, struct profiler_event_descriptor *event);
typedef int (*profiler_stop)(void *handle);
typedef int (*profiler_finalize)(void *context);
typedef void (*profiler_log)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

struct profiler_v1 {
    const char *name;
    int (*init)(void **context, int *mask);
    profiler_start start;
    profiler_stop stop;
    int (*record)(void *handle, int state, struct state_arguments_v1 *arguments);
    profiler_finalize finalize;
};
struct profiler_v4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_hash, int nodes, int ranks, int rank,
                profiler_log log);
    profiler_start start;
    profiler_stop stop;
    int (*record)(void *handle, int state, struct state_arguments_v4 *arguments);
    profiler_finalize finalize;
};
struct profiler_v5 {
    const char *name;
    int (*init)(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nodes, int ranks, int rank,
                profiler_log log);
    profiler_start start;
    profiler_stop stop;
    int (*record)(void *handle, int state, struct state_arguments_v4 *arguments);
    profiler_finalize finalize;
};

#define AT(member, offset) \
    _Static_assert(offsetof(struct profiler_event_descriptor, member) == (offset), "NCCL's layout on LP64")
#if UINTPTR_MAX == UINT64_MAX
AT(parent, 8); AT(rank, 16); AT(step, 24);
AT(proxy_op.channel, 28); AT(proxy_op.peer, 32); AT(proxy_op.steps, 36); AT(proxy_op.is_send, 44);
AT(coll_v1.comm_hash, 32); AT(coll_v1.function, 48); AT(coll_v1.count, 72); AT(coll_v1.root, 80); AT(coll_v1.dtype, 84);
AT(coll_v1.algorithm, 106); AT(coll_v1.protocol, 107); AT(p2p_v1.function, 40); AT(p2p_v1.dtype, 56); AT(p2p_v1.peer, 72);
AT(coll_v2.function, 48); AT(coll_v2.count, 72); AT(coll_v2.dtype, 88); AT(coll_v2.algorithm, 112);
AT(coll_v3.dtype, 88); AT(coll_v3.algorithm, 104); AT(coll_v3.protocol, 112);
AT(p2p_v2.function, 40); AT(p2p_v2.dtype, 56); AT(p2p_v2.count, 64); AT(p2p_v2.peer, 72);
AT(coll_v4.sequence, 24); AT(coll_v4.function, 32); AT(coll_v4.count, 56); AT(coll_v4.root, 64); AT(coll_v4.dtype, 72);
AT(coll_v4.algorithm, 88); AT(coll_v4.protocol, 96); AT(p2p_v4.function, 24); AT(p2p_v4.dtype, 40); AT(p2p_v4.peer, 56);
AT(coll_api.stream, 56); AT(coll_api.captured, 64); AT(p2p_api.stream, 48); AT(p2p_api.captured, 56);
_Static_assert(offsetof(struct state_arguments_v1, steps) == 8, "NCCL's layout on LP64");
#endif
#undef AT

#endif
