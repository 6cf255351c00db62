/* The functions of the strict library that make communicators. */
#include "strict.h"

static void spoil(ncclComm_t *place)
{
    uint32_t way = strict_dice(44, 3);

    if (way == 0)
        return;
    *place = NULL;
    if (way == 2) { /* stored too early: nothing lives there */
        *place = strict_make(0, 1);
        strict_free(*place);
    }
}

static int make(enum function function, ncclComm_t parent, ncclComm_t *place, int rank, int ranks, const struct config *config)
{
    bool has_parent = function == F_CommSplit || function == F_CommShrink || (function == F_CommGrow && parent != NULL);
    struct ncclComm *comm;
    int result;

    (void)strict_enter(function, parent, (uint64_t)rank << 32 | (uint64_t)ranks << 1 | (place != NULL));
    result = strict_outcome();
    if (place == NULL || (config != NULL && config->magic != CONFIG_MAGIC))
        return strict_failed(INVALID_ARGUMENT);
    if (has_parent && strict_judge(strict_live(parent)) != SUCCESS)
        result = strict_judge(strict_live(parent));
    if (result != SUCCESS) {
        spoil(place);
        return strict_failed(result);
    }
    comm = strict_make(rank, ranks);
    comm->is_nonblocking = config != NULL && config->blocking == 0;
    if (strict_self.depth > 0)
        return strict_promise(comm, place);
    comm->state = READY;
    *place = comm;
    if (!comm->is_nonblocking)
        return SUCCESS;
    strict_start(comm);
    return IN_PROGRESS;
}

API(GetUniqueId, (ncclUniqueId *id))
{
    int result;

    (void)strict_enter(F_GetUniqueId, NULL, id != NULL);
    result = strict_outcome();
    if (id == NULL)
        return INVALID_ARGUMENT;
    if (result == SUCCESS)
        for (size_t each = 0; each < sizeof id->internal; each++)
            id->internal[each] = (char)strict_dice((uint32_t)each, 256);
    return result;
}

static int first_of(const ncclUniqueId *id)
{
    return id != NULL ? id->internal[0] : 0;
}

API(CommInitRank, (ncclComm_t *made, int ranks, ncclUniqueId id, int rank))
{
    return make(F_CommInitRank, NULL, made, rank, ranks + 0 * first_of(&id), NULL);
}

API(CommInitRankConfig, (ncclComm_t *made, int ranks, ncclUniqueId id, int rank, struct config *config))
{
    return make(F_CommInitRankConfig, NULL, made, rank, ranks + 0 * first_of(&id), config);
}

API(CommSplit, (ncclComm_t comm, int color, int rank, ncclComm_t *made, struct config *config))
{
    if (color >= 0)
        return make(F_CommSplit, comm, made, rank, 1 + color, config);
    (void)strict_enter(F_CommSplit, comm, 77);
    if (made == NULL || strict_judge(strict_live(comm)) != SUCCESS)
        return strict_failed(INVALID_ARGUMENT);
    *made = NULL;
    return SUCCESS;
}

#ifndef OLD
API(CommInitRankScalable, (ncclComm_t *made, int ranks, int rank, int color, ncclUniqueId *ids, struct config *config))
{
    return make(F_CommInitRankScalable, NULL, made, rank, ranks + 0 * (color + first_of(ids)), config);
}

API(CommShrink, (ncclComm_t comm, int *out, int ranks, ncclComm_t *made, struct config *config, int flags))
{
    return make(F_CommShrink, comm, made, out != NULL ? out[0] : flags, 8 - ranks, config);
}

API(CommGrow, (ncclComm_t comm, int ranks, const ncclUniqueId *id, int rank, ncclComm_t *made, struct config *config))
{
    return make(F_CommGrow, comm, made, rank, ranks + 0 * first_of(id), config);
}
#endif

/* A failure leaves some made and the rest as it was, or NULL. */
API(CommInitAll, (ncclComm_t *made, int ranks, const int *devices))
{
    int result, good;

    (void)strict_enter(F_CommInitAll, NULL, (uint64_t)ranks << 1 | (devices != NULL));
    result = strict_within(F_Send);
    if (result == SUCCESS)
        result = strict_outcome();
    good = result == SUCCESS ? ranks : (int)strict_dice(45, (uint32_t)ranks);
    for (int each = 0; each < ranks; each++) {
        if (each < good) {
            made[each] = strict_make(each, ranks);
            made[each]->state = READY;
        } else if (strict_dice(46, 2) == 0) {
            made[each] = NULL;
        }
    }
    return result != SUCCESS ? strict_failed(result) : SUCCESS;
}
