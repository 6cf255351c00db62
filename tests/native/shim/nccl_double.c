/* A library with the symbols of libnccl, weak and strong, that does nothing but count: for linking, cost and log tests. */
#include "nccl_double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DOUBLE_VERSION
#define DOUBLE_VERSION 23203
#endif
#ifdef DOUBLE_HIDDEN
#define SHOWN __attribute__((visibility("hidden")))
#else
#define SHOWN
#endif

struct ncclComm {
    int rank, ranks, grown;
};

/* As in NCCL: pncclX is the function, ncclX a weak name for it. */
#define API(name, parameters)                                                                                                   \
    int pnccl##name parameters SHOWN;                                                                                           \
    int nccl##name parameters __attribute__((weak, alias("pnccl" #name))) SHOWN;                                                \
    int pnccl##name parameters

static long calls;

API(GetVersion, (int *version))
{
    *version = DOUBLE_VERSION;
    return 0;
}

API(GetUniqueId, (ncclUniqueId *id))
{
    memset(id, 7, sizeof *id);
    return 0;
}

API(CommUserRank, (ncclComm_t comm, int *rank))
{
    *rank = comm->rank;
    return 0;
}

API(CommCount, (ncclComm_t comm, int *count))
{
    *count = comm->ranks;
    return 0;
}

API(CommInitRank, (ncclComm_t *comm, int ranks, ncclUniqueId id, int rank))
{
    (void)id;
    *comm = calloc(1, sizeof **comm);
    (*comm)->rank = rank;
    (*comm)->ranks = ranks;
    return 0;
}

API(CommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *made, void *config))
{
    (void)config;
    *made = NULL;
    if (color < 0)
        return 0;
    *made = calloc(1, sizeof **made);
    (*made)->rank = key;
    (*made)->ranks = comm->ranks / 2;
    return 0;
}

API(CommDestroy, (ncclComm_t comm))
{
    free(comm);
    return 0;
}

API(CommAbort, (ncclComm_t comm))
{
    free(comm);
    return 0;
}

API(CommGetAsyncError, (ncclComm_t comm, int *error))
{
    *error = comm->grown;
    return 0;
}

API(AllReduce, (const void *in, void *out, size_t count, int dtype, int op, ncclComm_t comm, void *stream))
{
    (void)out, (void)count, (void)dtype, (void)op, (void)comm, (void)stream;
    calls++;
    while (in == NEVER_RETURNS)
        pause();
    return 0;
}

API(AllReduceConfig, (const void *in, void *out, size_t count, int dtype, int op, ncclComm_t comm, void *stream, void *config))
{
    (void)in, (void)out, (void)count, (void)dtype, (void)op, (void)comm, (void)stream, (void)config;
    calls++;
    return 0;
}

API(Broadcast, (const void *in, void *out, size_t count, int dtype, int root, ncclComm_t comm, void *stream))
{
    (void)in, (void)out, (void)count, (void)dtype, (void)root, (void)comm, (void)stream;
    calls++;
    return 0;
}

/* Calls by the public name, as NCCL does to this day. */
API(Bcast, (void *buffer, size_t count, int dtype, int root, ncclComm_t comm, void *stream))
{
    return ncclBroadcast(buffer, buffer, count, dtype, root, comm, stream);
}

API(GroupStart, (void))
{
    return 0;
}

API(GroupEnd, (void))
{
    return 0;
}

/* Older versions open a group of their own around each. */
API(Send, (const void *buffer, size_t count, int dtype, int peer, ncclComm_t comm, void *stream))
{
    (void)buffer, (void)count, (void)dtype, (void)peer, (void)comm, (void)stream;
    calls++;
    return ncclGroupStart() | ncclGroupEnd();
}

API(Recv, (void *buffer, size_t count, int dtype, int peer, ncclComm_t comm, void *stream))
{
    (void)buffer, (void)count, (void)dtype, (void)peer, (void)comm, (void)stream;
    calls++;
    return ncclGroupStart() | ncclGroupEnd();
}

/* What really arrived: for the test to compare. */
__attribute__((destructor)) static void tell(void)
{
    if (getenv("DOUBLE_TELLS") != NULL)
        printf("double %d calls %ld\n", DOUBLE_VERSION, calls);
}
