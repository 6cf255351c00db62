/* The communicators of a rank, each from its own id, which the group's first rank leaves in the job's folder, or by split. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "train.h"

static void publish_id(const char *path, const ncclUniqueId *id)
{
    char temporary[BED_PATH + 8];
    int file;

    snprintf(temporary, sizeof temporary, "%s.new", path);
    file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || write(file, id, sizeof *id) != sizeof *id || rename(temporary, path) != 0)
        exit(73);
    close(file);
}

static void read_id(const char *path, ncclUniqueId *id)
{
    unsigned idle = 0;
    int file;

    while ((file = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        bed_pause(&idle);
    if (read(file, id, sizeof *id) != sizeof *id)
        exit(73);
    close(file);
}

static int open_by_id(ncclComm_t *comm, const char *kind, int group, int count, int rank)
{
    char name[64], path[BED_PATH];
    ncclUniqueId id;

    snprintf(name, sizeof name, "id-%s-%d", kind, group);
    bed_path(path, name);
    if (rank == 0) {
        if (ncclGetUniqueId(&id) != ncclSuccess)
            return -1;
        publish_id(path, &id);
    } else {
        read_id(path, &id);
    }
    return ncclCommInitRank(comm, count, id, rank) == ncclSuccess ? 0 : -1;
}

static int open_one(struct trainer *trainer, ncclComm_t *comm, const char *kind, int group, int count, int rank)
{
    if (!trainer->options.split)
        return open_by_id(comm, kind, group, count, rank);
    return ncclCommSplit(trainer->world, group, rank, comm, NULL) == ncclSuccess ? 0 : -1;
}

int open_groups(struct trainer *trainer)
{
    const struct layout *at = &trainer->layout;
    const struct options *options = &trainer->options;
    int pipe = at->replica * options->tp + at->shard, data = at->stage * options->tp + at->shard;
    int tensor = at->stage * options->dp + at->replica;

    if (open_by_id(&trainer->world, "world", 0, at->world, at->rank) != 0)
        return -1;
    if (open_one(trainer, &trainer->pipe, "pipe", pipe, options->pp, at->stage) != 0)
        return -1;
    if (open_one(trainer, &trainer->data, "data", data, options->dp, at->replica) != 0)
        return -1;
    return open_one(trainer, &trainer->tensor, "tensor", tensor, options->tp, at->shard);
}

int close_groups(struct trainer *trainer)
{
    ncclComm_t comms[] = {trainer->tensor, trainer->data, trainer->pipe, trainer->world};

    for (int index = 0; index < 4; index++)
        if (comms[index] != NULL && ncclCommDestroy(comms[index]) != ncclSuccess)
            return -1;
    return 0;
}

static void *watch(void *argument)
{
    struct trainer *trainer = argument;
    ncclComm_t comms[] = {trainer->world, trainer->pipe, trainer->data, trainer->tensor};

    for (;;) {
        for (int index = 0; index < 4; index++) {
            ncclResult_t error = ncclSuccess;

            ncclCommGetAsyncError(comms[index], &error);
            if (error == ncclSuccess || error == ncclInProgress)
                continue;
            printf("rank %d: communicator %d failed: %s\n", trainer->layout.rank, index, ncclGetErrorString(error));
            fflush(stdout);
            _exit(4);
        }
        usleep(20000);
    }
    return NULL;
}

void start_watchdog(struct trainer *trainer)
{
    pthread_t thread;

    if (trainer->options.watchdog && pthread_create(&thread, NULL, watch, trainer) == 0)
        pthread_detach(thread);
}
