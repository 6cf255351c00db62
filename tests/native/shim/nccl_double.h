/* The part of the public NCCL ABI that the tests call. */
#include <stddef.h>

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

#define NEVER_RETURNS ((const void *)1) /* as the buffer of ncclAllReduce */

int ncclGetVersion(int *version);
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, void *config);
int ncclCommDestroy(ncclComm_t comm);
int ncclCommAbort(ncclComm_t comm);
int ncclCommGetAsyncError(ncclComm_t comm, int *error);
int ncclAllReduce(const void *in, void *out, size_t count, int dtype, int op, ncclComm_t comm, void *stream);
int ncclAllReduceConfig(const void *in, void *out, size_t count, int dtype, int op, ncclComm_t comm, void *stream, void *config);
int ncclBroadcast(const void *in, void *out, size_t count, int dtype, int root, ncclComm_t comm, void *stream);
int ncclBcast(void *buffer, size_t count, int dtype, int root, ncclComm_t comm, void *stream);
int ncclSend(const void *buffer, size_t count, int dtype, int peer, ncclComm_t comm, void *stream);
int ncclRecv(void *buffer, size_t count, int dtype, int peer, ncclComm_t comm, void *stream);
int ncclGroupStart(void);
int ncclGroupEnd(void);
