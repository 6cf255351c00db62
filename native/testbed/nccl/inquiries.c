/* The rest of the interface: what a caller asks about, and what the test bed knows only by name. */
#include <stdio.h>
#include <stdlib.h>

#include "comm.h"

int library_version(void)
{
    static _Atomic int known;
    const char *text = getenv("TESTBED_NCCL_VERSION");
    int major = 2, minor = 30, patch = 7;

    if (atomic_load(&known) != 0)
        return atomic_load(&known);
    if (text != NULL)
        sscanf(text, "%d.%d.%d", &major, &minor, &patch);
    atomic_store(&known, major * 10000 + minor * 100 + patch);
    return atomic_load(&known);
}

NCCL_CALL(ncclGetVersion, (int *version))
{
    if (version == NULL)
        return ncclInvalidArgument;
    *version = library_version();
    return ncclSuccess;
}

NCCL_NAMED(const char *, ncclGetErrorString, (ncclResult_t result))
{
    static const char *const TEXTS[] = {
        "no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage",
        "remote process exited or there was a network error", "NCCL operation in progress", "operation timed out",
    };

    return (unsigned)result < sizeof TEXTS / sizeof *TEXTS ? TEXTS[result] : "unknown result code";
}

NCCL_NAMED(const char *, ncclGetLastError, (ncclComm_t comm))
{
    (void)comm;
    return "";
}

NCCL_CALL(ncclCommCount, (const ncclComm_t comm, int *count))
{
    if (comm == NULL || count == NULL)
        return ncclInvalidArgument;
    *count = comm->count;
    return ncclSuccess;
}

NCCL_CALL(ncclCommUserRank, (const ncclComm_t comm, int *rank))
{
    if (comm == NULL || rank == NULL)
        return ncclInvalidArgument;
    *rank = comm->rank;
    return ncclSuccess;
}

NCCL_CALL(ncclCommCuDevice, (const ncclComm_t comm, int *device))
{
    if (comm == NULL || device == NULL)
        return ncclInvalidArgument;
    *device = comm->device;
    return ncclSuccess;
}

NCCL_CALL(ncclMemAlloc, (void **memory, size_t size))
{
    if (memory == NULL)
        return ncclInvalidArgument;
    *memory = malloc(size);
    return *memory != NULL ? ncclSuccess : ncclSystemError;
}

NCCL_CALL(ncclMemFree, (void *memory))
{
    free(memory);
    return ncclSuccess;
}

NCCL_CALL(ncclCommRegister, (const ncclComm_t comm, void *memory, size_t size, void **handle))
{
    (void)comm, (void)size;
    *handle = memory;
    return ncclSuccess;
}

NCCL_CALL(ncclCommDeregister, (const ncclComm_t comm, void *handle))
{
    (void)comm, (void)handle;
    return ncclSuccess;
}

NCCL_CALL(ncclCommSuspend, (ncclComm_t comm, int flags))
{
    (void)flags;
    return comm != NULL ? ncclSuccess : ncclInvalidArgument;
}

NCCL_CALL(ncclCommResume, (ncclComm_t comm))
{
    return comm != NULL ? ncclSuccess : ncclInvalidArgument;
}

/* Exported as by the real library, and refused: one-sided communication, windows and own reductions are not modelled. */
NCCL_CALL(ncclPutSignal, (const void *from, size_t count, ncclDataType_t type, int peer, ncclWindow_t window,
    size_t offset, int signal,
                          int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream))
{
    (void)from, (void)count, (void)type, (void)peer, (void)window, (void)offset, (void)signal, (void)context, (void)flags,
    (void)comm;
    (void)stream;
    return ncclInvalidUsage;
}

NCCL_CALL(ncclSignal, (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream))
{
    (void)peer, (void)signal, (void)context, (void)flags, (void)comm, (void)stream;
    return ncclInvalidUsage;
}

NCCL_CALL(ncclWaitSignal, (int count, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream))
{
    (void)count, (void)signals, (void)comm, (void)stream;
    return ncclInvalidUsage;
}

NCCL_CALL(ncclCommWindowRegister, (ncclComm_t comm, void *memory, size_t size, ncclWindow_t *window, int flags))
{
    (void)comm, (void)memory, (void)size, (void)window, (void)flags;
    return ncclInvalidUsage;
}

NCCL_CALL(ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window))
{
    (void)comm, (void)window;
    return ncclInvalidUsage;
}

NCCL_CALL(ncclRedOpCreatePreMulSum, (ncclRedOp_t *op, void *scalar, ncclDataType_t type, int residence, ncclComm_t comm))
{
    (void)op, (void)scalar, (void)type, (void)residence, (void)comm;
    return ncclInvalidUsage;
}

NCCL_CALL(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))
{
    (void)op, (void)comm;
    return ncclInvalidUsage;
}
