/* The hooked operations: collectives, their Config twins, point to point, groups. */
#include "shim/nccl.h"

#define NONE 255u
#define OWN_REDOP 254u /* made by ncclRedOpCreatePreMulSum: a number beyond the built-in ones */

static inline uint8_t reduction(int op)
{
    return op >= 0 && op < 16 ? (uint8_t)op : OWN_REDOP;
}

/* Defines ncclNAME, which calls pncclNAME of the caller's NCCL. */
#define OPERATION(NAME, KIND, PARAMETERS, ARGUMENTS, COUNT, DTYPE, REDOP, PEER)                                                 \
    FORENSICS_EXPORT nccl_result nccl##NAME PARAMETERS __attribute__((hot));                                                    \
    nccl_result nccl##NAME PARAMETERS                                                                                           \
    {                                                                                                                           \
        const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));                                      \
        const struct nccl_facts facts = {                                                                                       \
            .count = (uint64_t)(COUNT), .stream = (uint64_t)(uintptr_t)stream, .peer = (PEER), .kind = (KIND), .dtype = (uint8_t)(DTYPE), .redop = (REDOP)}; \
        struct nccl_visit visit;                                                                                                \
        nccl_result result;                                                                                                     \
                                                                                                                                \
        if (library->functions[NCCL_##NAME] == NULL)                                                                            \
            return nccl_missing(KIND);                                                                                          \
        nccl_enter(&visit, library, comm, &facts);                                                                              \
        result = ((nccl_result(*) PARAMETERS)library->functions[NCCL_##NAME])ARGUMENTS;                                         \
        nccl_leave(&visit, result);                                                                                             \
        return result;                                                                                                          \
    }

/* An operation, and its twin of NCCL 2.31 with a configuration behind the other parameters. */
#define PARENS(...) (__VA_ARGS__)
#define TWINS(NAME, KIND, PARAMETERS, ARGUMENTS, COUNT, DTYPE, REDOP, PEER)                                                     \
    OPERATION(NAME, KIND, (PARAMETERS), (ARGUMENTS), COUNT, DTYPE, REDOP, PEER)                                                 \
    OPERATION(NAME##Config, KIND, (PARAMETERS, const void *config), (ARGUMENTS, config), COUNT, DTYPE, REDOP, PEER)
#define LIST(...) __VA_ARGS__

TWINS(AllReduce, SHIM_ALL_REDUCE,
      LIST(const void *in, void *out, size_t count, int dtype, int op, nccl_comm comm, nccl_stream stream),
      LIST(in, out, count, dtype, op, comm, stream), count, dtype, reduction(op), SHIM_UNKNOWN)
TWINS(ReduceScatter, SHIM_REDUCE_SCATTER,
      LIST(const void *in, void *out, size_t count, int dtype, int op, nccl_comm comm, nccl_stream stream),
      LIST(in, out, count, dtype, op, comm, stream), count, dtype, reduction(op), SHIM_UNKNOWN)
TWINS(Reduce, SHIM_REDUCE,
      LIST(const void *in, void *out, size_t count, int dtype, int op, int root, nccl_comm comm, nccl_stream stream),
      LIST(in, out, count, dtype, op, root, comm, stream), count, dtype, reduction(op), root)
TWINS(AllGather, SHIM_ALL_GATHER, LIST(const void *in, void *out, size_t count, int dtype, nccl_comm comm, nccl_stream stream),
      LIST(in, out, count, dtype, comm, stream), count, dtype, NONE, SHIM_UNKNOWN)
TWINS(AlltoAll, SHIM_ALL_TO_ALL, LIST(const void *in, void *out, size_t count, int dtype, nccl_comm comm, nccl_stream stream),
      LIST(in, out, count, dtype, comm, stream), count, dtype, NONE, SHIM_UNKNOWN)
TWINS(Broadcast, SHIM_BROADCAST,
      LIST(const void *in, void *out, size_t count, int dtype, int root, nccl_comm comm, nccl_stream stream),
      LIST(in, out, count, dtype, root, comm, stream), count, dtype, NONE, root)
TWINS(Gather, SHIM_GATHER,
      LIST(const void *in, void *out, size_t count, int dtype, int root, nccl_comm comm, nccl_stream stream),
      LIST(in, out, count, dtype, root, comm, stream), count, dtype, NONE, root)
TWINS(Scatter, SHIM_SCATTER,
      LIST(const void *in, void *out, size_t count, int dtype, int root, nccl_comm comm, nccl_stream stream),
      LIST(in, out, count, dtype, root, comm, stream), count, dtype, NONE, root)
OPERATION(Bcast, SHIM_BROADCAST, (void *buffer, size_t count, int dtype, int root, nccl_comm comm, nccl_stream stream),
          (buffer, count, dtype, root, comm, stream), count, dtype, NONE, root)
OPERATION(Send, SHIM_SEND, (const void *buffer, size_t count, int dtype, int peer, nccl_comm comm, nccl_stream stream),
          (buffer, count, dtype, peer, comm, stream), count, dtype, NONE, peer)
OPERATION(Recv, SHIM_RECV, (void *buffer, size_t count, int dtype, int peer, nccl_comm comm, nccl_stream stream),
          (buffer, count, dtype, peer, comm, stream), count, dtype, NONE, peer)
OPERATION(PutSignal, SHIM_PUT_SIGNAL,
          (const void *buffer, size_t count, int dtype, int peer, void *window, size_t offset, int index, int context,
           unsigned flags, nccl_comm comm, nccl_stream stream),
          (buffer, count, dtype, peer, window, offset, index, context, flags, comm, stream), count, dtype, NONE, peer)
OPERATION(Signal, SHIM_SIGNAL, (int peer, int index, int context, unsigned flags, nccl_comm comm, nccl_stream stream),
          (peer, index, context, flags, comm, stream), 0, NONE, NONE, peer)
OPERATION(WaitSignal, SHIM_WAIT_SIGNAL, (int waits, void *descriptors, nccl_comm comm, nccl_stream stream),
          (waits, descriptors, comm, stream), waits, NONE, NONE, SHIM_UNKNOWN)
