/* The part of the NCCL interface that the test bed offers (names, values and layouts as published, up to 2.31). Declared here
 * anew: only what a caller's binary depends on is taken over. */
#ifndef TESTBED_NCCL_H
#define TESTBED_NCCL_H

#include <stddef.h>
#include <stdint.h>

#include "stream.h"

typedef struct ncclComm *ncclComm_t;
typedef void *ncclWindow_t;
typedef testbed_stream_t cudaStream_t;
typedef struct { char internal[128]; } ncclUniqueId;

typedef enum {
    ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument, ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress, ncclTimeout,
} ncclResult_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg } ncclRedOp_t;
typedef enum {
    ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16,
    ncclFloat8e4m3, ncclFloat8e5m2, ncclNumTypes,
} ncclDataType_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_SHRINK_ABORT 1

/* Later versions append members; `size` says how many there are. */
typedef struct {
    size_t size;
    unsigned int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
} ncclConfig_t;

typedef struct {
    size_t size;
    unsigned int magic, version;
    void *ext;
    int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
    const char *algSelection;
    int forceAlgSelection, CTAPolicy;
    uint64_t userProfilerTag;
} ncclCollConfig_t;

typedef struct { size_t size; unsigned int magic, version; float estimatedTime; } ncclSimInfo_t;
typedef struct { int opCnt, peer, sigIdx, ctx; } ncclWaitSignalDesc_t;

/* Defines the strong pncclX and makes ncclX a weak name of it, as in the real library: a preloaded ncclX wins. */
#define NCCL_NAMED(type, name, parameters)                                                      \
    TESTBED_API type name parameters __attribute__((weak, alias("p" #name)));                   \
    TESTBED_API type p##name parameters;                                                        \
    type p##name parameters
#define NCCL_CALL(name, parameters) NCCL_NAMED(ncclResult_t, name, parameters)

/* What the trainer calls; some of it the library calls itself through the weak name, as the real one does. */
#define NCCL_DECLARE(name, parameters) TESTBED_API ncclResult_t name parameters
NCCL_DECLARE(ncclGetUniqueId, (ncclUniqueId *));
NCCL_DECLARE(ncclCommInitRank, (ncclComm_t *, int, ncclUniqueId, int));
NCCL_DECLARE(ncclCommSplit, (ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *));
NCCL_DECLARE(ncclCommDestroy, (ncclComm_t));
NCCL_DECLARE(ncclCommGetAsyncError, (ncclComm_t, ncclResult_t *));
NCCL_DECLARE(ncclGroupStart, (void));
NCCL_DECLARE(ncclGroupEnd, (void));
NCCL_DECLARE(ncclAllReduce, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t));
NCCL_DECLARE(ncclReduceScatter, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t));
NCCL_DECLARE(ncclAllGather, (const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t));
NCCL_DECLARE(ncclBroadcast, (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
NCCL_DECLARE(ncclSend, (const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
NCCL_DECLARE(ncclRecv, (void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
TESTBED_API const char *ncclGetErrorString(ncclResult_t);

#endif
