/* The calls that carry data. They return at once: what they ask for runs on the stream. */
#include <stdlib.h>

#include "comm.h"
#include "profiler.h"

const char *func_name(enum func func)
{
    static const char *const NAMES[FUNCS] = {
        "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv", "AlltoAll", "Gather",
        "Scatter",
    };

    return NAMES[func];
}

static void write_truth(const struct task *task)
{
    struct truth_call *row = truth_row(TRUTH_CALLS);

    row->comm = task->comm->id;
    row->count = task->count;
    row->func = (int32_t)task->api;
    row->datatype = (int32_t)task->type;
    row->peer = task->root;
    row->depth = group_depth();
}

static ncclResult_t check(const struct task *task)
{
    if (task->comm == NULL || type_size(task->type) == 0 || task->root < 0 || task->root >= task->comm->count)
        return ncclInvalidArgument;
    if (atomic_load(&task->comm->opening) || atomic_load(&task->comm->aborted))
        return ncclInvalidUsage;
    return ncclSuccess;
}

static ncclResult_t add(struct task *task)
{
    ncclResult_t result;

    group_enter();
    profiler_call_start(task, group_depth());
    result = group_add(task);
    profiler_call_stop(task);
    return group_leave() != ncclSuccess ? ncclSystemError : result;
}

static ncclResult_t call(struct task task, const ncclCollConfig_t *config)
{
    ncclResult_t result = check(&task);

    if (result != ncclSuccess)
        return result;
    task.api = task.func;
    task.tag = config != NULL ? config->userProfilerTag : 0;
    write_truth(&task);
    return task.count == 0 ? ncclSuccess : add(&task);
}

/* A send or receive that is part of a larger call. */
static ncclResult_t part(struct task task, enum func func, int peer, size_t block)
{
    size_t offset = block * task.count * type_size(task.type);

    task.func = func;
    task.root = peer;
    task.in = func == FUNC_SEND ? (const char *)task.in + offset : NULL;
    task.out = func == FUNC_RECV ? (char *)task.out + offset : NULL;
    return add(&task);
}

/* AlltoAll, Gather and Scatter are sends and receives; the end that is not the root holds a single block. */
static ncclResult_t exchange(struct task task, const ncclCollConfig_t *config)
{
    ncclResult_t result = check(&task);
    enum func api = task.func;
    int is_root;

    if (result != ncclSuccess)
        return result;
    task.api = api;
    task.tag = config != NULL ? config->userProfilerTag : 0;
    write_truth(&task);
    is_root = task.comm->rank == task.root;
    group_enter();
    for (int peer = 0; peer < task.comm->count && task.count > 0; peer++) {
        if (api == FUNC_ALL_TO_ALL || (api == FUNC_SCATTER && is_root))
            part(task, FUNC_SEND, peer, (size_t)peer);
        if (api == FUNC_ALL_TO_ALL || (api == FUNC_GATHER && is_root))
            part(task, FUNC_RECV, peer, (size_t)peer);
    }
    if (api != FUNC_ALL_TO_ALL && task.count > 0)
        part(task, api == FUNC_GATHER ? FUNC_SEND : FUNC_RECV, task.root, 0);
    return group_leave();
}

#define BUFFERS const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype
#define WHERE ncclComm_t comm, cudaStream_t stream
#define CONFIG const ncclCollConfig_t *config
#define TASK(kind)                                                                              \
    struct task task = {.func = kind, .in = sendbuff, .out = recvbuff, .count = count,          \
                        .type = datatype, .comm = comm, .stream = stream}

NCCL_CALL(ncclAllReduceConfig, (BUFFERS, ncclRedOp_t op, WHERE, CONFIG))
{
    TASK(FUNC_ALL_REDUCE);

    task.op = op;
    return call(task, config);
}

NCCL_CALL(ncclAllReduce, (BUFFERS, ncclRedOp_t op, WHERE))
{
    return pncclAllReduceConfig(sendbuff, recvbuff, count, datatype, op, comm, stream, NULL);
}

NCCL_CALL(ncclBroadcastConfig, (BUFFERS, int root, WHERE, CONFIG))
{
    TASK(FUNC_BROADCAST);

    task.root = root;
    return call(task, config);
}

