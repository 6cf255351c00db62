/* Which slot belongs to a handle: communicators that are ready, that become ready later, and that were made out of sight. */
#define _GNU_SOURCE

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ring/internal.h"
#include "shim/nccl.h"

#define PENDING 64u

typedef nccl_result (*ask)(nccl_comm, int *);

/* Communicators whose handle NCCL stores later: at the end of the group, or when a nonblocking init is done. */
struct pending {
    nccl_comm *where;
    struct shim_comm *comm;
    uint32_t generation;
    bool in_group; /* NCCL stores it when the group ends, so that the place is there until then */
};

static struct pending pending[PENDING];
static uint32_t pending_count;
static uint32_t pending_incarnation;

static void learn(const struct nccl_library *library, int function, nccl_comm handle, int32_t *value)
{
    int answer = 0;

    if (*value >= 0 || library->functions[function] == NULL)
        return;
    if (((ask)library->functions[function])(handle, &answer) == NCCL_SUCCESS)
        *value = answer;
}

/* What NCCL itself says of the communicator; these functions only read its memory. */
static void bind(const struct nccl_library *library, struct shim_comm *comm, nccl_comm handle)
{
    shim_self.inside++;
    learn(library, NCCL_CommUserRank, handle, &comm->rank);
    learn(library, NCCL_CommCount, handle, &comm->ranks);
    learn(library, NCCL_CommCuDevice, handle, &comm->device);
    shim_self.inside--;
    shim_comm_bind(comm, (uint64_t)(uintptr_t)handle);
}

static void settle(const struct nccl_library *library, struct shim_comm *comm, nccl_comm handle, nccl_result result)
{
    bind(library, comm, handle);
    if (result != NCCL_IN_PROGRESS)
        return;
    comm->flags |= SHIM_COMM_NONBLOCKING;
    __atomic_store_n(&comm->init_leave, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->state, SHIM_COMM_STARTING, __ATOMIC_RELEASE);
}

static void remember(struct shim_comm *comm, nccl_comm *where)
{
    shim_lock();
    if (pending_incarnation != shim_incarnation)
        pending_count = 0;
    pending_incarnation = shim_incarnation;
    if (pending_count < PENDING)
        pending[pending_count++] = (struct pending){where, comm, comm->generation, shim_self.groups > 0};
    shim_unlock();
}

void nccl_made(const struct nccl_library *library, struct shim_comm *comm, nccl_comm *where, nccl_result result)
{
    if (comm == NULL || !shim_on())
        return;
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        shim_comm_close(comm, SHIM_COMM_FAILED);
        return;
    }
    if (where != NULL && *where != NULL && shim_self.groups == 0)
        settle(library, comm, *where, result);
    else if (where != NULL)
        remember(comm, where);
}

/* The memory may be gone by now: the kernel reads it for us and says so. */
static nccl_comm peek(nccl_comm *where, bool is_there)
{
    nccl_comm value = NULL;
    struct iovec to = {&value, sizeof value}, from = {where, sizeof value};

    if (is_there)
        return *where;
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)sizeof value ? value : NULL;
}

/* Takes one entry whose handle is there now (and is `wanted`, unless that is NULL). */
static struct pending take(nccl_comm wanted, nccl_comm *found)
{
    struct pending taken = {0};

    shim_lock();
    for (uint32_t each = 0; pending_incarnation == shim_incarnation && each < pending_count; each++) {
        *found = peek(pending[each].where, wanted == NULL && pending[each].in_group);
        if (*found == NULL || (wanted != NULL && *found != wanted))
            continue;
        taken = pending[each];
        pending[each] = pending[--pending_count];
        break;
    }
    shim_unlock();
    return taken;
}

void nccl_bind_pending(const struct nccl_library *library)
{
    nccl_comm handle = NULL;
    struct pending taken;

    if (__atomic_load_n(&pending_count, __ATOMIC_RELAXED) == 0 || !shim_on())
        return;
    while ((taken = take(NULL, &handle)).comm != NULL)
        if (taken.comm->generation == taken.generation)
            bind(library, taken.comm, handle);
}

/* A handle that was closed is not taken for a new communicator: its memory is gone. */
static bool was_closed(uint64_t handle)
{
    for (uint32_t each = 0; each < shim_log.comm_count; each++)
        if (shim_log.comms[each].handle == handle && __atomic_load_n(&shim_log.comms[each].closed, __ATOMIC_RELAXED) != 0)
            return true;
    return false;
}

struct shim_comm *nccl_adopt(const struct nccl_library *library, nccl_comm handle)
{
    nccl_comm found = NULL;
    struct pending taken = {0};
    struct shim_comm *comm;

    if (__atomic_load_n(&pending_count, __ATOMIC_RELAXED) != 0)
        taken = take(handle, &found);
    if (taken.comm == NULL && was_closed((uint64_t)(uintptr_t)handle))
        return NULL;
    comm = taken.comm != NULL && taken.comm->generation == taken.generation
               ? taken.comm
               : shim_comm_claim(0, 0, SHIM_UNKNOWN, SHIM_UNKNOWN);
    if (comm == NULL)
        return NULL;
    if (comm->identity == 0)
        comm->flags |= SHIM_COMM_LOCAL_ID;
    bind(library, comm, handle);
    return comm;
}

/* ncclConfig_t since 2.27 (src/nccl.h.in): size, magic, version, four ints, netName, two ints, commName. */
struct config {
    size_t size;
    uint32_t magic;
    uint32_t version;
    int32_t ints[4];
    const char *net;
    int32_t more[2];
    const char *comm_name;
};

void nccl_name(struct shim_comm *comm, const void *configuration)
{
    const struct config *config = configuration;

    if (comm == NULL || config == NULL || config->magic != 0xcafebeefu)
        return;
    if (config->version >= 22700 && config->size >= sizeof *config)
        shim_comm_name(comm, config->comm_name);
}
