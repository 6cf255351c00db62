/* What ends communicators of the strict library, what changes them, and what asks about them. */
#include <string.h>

#include "strict.h"

#ifndef VERSION
#define VERSION 23203
#endif

int strict_judge(const struct ncclComm *comm)
{
    if (comm == NULL || comm->state == INITIAL || comm->state == STARTING)
        return INVALID_ARGUMENT;
    if (comm->state == FAILED)
        return comm->error;
    return comm->state == READY ? SUCCESS : INVALID_USAGE;
}

void strict_start(struct ncclComm *comm)
{
    comm->state = STARTING;
    comm->polls = 1 + (int)strict_dice(40, 4);
    comm->next = strict_dice(41, 100) < strict_rules.failures ? FAILED : READY;
    comm->error = comm->next == FAILED ? strict_error(42) : SUCCESS;
}

/* Older versions open a group around some operations, by the public names. */
int strict_within(enum function function)
{
    int result = SUCCESS;

#ifdef INNER
    strict_self.inner++;
    if (function == F_Bcast)
        result = ncclBroadcast(NULL, NULL, 1, 0, 0, NULL, NULL);
    else if (function == F_Send || function == F_Recv || function == F_AllReduce)
        result = ncclGroupStart() | ncclGroupEnd();
    strict_self.inner--;
#else
    (void)function;
#endif
    return result;
}

/* Frees at once or, in a group, when that ends; a failure may have freed or not. */
static int finish(enum function function, ncclComm_t handle)
{
    struct ncclComm *comm;
    int result;

    (void)strict_enter(function, handle, 0);
    comm = strict_live(handle);
    result = strict_outcome();
    if (comm == NULL)
        return handle == NULL ? SUCCESS : INVALID_ARGUMENT;
    if (function == F_CommDestroy && (comm->state == INITIAL || comm->state == STARTING))
        return strict_failed(INVALID_ARGUMENT);
    if (result == SUCCESS && strict_self.depth > 0 && strict_dice(47, 2) == 0 && strict_self.promises < GROUP_PLACES) {
        strict_forget(comm);
        comm->state = FAILED;
        comm->error = INVALID_ARGUMENT;
        strict_self.promised[strict_self.promises++] = (struct promise){NULL, comm, true};
        return SUCCESS;
    }
    if (result == SUCCESS || strict_dice(48, 2) == 0)
        strict_free(comm);
    return result != SUCCESS ? strict_failed(result) : SUCCESS;
}

/* Brings a communicator into another state; a nonblocking one later. */
static int change(enum function function, ncclComm_t handle, int argument, enum state state)
{
    struct ncclComm *comm;
    int result;

    (void)strict_enter(function, handle, (uint64_t)argument);
    comm = strict_live(handle);
    result = strict_outcome();
    if (strict_judge(comm) != SUCCESS)
        result = strict_judge(comm);
    if (result != SUCCESS)
        return strict_failed(result);
    comm->state = state;
    if (!comm->is_nonblocking || strict_self.depth > 0)
        return SUCCESS;
    strict_start(comm);
    comm->next = state;
    return IN_PROGRESS;
}

API(CommFinalize, (ncclComm_t comm))
{
    return change(F_CommFinalize, comm, 0, FINALIZED);
}

API(CommDestroy, (ncclComm_t comm))
{
    return finish(F_CommDestroy, comm);
}

API(CommAbort, (ncclComm_t comm))
{
    return finish(F_CommAbort, comm);
}

API(CommGetAsyncError, (ncclComm_t handle, int *value))
{
    struct ncclComm *comm;
    int result;

    (void)strict_enter(F_CommGetAsyncError, handle, value != NULL);
    comm = strict_live(handle);
    result = strict_outcome();
    if (comm == NULL || value == NULL)
        return INVALID_ARGUMENT;
    if (result != SUCCESS)
        return result;
    if (comm->state == STARTING && --comm->polls <= 0)
        comm->state = comm->next;
    *value = comm->state == STARTING || comm->state == INITIAL ? IN_PROGRESS : comm->state == FAILED ? comm->error : SUCCESS;
    return SUCCESS;
}

#ifndef OLD
API(CommRevoke, (ncclComm_t comm, int op))
{
    return change(F_CommRevoke, comm, op, REVOKED);
}

API(CommSuspend, (ncclComm_t comm, int op))
{
    return change(F_CommSuspend, comm, op, READY);
}

API(CommResume, (ncclComm_t comm))
{
    return change(F_CommResume, comm, 0, READY);
}
#endif

static int tell(enum function function, ncclComm_t handle, size_t answer, int *value)
{
    const struct ncclComm *comm;

    (void)strict_enter(function, handle, value != NULL);
    comm = strict_live(handle);
    if (comm == NULL || value == NULL)
        return INVALID_ARGUMENT;
    if (strict_judge(comm) == INVALID_ARGUMENT)
        return INVALID_ARGUMENT;
    memcpy(value, (const char *)comm + answer, sizeof *value);
    return SUCCESS;
}

API(CommUserRank, (ncclComm_t comm, int *value))
{
    return tell(F_CommUserRank, comm, offsetof(struct ncclComm, rank), value);
}

API(CommCount, (ncclComm_t comm, int *value))
{
    return tell(F_CommCount, comm, offsetof(struct ncclComm, ranks), value);
}

API(CommCuDevice, (ncclComm_t comm, int *value))
{
    return tell(F_CommCuDevice, comm, offsetof(struct ncclComm, device), value);
}

API(GetVersion, (int *value))
{
    (void)strict_enter(F_GetVersion, NULL, value != NULL);
    if (value == NULL)
        return INVALID_ARGUMENT;
    *value = VERSION;
    return SUCCESS;
}

#define BIT(name, parameters, arguments) | 1ull << F_##name
uint64_t strict_functions(void)
{
    return 0 FUNCTIONS_OLD(BIT)
#ifndef OLD
        FUNCTIONS_NEW(BIT)
#endif
        ;
}