NCCL_CALL(ncclBroadcast, (BUFFERS, int root, WHERE))
{
    return pncclBroadcastConfig(sendbuff, recvbuff, count, datatype, root, comm, stream, NULL);
}

NCCL_CALL(ncclBcast, (void *buffer, size_t count, ncclDataType_t datatype, int root, WHERE))
{
    return ncclBroadcast(buffer, buffer, count, datatype, root, comm, stream);
}

NCCL_CALL(ncclReduceConfig, (BUFFERS, ncclRedOp_t op, int root, WHERE, CONFIG))
{
    TASK(FUNC_REDUCE);

    task.op = op;
    task.root = root;
    return call(task, config);
}

NCCL_CALL(ncclReduce, (BUFFERS, ncclRedOp_t op, int root, WHERE))
{
    return pncclReduceConfig(sendbuff, recvbuff, count, datatype, op, root, comm, stream, NULL);
}

NCCL_CALL(ncclAllGatherConfig, (BUFFERS, WHERE, CONFIG))
{
    TASK(FUNC_ALL_GATHER);

    return call(task, config);
}

NCCL_CALL(ncclAllGather, (BUFFERS, WHERE))
{
    return pncclAllGatherConfig(sendbuff, recvbuff, count, datatype, comm, stream, NULL);
}

NCCL_CALL(ncclReduceScatterConfig, (BUFFERS, ncclRedOp_t op, WHERE, CONFIG))
{
    TASK(FUNC_REDUCE_SCATTER);

    task.op = op;
    return call(task, config);
}

NCCL_CALL(ncclReduceScatter, (BUFFERS, ncclRedOp_t op, WHERE))
{
    return pncclReduceScatterConfig(sendbuff, recvbuff, count, datatype, op, comm, stream, NULL);
}

NCCL_CALL(ncclAlltoAllConfig, (BUFFERS, WHERE, CONFIG))
{
    TASK(FUNC_ALL_TO_ALL);

    return exchange(task, config);
}

NCCL_CALL(ncclAlltoAll, (BUFFERS, WHERE))
{
    return pncclAlltoAllConfig(sendbuff, recvbuff, count, datatype, comm, stream, NULL);
}

NCCL_CALL(ncclGatherConfig, (BUFFERS, int root, WHERE, CONFIG))
{
    TASK(FUNC_GATHER);

    task.root = root;
    return exchange(task, config);
}

NCCL_CALL(ncclGather, (BUFFERS, int root, WHERE))
{
    return pncclGatherConfig(sendbuff, recvbuff, count, datatype, root, comm, stream, NULL);
}

NCCL_CALL(ncclScatterConfig, (BUFFERS, int root, WHERE, CONFIG))
{
    TASK(FUNC_SCATTER);

    task.root = root;
    return exchange(task, config);
}

NCCL_CALL(ncclScatter, (BUFFERS, int root, WHERE))
{
    return pncclScatterConfig(sendbuff, recvbuff, count, datatype, root, comm, stream, NULL);
}

/* Old versions opened the group of a single send through the public name, so that an interposer saw it. */
static ncclResult_t call_in_group(struct task task)
{
    ncclResult_t result, ended;

    if (library_version() >= 21800)
        return call(task, NULL);
    ncclGroupStart();
    result = call(task, NULL);
    ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
}

NCCL_CALL(ncclSend, (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, WHERE))
{
    void *recvbuff = NULL;
    TASK(FUNC_SEND);

    task.root = peer;
    return call_in_group(task);
}

NCCL_CALL(ncclRecv, (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, WHERE))
{
    const void *sendbuff = NULL;
    TASK(FUNC_RECV);

    task.root = peer;
    return call_in_group(task);
}

NCCL_CALL(ncclGroupStart, (void))
{
    group_enter();
    return ncclSuccess;
}

NCCL_CALL(ncclGroupEnd, (void))
{
    return group_leave();
}

NCCL_CALL(ncclGroupSimulateEnd, (ncclSimInfo_t *info))
{
    if (info != NULL)
        info->estimatedTime = 0;
    group_forget();
    return ncclSuccess;
}
