/* Another object that stands in front of NCCL: it counts the calls that it sees and hands them on as such objects do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "nccl_double.h"

static long seen;

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (found == NULL) {
        fprintf(stderr, "nothing behind %s\n", name);
        exit(3);
    }
    return found;
}

int ncclAllReduce(const void *in, void *out, size_t count, int dtype, int op, ncclComm_t comm, void *stream)
{
    seen++;
    return ((int (*)(const void *, void *, size_t, int, int, ncclComm_t, void *))next("ncclAllReduce"))(in, out, count, dtype, op,
                                                                                                        comm, stream);
}

int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    seen++;
    return ((int (*)(ncclComm_t *, int, ncclUniqueId, int))next("ncclCommInitRank"))(comm, ranks, id, rank);
}

int ncclCommDestroy(ncclComm_t comm)
{
    seen++;
    return ((int (*)(ncclComm_t))next("ncclCommDestroy"))(comm);
}

__attribute__((destructor)) static void tell(void)
{
    printf("interposer saw %ld\n", seen);
}
