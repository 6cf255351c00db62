/* The main thread leaves the process to others, and the last one runs what the program does at its end: `last_thread WHO` calls NCCL
 * from the main thread, from the other one, or from both. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl_double.h"

static _Thread_local int is_ours;
static const char *who;

static void call(const char *name)
{
    ncclUniqueId id;

    is_ours = 1;
    if (strcmp(who, name) == 0 || strcmp(who, "both") == 0)
        ncclGetUniqueId(&id);
}

static void at_end(void)
{
    printf("ends in a thread of the program: %d\n", is_ours);
}

static void *work(void *how)
{
    if (how != NULL)
        usleep(300000);
    call("other");
    return NULL;
}

int main(int argc, char **argv)
{
    static int late;
    pthread_t thread;

    who = argc > 1 ? argv[1] : "both";
    atexit(at_end);
    if (pthread_create(&thread, NULL, work, argc > 2 ? &late : NULL) != 0)
        return 1;
    call("main");
    if (argc <= 2)
        pthread_join(thread, NULL);
    pthread_exit(NULL);
}
