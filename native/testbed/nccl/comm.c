/* The life of a communicator. */
#define _GNU_SOURCE

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "comm.h"
#include "profiler.h"
#include "pxn.h"

static int count_nodes(const struct ncclComm *comm)
{
    int nodes = 0;

    for (int rank = 0; rank < comm->count; rank++) {
        int seen = 0;

        for (int other = 0; other < rank; other++)
            seen |= comm->hosts[other] == comm->hosts[rank];
        nodes += !seen;
    }
    return nodes;
}

static ncclResult_t open_comm(struct ncclComm *comm)
{
    struct meet_word own = {.host = bed_host()}, all[BED_RANKS];
    ncclResult_t result = meet(comm->id, comm->rank, comm->count, &own, all, &comm->aborted);

    for (int rank = 0; rank < comm->count && result == ncclSuccess; rank++)
        comm->hosts[rank] = all[rank].host;
    comm->nodes = count_nodes(comm);
    if (result == ncclSuccess && !pxn_is_on())
        result = links_of_ring(comm);
    if (result == ncclSuccess) {
        profiler_init(comm);
        result = proxy_start(comm);
    }
    if (result == ncclSuccess && pxn_is_on()) /* peers open the links, and this rank some of theirs */
        result = links_of_ring(comm);
    atomic_store(&comm->error, result);
    atomic_store(&comm->opening, 0);
    return result;
}

static void *open_in_background(void *comm)
{
    open_comm(comm);
    return NULL;
}

static struct ncclComm *new_comm(uint64_t id, int count, int rank, const ncclConfig_t *config)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    long channels = bed_number("TESTBED_CHANNELS", 2);

    if (comm == NULL)
        return NULL;
    comm->id = id;
    comm->count = count;
    comm->rank = rank;
    comm->device = (int)bed_number("LOCAL_RANK", 0);
    comm->channels = channels < 1 ? 1 : channels > MAX_CHANNELS ? MAX_CHANNELS : (int)channels;
    comm->opening = 1;
    comm->links = calloc((size_t)(2 * MAX_CHANNELS * count * 2), sizeof *comm->links);
    pthread_mutex_init(&comm->lock, NULL);
    if (config != NULL && config->size >= sizeof *config && config->commName != NULL)
        snprintf(comm->name, sizeof comm->name, "%s", config->commName);
    return comm;
}

static ncclResult_t create(ncclComm_t *out, uint64_t id, int count, int rank, const ncclConfig_t *config)
{
    struct ncclComm *comm;
    pthread_t thread;

    if (out == NULL || count < 1 || count > BED_RANKS || rank < 0 || rank >= count)
        return ncclInvalidArgument;
    comm = new_comm(id, count, rank, config);
    if (comm == NULL)
        return ncclSystemError;
    *out = comm;
    if (config == NULL || config->blocking != 0)
        return open_comm(comm);
    if (pthread_create(&thread, NULL, open_in_background, comm) != 0)
        return ncclSystemError;
    pthread_detach(thread);
    return ncclInProgress;
}

NCCL_CALL(ncclGetUniqueId, (ncclUniqueId * id))
{
    if (id == NULL)
        return ncclInvalidArgument;
    return getrandom(id->internal, sizeof id->internal, 0) == sizeof id->internal ? ncclSuccess : ncclSystemError;
}

NCCL_CALL(ncclCommInitRankConfig, (ncclComm_t * comm, int count, ncclUniqueId id, int rank, ncclConfig_t *config))
{
    return create(comm, bed_mix_bytes(0, &id, sizeof id), count, rank, config);
}

NCCL_CALL(ncclCommInitRank, (ncclComm_t * comm, int count, ncclUniqueId id, int rank))
{
    return create(comm, bed_mix_bytes(0, &id, sizeof id), count, rank, NULL);
}

NCCL_CALL(ncclCommInitRankScalable, (ncclComm_t * comm, int count, int rank, int ids, ncclUniqueId *id, ncclConfig_t *config))
{
    if (ids < 1 || id == NULL)
        return ncclInvalidArgument;
    return create(comm, bed_mix_bytes((uint64_t)ids, id, (size_t)ids * sizeof *id), count, rank, config);
}

struct one_of_all { ncclComm_t *comm; uint64_t id; int count, rank; ncclResult_t result; };

static void *create_one(void *argument)
{
    struct one_of_all *one = argument;

    one->result = create(one->comm, one->id, one->count, one->rank, NULL);
    return NULL;
}

NCCL_CALL(ncclCommInitAll, (ncclComm_t * comms, int count, const int *devices))
{
    struct one_of_all ones[BED_RANKS];
    pthread_t threads[BED_RANKS];
    ncclResult_t result = ncclSuccess;
    ncclUniqueId id;

    if (comms == NULL || count < 1 || count > BED_RANKS || pncclGetUniqueId(&id) != ncclSuccess)
        return ncclInvalidArgument;
    for (int rank = 0; rank < count; rank++) {
        ones[rank] = (struct one_of_all){&comms[rank], bed_mix_bytes(0, &id, sizeof id), count, rank, ncclSystemError};
        pthread_create(&threads[rank], NULL, create_one, &ones[rank]);
    }
    for (int rank = 0; rank < count; rank++) {
        pthread_join(threads[rank], NULL);
        result = ones[rank].result != ncclSuccess ? ones[rank].result : result;
        if (ones[rank].result == ncclSuccess)
            comms[rank]->device = devices != NULL ? devices[rank] : rank;
    }
    return result;
}

