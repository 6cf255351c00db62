/* The public NCCL ABI (2.18 to 2.32) as lists: of each function its name, its parameters, and what to pass on to another one. */
#ifndef PROGRAMS_ABI_H
#define PROGRAMS_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

/* ncclConfig_t of 2.27; older programs pass a shorter one, as `size` says. */
struct config {
    size_t size;
    uint32_t magic, version;
    int blocking, ints[3];
    const char *net;
    int more[2];
    const char *name;
};
#define CONFIG_MAGIC 0xcafebeefu

enum result { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS };

#define LIST(...) __VA_ARGS__
#define BOTH_ENDS const void *in, void *out, size_t count, int dtype
#define ON ncclComm_t comm, void *stream

/* What only a new library has is in the NEW lists. A twin has a configuration behind the other parameters. */
#define OPERATIONS_OLD(each)                                                                                                    \
    each(AllReduce, (BOTH_ENDS, int op, ON), (in, out, count, dtype, op, comm, stream))                                         \
    each(ReduceScatter, (BOTH_ENDS, int op, ON), (in, out, count, dtype, op, comm, stream))                                     \
    each(Reduce, (BOTH_ENDS, int op, int root, ON), (in, out, count, dtype, op, root, comm, stream))                            \
    each(AllGather, (BOTH_ENDS, ON), (in, out, count, dtype, comm, stream))                                                     \
    each(Broadcast, (BOTH_ENDS, int root, ON), (in, out, count, dtype, root, comm, stream))                                     \
    each(Bcast, (void *out, size_t count, int dtype, int root, ON), (out, count, dtype, root, comm, stream))                    \
    each(Send, (const void *in, size_t count, int dtype, int root, ON), (in, count, dtype, root, comm, stream))                 \
    each(Recv, (void *out, size_t count, int dtype, int root, ON), (out, count, dtype, root, comm, stream))

#define TWIN const void *twin
#define OPERATIONS_NEW(each)                                                                                                    \
    each(AllReduceConfig, (BOTH_ENDS, int op, ON, TWIN), (in, out, count, dtype, op, comm, stream, twin))                       \
    each(ReduceScatterConfig, (BOTH_ENDS, int op, ON, TWIN), (in, out, count, dtype, op, comm, stream, twin))                   \
    each(ReduceConfig, (BOTH_ENDS, int op, int root, ON, TWIN), (in, out, count, dtype, op, root, comm, stream, twin))          \
    each(AllGatherConfig, (BOTH_ENDS, ON, TWIN), (in, out, count, dtype, comm, stream, twin))                                   \
    each(BroadcastConfig, (BOTH_ENDS, int root, ON, TWIN), (in, out, count, dtype, root, comm, stream, twin))                   \
    each(AlltoAll, (BOTH_ENDS, ON), (in, out, count, dtype, comm, stream))                                                      \
    each(AlltoAllConfig, (BOTH_ENDS, ON, TWIN), (in, out, count, dtype, comm, stream, twin))                                    \
    each(Gather, (BOTH_ENDS, int root, ON), (in, out, count, dtype, root, comm, stream))                                        \
    each(GatherConfig, (BOTH_ENDS, int root, ON, TWIN), (in, out, count, dtype, root, comm, stream, twin))                      \
    each(Scatter, (BOTH_ENDS, int root, ON), (in, out, count, dtype, root, comm, stream))                                       \
    each(ScatterConfig, (BOTH_ENDS, int root, ON, TWIN), (in, out, count, dtype, root, comm, stream, twin))                     \
    each(PutSignal,                                                                                                             \
         (const void *in, size_t count, int dtype, int root, void *window, size_t offset, int op, int context, unsigned flags, ON), \
         (in, count, dtype, root, window, offset, op, context, flags, comm, stream))                                            \
    each(Signal, (int root, int op, int context, unsigned flags, ON), (root, op, context, flags, comm, stream))                 \
    each(WaitSignal, (int op, void *window, ON), (op, window, comm, stream))

