/* A stand-in for libnccl that makes communicators when the group ends, as NCCL does with children, and that ends the process when it
 * is asked about a handle that is not that of a ready communicator. With PLAIN_NAMES it has no pncclX. */
#include "deferred_nccl.h"

#include <stdio.h>
#include <stdlib.h>

#define MAGIC 0x636f6d6d
#define MOST 64

struct ncclComm {
    unsigned magic;
    int rank, ranks, is_ready;
};

#ifdef PLAIN_NAMES
#define API(name, parameters) int nccl##name parameters
#else
#define API(name, parameters)                                                                                                   \
    int pnccl##name parameters;                                                                                                 \
    int nccl##name parameters __attribute__((weak, alias("pnccl" #name)));                                                      \
    int pnccl##name parameters
#endif

struct job {
    ncclComm_t *where, comm;
};
static _Thread_local struct job jobs[MOST];
static _Thread_local int depth, job_count, fails;
static struct job late;
static int group_result;

void nccl_fail_groups(int result)
{
    group_result = result;
}

static ncclComm_t made(int rank, int ranks, int is_ready)
{
    ncclComm_t comm = malloc(sizeof *comm);

    *comm = (struct ncclComm){MAGIC, rank, ranks, is_ready};
    return comm;
}

static int asked(ncclComm_t comm, int value, int *answer)
{
    if (comm->magic != MAGIC || !comm->is_ready) {
        fprintf(stderr, "asked about a communicator that is not ready\n");
        abort();
    }
    *answer = value;
    return 0;
}

API(CommUserRank, (ncclComm_t comm, int *rank)) { return asked(comm, comm->rank, rank); }
API(CommCount, (ncclComm_t comm, int *count)) { return asked(comm, comm->ranks, count); }

API(GetVersion, (int *version))
{
    *version = 22000;
    return 0;
}

static int make(ncclComm_t *where, int rank, int ranks)
{
    if (depth > 0)
        jobs[job_count++] = (struct job){where, made(rank, ranks, 1)};
    else
        *where = made(rank, ranks, 1);
    return 0;
}

API(CommInitRank, (ncclComm_t *comm, int ranks, ncclUniqueId id, int rank))
{
    (void)id;
    return make(comm, rank, ranks);
}

/* With a configuration it is nonblocking: stored when ncclCommGetAsyncError of the parent is asked. */
API(CommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *where, void *config))
{
    (void)color;
    if (config == NULL)
        return make(where, key, comm->ranks / 2);
    late = (struct job){where, made(key, comm->ranks / 2, 0)};
    return 7;
}

API(CommGetAsyncError, (ncclComm_t comm, int *error))
{
    *error = comm->is_ready ? 0 : 7;
    if (late.comm != NULL) {
        *late.where = late.comm;
        late.comm = NULL;
    }
    comm->is_ready = 1;
    return 0;
}

API(CommDestroy, (ncclComm_t comm))
{
    comm->magic = 0;
    free(comm);
    return 0;
}

API(CommAbort, (ncclComm_t comm))
{
    comm->magic = 0;
    free(comm);
    return 0;
}

API(AllReduce, (const void *in, void *out, size_t count, int dtype, int op, ncclComm_t comm, void *stream))
{
    (void)in, (void)out, (void)count, (void)dtype, (void)op, (void)stream;
    return comm->magic == MAGIC ? 0 : 4;
}

API(GroupStart, (void))
{
    depth++;
    return 0;
}

API(GroupEnd, (void))
{
    if (depth == 0)
        return 5;
    if (--depth > 0)
        return 0;
    fails = group_result;
    for (int each = 0; each < job_count && fails == 0; each++)
        *jobs[each].where = jobs[each].comm;
    job_count = 0;
    return fails;
}