static int comes_before(const struct meet_word *words, int one, int other)
{
    return words[one].key < words[other].key || (words[one].key == words[other].key && one < other);
}

NCCL_CALL(ncclCommSplit, (ncclComm_t parent, int color, int key, ncclComm_t *comm, ncclConfig_t *config))
{
    struct meet_word own = {.color = color, .key = key}, all[BED_RANKS];
    int count = 0, rank = 0;
    uint64_t about;
    ncclResult_t result;

    if (parent == NULL || comm == NULL)
        return ncclInvalidArgument;
    *comm = NULL;
    about = bed_mix(bed_mix(parent->id, 0x5711), ++parent->splits);
    result = meet(about, parent->rank, parent->count, &own, all, &parent->aborted);
    if (result != ncclSuccess || color == NCCL_SPLIT_NOCOLOR)
        return result;
    for (int other = 0; other < parent->count; other++) {
        count += all[other].color == color;
        rank += all[other].color == color && comes_before(all, other, parent->rank);
    }
    return create(comm, bed_mix(about, (uint64_t)color + 1), count, rank, config);
}

NCCL_CALL(ncclCommShrink, (ncclComm_t parent, int *excluded, int excludes, ncclComm_t *comm, ncclConfig_t *config, int flags))
{
    uint64_t about;
    int rank, below = 0;

    if (parent == NULL || comm == NULL || excludes < 1 || excludes >= parent->count)
        return ncclInvalidArgument;
    if (flags & NCCL_SHRINK_ABORT)
        atomic_store(&parent->aborted, 1);
    about = bed_mix(bed_mix(parent->id, 0x5712), ++parent->splits);
    rank = parent->rank;
    for (int index = 0; index < excludes; index++) {
        about = bed_mix(about, (uint64_t)excluded[index]);
        if (excluded[index] == parent->rank)
            return ncclInvalidUsage;
        below += excluded[index] < parent->rank;
    }
    return create(comm, about, parent->count - excludes, rank - below, config);
}

NCCL_CALL(ncclCommGrow, (ncclComm_t parent, int count, const ncclUniqueId *id, int rank, ncclComm_t *comm,
    ncclConfig_t *config))
{
    (void)parent, (void)count, (void)id, (void)rank, (void)comm, (void)config;
    return ncclInvalidUsage; /* not modelled */
}

static int is_drained(struct ncclComm *comm)
{
    int broken = atomic_load(&comm->error) != ncclSuccess;

    return atomic_load(&comm->works_left) == 0 && ((atomic_load(&comm->proxy.left) == 0 && pxn_is_drained(comm)) || broken);
}

NCCL_CALL(ncclCommFinalize, (ncclComm_t comm))
{
    unsigned idle = 0;

    if (comm == NULL)
        return ncclInvalidArgument;
    while (!atomic_load(&comm->aborted) && (atomic_load(&comm->opening) || !is_drained(comm)))
        bed_pause(&idle);
    return ncclSuccess;
}

/* Works that a stalled stream still holds point at the communicator: then its memory is left to the end of the process. */
static ncclResult_t end(ncclComm_t comm)
{
    uint64_t limit = bed_now_us() + 1000000;
    unsigned idle = 0;

    proxy_stop(comm);
    while (atomic_load(&comm->works_left) > 0 && bed_now_us() < limit)
        bed_pause(&idle);
    profiler_finalize(comm);
    if (atomic_load(&comm->works_left) > 0 || atomic_load(&comm->opening))
        return ncclSuccess;
    links_close(comm);
    pxn_close(comm);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
    return ncclSuccess;
}

NCCL_CALL(ncclCommDestroy, (ncclComm_t comm))
{
    if (comm == NULL)
        return ncclSuccess;
    pncclCommFinalize(comm);
    return end(comm);
}

NCCL_CALL(ncclCommAbort, (ncclComm_t comm))
{
    if (comm == NULL)
        return ncclSuccess;
    atomic_store(&comm->aborted, 1);
    return end(comm);
}

NCCL_CALL(ncclCommRevoke, (ncclComm_t comm, int flags))
{
    if (comm == NULL || flags != 0)
        return ncclInvalidArgument;
    atomic_store(&comm->aborted, 1);
    return ncclSuccess;
}

NCCL_CALL(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))
{
    if (comm == NULL || error == NULL)
        return ncclInvalidArgument;
    *error = atomic_load(&comm->opening) ? ncclInProgress : (ncclResult_t)atomic_load(&comm->error);
    return ncclSuccess;
}
