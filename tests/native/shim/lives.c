/* What a process may do besides training: `lives fork|exec|threads|idle|kill`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl_double.h"

static ncclComm_t comm;

static void join(int rank)
{
    ncclUniqueId id;

    ncclGetUniqueId(&id);
    ncclCommInitRank(&comm, 64, id, rank);
}

static void *call_once(void *number)
{
    ncclAllReduce(0, 0, (size_t)number, 7, 0, comm, 0);
    return NULL;
}

/* More threads than rings, one after the other and then together. */
static void many_threads(void)
{
    pthread_t threads[100];

    for (size_t each = 0; each < 100; each++) {
        pthread_create(&threads[0], NULL, call_once, (void *)each);
        pthread_join(threads[0], NULL);
    }
    call_once((void *)1000);
}

/* A data worker: forked from a job that records, it neither writes in the parent's log nor dies. */
static int fork_and_call(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        ncclAllReduce(0, 0, 77, 7, 0, comm, 0); /* adopts the parent's handle */
        join(9);
        ncclAllReduce(0, 0, 78, 7, 0, comm, 0);
        exit(0);
    }
    ncclAllReduce(0, 0, 2, 7, 0, comm, 0);
    waitpid(child, &status, 0);
    return status;
}

int main(int argc, char **argv)
{
    const char *life = argc > 1 ? argv[1] : "idle";

    if (strcmp(life, "idle") == 0)
        return 0;
    join(5);
    ncclAllReduce(0, 0, 1, 7, 0, comm, 0);
    if (strcmp(life, "fork") == 0)
        return fork_and_call();
    if (strcmp(life, "exec") == 0)
        execl(argv[0], argv[0], "after", (char *)NULL);
    if (strcmp(life, "threads") == 0)
        many_threads();
    if (strcmp(life, "kill") == 0)
        raise(SIGKILL);
    return 0;
}
