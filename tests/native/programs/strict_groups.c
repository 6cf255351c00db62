/* Groups of the strict library: what is promised within one, and the many ways in which one ends. */
#include "strict.h"

#include <string.h>

int strict_promise(struct ncclComm *comm, ncclComm_t *place)
{
    bool is_stored = strict_dice(20, 2) == 0;

    if (strict_self.promises == GROUP_PLACES)
        strict_complain("the program promises too much", NO_FUNCTION, comm->number);
    strict_self.promised[strict_self.promises++] = (struct promise){place, comm, false};
    if (is_stored)
        *place = comm;
    else if (strict_dice(21, 2) == 0)
        *place = NULL;
    return comm->is_nonblocking && strict_dice(22, 2) == 0 ? IN_PROGRESS : SUCCESS;
}

void strict_forget(const struct ncclComm *comm)
{
    for (uint32_t each = 0; each < strict_self.promises; each++)
        if (strict_self.promised[each].comm == comm)
            strict_self.promised[each] = (struct promise){0};
}

bool strict_holds(const void *place)
{
    for (uint32_t each = 0; each < strict_self.promises; each++)
        if (place != NULL && strict_self.promised[each].place == place)
            return true;
    return false;
}

/* The group fails: its communicators are made nevertheless, or fail, or vanish; their places hold anything at all. */
static void break_promise(struct promise promise, uint32_t number)
{
    uint32_t way = strict_dice(30 + number, 4);

    if (way == 3) { /* this one got through */
        promise.comm->state = READY;
        *promise.place = promise.comm;
        return;
    }
    if (way == 2) {
        promise.comm->state = FAILED;
        promise.comm->error = strict_error(29);
        *promise.place = promise.comm;
        return;
    }
    strict_free(promise.comm);
    if (way == 1)
        *promise.place = NULL;
}

static void keep_promise(struct promise promise, uint32_t number)
{
    struct ncclComm *comm = promise.comm;

    comm->state = READY;
    if (comm->is_nonblocking && strict_dice(100 + number, 4) != 0) {
        comm->state = STARTING;
        comm->polls = 1 + (int)strict_dice(130 + number, 3);
        comm->next = strict_dice(160 + number, 100) < strict_rules.failures ? FAILED : READY;
        comm->error = comm->next == FAILED ? strict_error(28) : SUCCESS;
    }
    *promise.place = comm;
}

static bool is_anything_starting(const struct promise *promised, uint32_t count)
{
    for (uint32_t each = 0; each < count; each++)
        if (promised[each].place != NULL && !promised[each].is_dying && strict_live(promised[each].comm) != NULL &&
            promised[each].comm->state == STARTING)
            return true;
    return false;
}

static int end_outermost(int error)
{
    struct promise promised[GROUP_PLACES];
    uint32_t count = strict_self.promises;

    memcpy(promised, strict_self.promised, sizeof promised);
    strict_self.promises = 0;
    strict_self.error = SUCCESS;
    for (uint32_t each = 0; each < count; each++) {
        if (promised[each].is_dying)
            strict_free(promised[each].comm);
        else if (promised[each].place != NULL && error != SUCCESS)
            break_promise(promised[each], each % 30);
        else if (promised[each].place != NULL)
            keep_promise(promised[each], each % 30);
    }
    return error == SUCCESS && is_anything_starting(promised, count) ? IN_PROGRESS : error;
}

/* The group is over without having ended. */
void strict_drop_group(void)
{
    strict_self.depth = 0;
    (void)end_outermost(INTERNAL_ERROR);
}

int strict_failed(int result)
{
    if (strict_self.depth == 0)
        return result;
    strict_self.error = result;
    if (strict_dice(23, 8) == 0)
        strict_drop_group();
    return result;
}

API(GroupStart, (void))
{
    enum caller caller = strict_enter(F_GroupStart, NULL, 0);
    int result = caller == BY_PROGRAM ? strict_outcome() : SUCCESS;

    if (result == SUCCESS)
        strict_self.depth++;
    return result;
}

API(GroupEnd, (void))
{
    enum caller caller = strict_enter(F_GroupEnd, NULL, 0);
    int result = caller == BY_PROGRAM ? strict_outcome() : SUCCESS;

    if (strict_self.depth == 0)
        return INVALID_USAGE;
    if (result == SUCCESS)
        result = strict_self.error;
    if (--strict_self.depth > 0)
        return result;
    return end_outermost(result);
}

#ifndef OLD
API(GroupSimulateEnd, (void *info))
{
    enum caller caller = strict_enter(F_GroupSimulateEnd, NULL, info != NULL);
    int result = caller == BY_PROGRAM ? strict_outcome() : SUCCESS;

    if (strict_self.depth == 0)
        return INVALID_USAGE;
    if (--strict_self.depth == 0)
        (void)end_outermost(INVALID_USAGE);
    return result;
}
#endif
