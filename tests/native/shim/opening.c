/* Runs a job of another library: `opening FILE local|deepbind` calls its run(); `opening FILE handle` is a job by itself that
 * finds each function of NCCL by dlsym on a handle. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "nccl_double.h"

static int by_handle(void *handle)
{
    int (*unique_id)(ncclUniqueId *) = (int (*)(ncclUniqueId *))dlsym(handle, "ncclGetUniqueId");
    int (*init)(ncclComm_t *, int, ncclUniqueId, int) =
        (int (*)(ncclComm_t *, int, ncclUniqueId, int))dlsym(handle, "ncclCommInitRank");
    int (*all_reduce)(const void *, void *, size_t, int, int, ncclComm_t, void *) =
        (int (*)(const void *, void *, size_t, int, int, ncclComm_t, void *))dlsym(handle, "ncclAllReduce");
    ncclUniqueId id;
    ncclComm_t comm;

    return unique_id(&id) | init(&comm, 2, id, 0) | all_reduce(0, 0, 1, 7, 0, comm, 0);
}

int main(int argc, char **argv)
{
    int flags = RTLD_NOW | RTLD_LOCAL | (argc > 2 && strcmp(argv[2], "deepbind") == 0 ? RTLD_DEEPBIND : 0);
    void *handle = dlopen(argv[1], flags);
    int (*run)(int);

    if (handle == NULL) {
        fputs(dlerror(), stderr);
        return 1;
    }
    if (strcmp(argv[2], "handle") == 0)
        return by_handle(handle);
    run = (int (*)(int))dlsym(handle, "run");
    return run(5);
}
