/* The hooked functions on a communicator that are no operations: those that end it, those that all its members must call, and the
 * one that asks for its errors. */
#include "shim/nccl.h"

static struct nccl_facts facts_of(enum shim_kind kind, uint64_t count)
{
    return (struct nccl_facts){.count = count, .peer = SHIM_UNKNOWN, .kind = (uint8_t)kind, .dtype = 255, .redop = 255};
}

static void set_state(struct shim_comm *comm, enum shim_comm_state state)
{
    if (comm != NULL && shim_on())
        __atomic_store_n(&comm->state, state, __ATOMIC_RELEASE);
}

/* The handle is let go before the call: NCCL may give the same one to another thread before it returns. */
static void begin(struct nccl_visit *visit, enum shim_kind kind, nccl_comm handle, enum shim_comm_state closing)
{
    const struct nccl_facts facts = facts_of(kind, 0);
    struct shim_comm *comm = nccl_is_outer(shim_me()) ? nccl_comm_of(handle) : NULL;

    nccl_enter_rare(visit, comm, &facts);
    if (comm != NULL && closing != SHIM_COMM_FREE)
        shim_comm_close(comm, closing);
}

/* Defines ncclNAME, which calls pncclNAME; CLOSING is the state from its entry on, AFTER the one after a good return. */
#define ENDING(NAME, KIND, PARAMETERS, ARGUMENTS, CLOSING, AFTER)                                                               \
    FORENSICS_EXPORT nccl_result nccl##NAME PARAMETERS;                                                                         \
    nccl_result nccl##NAME PARAMETERS                                                                                           \
    {                                                                                                                           \
        const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));                                      \
        struct nccl_visit visit;                                                                                                \
        nccl_result result;                                                                                                     \
                                                                                                                                \
        if (library->functions[NCCL_##NAME] == NULL)                                                                            \
            return nccl_missing(KIND);                                                                                          \
        begin(&visit, KIND, comm, CLOSING);                                                                            \
        result = ((nccl_result(*) PARAMETERS)library->functions[NCCL_##NAME])ARGUMENTS;                                         \
        nccl_leave(&visit, result);                                                                                             \
        if ((AFTER) != SHIM_COMM_FREE && (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS))                                \
            set_state(visit.comm, AFTER);                                                                                       \
        return result;                                                                                                          \
    }

ENDING(CommFinalize, SHIM_FINALIZE, (nccl_comm comm), (comm), SHIM_COMM_FREE, SHIM_COMM_FINALIZED)
ENDING(CommDestroy, SHIM_DESTROY, (nccl_comm comm), (comm), SHIM_COMM_DESTROYED, SHIM_COMM_FREE)
ENDING(CommAbort, SHIM_ABORT, (nccl_comm comm), (comm), SHIM_COMM_ABORTED, SHIM_COMM_FREE)
ENDING(CommRevoke, SHIM_REVOKE, (nccl_comm comm, int flags), (comm, flags), SHIM_COMM_FREE, SHIM_COMM_REVOKED)

#define STAYING(NAME, KIND, PARAMETERS, ARGUMENTS) ENDING(NAME, KIND, PARAMETERS, ARGUMENTS, SHIM_COMM_FREE, SHIM_COMM_FREE)
STAYING(CommSuspend, SHIM_SUSPEND, (nccl_comm comm, int flags), (comm, flags))
STAYING(CommResume, SHIM_RESUME, (nccl_comm comm), (comm))
STAYING(CommWindowRegister, SHIM_WINDOW_REGISTER, (nccl_comm comm, void *buffer, size_t size, void **window, int flags),
        (comm, buffer, size, window, flags))
STAYING(CommWindowDeregister, SHIM_WINDOW_DEREGISTER, (nccl_comm comm, void *window), (comm, window))
STAYING(DevCommCreate, SHIM_DEV_COMM_CREATE, (nccl_comm comm, const void *requirements, void *made), (comm, requirements, made))
STAYING(DevCommDestroy, SHIM_DEV_COMM_DESTROY, (nccl_comm comm, const void *made), (comm, made))

/* NCCL has taken the handle and says that the communicator is ready. */
static void hear_ready(const struct nccl_library *library, struct shim_comm *comm, nccl_comm handle)
{
    if (__atomic_load_n(&comm->state, __ATOMIC_ACQUIRE) == SHIM_COMM_STARTING) {
        __atomic_store_n(&comm->init_leave, shim_now(), __ATOMIC_RELAXED);
        set_state(comm, SHIM_COMM_READY);
    }
    if ((shim_counter_of(shim_comm_slot(comm))->generation & SHIM_COUNTER_UNASKED) && shim_self.groups == 0)
        nccl_learn(library, comm, handle);
}

static void hear_error(struct shim_comm *comm, nccl_result error)
{
    const struct nccl_facts facts = facts_of(SHIM_ASYNC_ERROR, (uint64_t)error);
    struct nccl_visit visit;

    __atomic_store_n(&comm->async_error, error, __ATOMIC_RELAXED);
    nccl_enter_rare(&visit, comm, &facts);
    nccl_leave(&visit, NCCL_SUCCESS);
}

/* Watchdogs ask all the time: only a new error, and the end of a nonblocking init, are news. */
static void hear(const struct nccl_library *library, nccl_comm handle, nccl_result error)
{
    struct shim_comm *comm = nccl_comm_of(handle);

    if (comm == NULL)
        return;
    if (error == NCCL_SUCCESS)
        hear_ready(library, comm, handle);
    else if (error != NCCL_IN_PROGRESS && __atomic_load_n(&comm->async_error, __ATOMIC_RELAXED) != error)
        hear_error(comm, error);
}

FORENSICS_EXPORT nccl_result ncclCommGetAsyncError(nccl_comm comm, nccl_result *error);
nccl_result ncclCommGetAsyncError(nccl_comm comm, nccl_result *error)
{
    typedef nccl_result (*real)(nccl_comm, nccl_result *);
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    nccl_result result;

    if (library->functions[NCCL_CommGetAsyncError] == NULL)
        return nccl_missing(SHIM_ASYNC_ERROR);
    result = NCCL_REAL(library, CommGetAsyncError, real)(comm, error);
    if (!nccl_is_outer(shim_me()))
        return result;
    shim_cover_function(SHIM_CALLED, SHIM_ASYNC_ERROR);
    if (result == NCCL_SUCCESS && error != NULL)
        hear(library, comm, *error);
    return result;
}