#define ENDINGS_OLD(each)                                                                                                       \
    each(CommFinalize, (ncclComm_t comm), (comm)) each(CommDestroy, (ncclComm_t comm), (comm))                                  \
    each(CommAbort, (ncclComm_t comm), (comm)) each(CommGetAsyncError, (ncclComm_t comm, int *value), (comm, value))
#define ENDINGS_NEW(each)                                                                                                       \
    each(CommRevoke, (ncclComm_t comm, int op), (comm, op)) each(CommSuspend, (ncclComm_t comm, int op), (comm, op))            \
    each(CommResume, (ncclComm_t comm), (comm))

#define MAKERS_OLD(each)                                                                                                        \
    each(GetUniqueId, (ncclUniqueId *id), (id))                                                                                 \
    each(CommInitRank, (ncclComm_t *made, int ranks, ncclUniqueId id, int rank), (made, ranks, id, rank))                       \
    each(CommInitRankConfig, (ncclComm_t *made, int ranks, ncclUniqueId id, int rank, struct config *config),                   \
         (made, ranks, id, rank, config))                                                                                       \
    each(CommInitAll, (ncclComm_t *made, int ranks, const int *devices), (made, ranks, devices))                                \
    each(CommSplit, (ncclComm_t comm, int color, int rank, ncclComm_t *made, struct config *config),                            \
         (comm, color, rank, made, config))
#define MAKERS_NEW(each)                                                                                                        \
    each(CommInitRankScalable,                                                                                                  \
         (ncclComm_t *made, int ranks, int rank, int color, ncclUniqueId *ids, struct config *config),                          \
         (made, ranks, rank, color, ids, config))                                                                               \
    each(CommShrink, (ncclComm_t comm, int *out, int ranks, ncclComm_t *made, struct config *config, int flags),                \
         (comm, out, ranks, made, config, flags))                                                                               \
    each(CommGrow,                                                                                                              \
         (ncclComm_t comm, int ranks, const ncclUniqueId *id, int rank, ncclComm_t *made, struct config *config),               \
         (comm, ranks, id, rank, made, config))

#define GROUPS_OLD(each) each(GroupStart, (void), ()) each(GroupEnd, (void), ())
#define GROUPS_NEW(each) each(GroupSimulateEnd, (void *info), (info))

#define ASKED(each)                                                                                                             \
    each(GetVersion, (int *value), (value)) each(CommUserRank, (ncclComm_t comm, int *value), (comm, value))                    \
    each(CommCount, (ncclComm_t comm, int *value), (comm, value)) each(CommCuDevice, (ncclComm_t comm, int *value), (comm, value))

#define FUNCTIONS_OLD(each) OPERATIONS_OLD(each) ENDINGS_OLD(each) MAKERS_OLD(each) GROUPS_OLD(each) ASKED(each)
#define FUNCTIONS_NEW(each) OPERATIONS_NEW(each) ENDINGS_NEW(each) MAKERS_NEW(each) GROUPS_NEW(each)
#define FUNCTIONS(each) FUNCTIONS_OLD(each) FUNCTIONS_NEW(each)

#define NUMBER(name, parameters, arguments) F_##name,
enum function { FUNCTIONS(NUMBER) FUNCTION_COUNT, NO_FUNCTION = FUNCTION_COUNT };
#undef NUMBER
#define TEXT(name, parameters, arguments) "nccl" #name,
__attribute__((unused)) static const char *const function_names[] = {FUNCTIONS(TEXT) "nothing"};
#undef TEXT

#define DECLARE(name, parameters, arguments) int nccl##name parameters;
FUNCTIONS(DECLARE)
#undef DECLARE

/* One way to reach each function; NULL where the library lacks it. */
#define MEMBER(name, parameters, arguments) int(*name) parameters;
struct api {
    FUNCTIONS(MEMBER)
};
#undef MEMBER

/* A stream of numbers from a seed. */
static inline uint64_t mix(uint64_t value)
{
    value += 0x9E3779B97F4A7C15ull;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
    return value ^ (value >> 31);
}

#endif
