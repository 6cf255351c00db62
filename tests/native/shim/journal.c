/* Calls on one communicator, then far more on another than a ring has places; killed while a thread is inside a call: `journal ROUNDS`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "nccl_double.h"

static ncclComm_t stuck;

static void *stay_inside(void *nothing)
{
    ncclAllReduce(NEVER_RETURNS, NULL, 77, 7, 0, stuck, NULL);
    return nothing;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 3;
    ncclComm_t quiet, busy;
    ncclUniqueId id;
    pthread_t thread;

    ncclGetUniqueId(&id);
    ncclCommInitRank(&quiet, 4, id, 1);
    ncclCommInitRank(&busy, 2, id, 1);
    ncclCommInitRank(&stuck, 8, id, 1);
    for (int each = 0; each < 5; each++)
        ncclAllReduce(NULL, NULL, 1, 7, 0, quiet, NULL);
    pthread_create(&thread, NULL, stay_inside, NULL);
    for (long round = 0; round < rounds; round++) {
        usleep(400000);
        for (int each = 0; each < 1500; each++)
            ncclAllReduce(NULL, NULL, 2, 7, 0, busy, NULL);
    }
    kill(getpid(), SIGKILL);
    return 0;
}
