/* Which slot belongs to a handle: communicators that are ready, that become ready later, and that were made out of sight. */
#define _GNU_SOURCE

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ring/internal.h"
#include "shim/nccl.h"

#define PENDING 64u

typedef nccl_result (*ask)(nccl_comm, int *);

/* Communicators whose handle NCCL stores later: at the end of the group, or when a nonblocking init is done. The place belongs to
 * the program, which may have given it back by then: it is never followed, the kernel reads it for us. */
struct pending {
    nccl_comm *where;
    struct shim_comm *comm;
    uint32_t generation;
    uint32_t thread; /* whose open group it belongs to; 0: made outside of groups, and not finished */
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

/* These functions only read the memory of a communicator. */
void nccl_learn(const struct nccl_library *library, struct shim_comm *comm, nccl_comm handle)
{
    shim_self.inside++;
    learn(library, NCCL_CommUserRank, handle, &comm->rank);
    learn(library, NCCL_CommCount, handle, &comm->ranks);
    learn(library, NCCL_CommCuDevice, handle, &comm->device);
    shim_self.inside--;
    __atomic_fetch_and(&shim_counter_of(shim_comm_slot(comm))->generation, ~SHIM_COUNTER_UNASKED, __ATOMIC_RELAXED);
}

/* NCCL is not asked about it here, though it has just given the handle: in a group that the program began out of our sight it is not
 * made before the group ends. The first call on it that NCCL takes shows that it is there (calls.c, endings.c). */
static void bind(struct shim_comm *comm, nccl_comm handle)
{
    __atomic_fetch_or(&shim_counter_of(shim_comm_slot(comm))->generation, SHIM_COUNTER_UNASKED, __ATOMIC_RELAXED);
    shim_comm_bind(comm, (uint64_t)(uintptr_t)handle);
}

static void settle(struct shim_comm *comm, nccl_comm handle, nccl_result result)
{
    bind(comm, handle);
    if (result == NCCL_SUCCESS)
        return;
    comm->flags |= SHIM_COMM_NONBLOCKING;
    __atomic_store_n(&comm->init_leave, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->state, SHIM_COMM_STARTING, __ATOMIC_RELEASE);
}

static uint32_t this_thread(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

/* In a forked child nothing is pending. Under the lock. */
static void forget_those_of_the_parent(void)
{
    if (pending_incarnation != shim_incarnation)
        pending_count = 0;
    pending_incarnation = shim_incarnation;
}

static void drop(uint32_t each)
{
    pending[each] = pending[pending_count - 1];
    __atomic_store_n(&pending_count, pending_count - 1, __ATOMIC_RELAXED);
}

/* A place that is given a second time holds what was made last. */
static void remember(struct shim_comm *comm, nccl_comm *where, uint32_t thread)
{
    shim_lock();
    forget_those_of_the_parent();
    for (uint32_t each = 0; each < pending_count; each++)
        if (pending[each].where == where)
            drop(each--);
    if (pending_count < PENDING) {
        pending[pending_count] = (struct pending){where, comm, comm->generation, thread};
        __atomic_store_n(&pending_count, pending_count + 1, __ATOMIC_RELAXED);
    }
    shim_unlock();
}

/* Outside of groups NCCL has stored the handle when it returns, or stores it later where it works in the background. */
void nccl_made(struct shim_comm *comm, nccl_comm *where, nccl_result result)
{
    if (comm == NULL || !shim_on())
        return;
    if (where == NULL || (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS))
        shim_comm_close(comm, SHIM_COMM_FAILED);
    else if (shim_self.groups > 0)
        remember(comm, where, this_thread());
    else if (*where != NULL)
        settle(comm, *where, result);
    else if (result == NCCL_IN_PROGRESS)
        remember(comm, where, 0);
    else
        shim_comm_close(comm, SHIM_COMM_FAILED);
}

/* The memory may be gone by now, or hold something else: what comes back is only ever compared, or kept as a number. */
static nccl_comm peek(nccl_comm *where)
{
    nccl_comm value = NULL;
    struct iovec to = {&value, sizeof value}, from = {where, sizeof value};
    int error = errno;
    bool is_read = process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)sizeof value;

    errno = error;
    return is_read ? value : NULL;
}

/* Takes one entry of this thread. */
static struct pending take_of_thread(uint32_t thread)
{
    struct pending taken = {0};

    shim_lock();
    forget_those_of_the_parent();
    for (uint32_t each = 0; each < pending_count && taken.comm == NULL; each++) {
        if (pending[each].thread != thread)
            continue;
        taken = pending[each];
        drop(each);
    }
    shim_unlock();
    return taken;
}

/* A thread that ended with an open group may have had this thread's number. */
void nccl_group_began(void)
{
    if (__atomic_load_n(&pending_count, __ATOMIC_RELAXED) == 0 || !shim_on())
        return;
    while (take_of_thread(this_thread()).comm != NULL) {
    }
}

static void end_of_group(const struct pending *entry, nccl_result result)
{
    nccl_comm handle;

    if (entry->comm->generation != entry->generation)
        return;
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        shim_comm_close(entry->comm, SHIM_COMM_FAILED);
        return;
    }
    handle = peek(entry->where);
    if (handle == NULL && result == NCCL_IN_PROGRESS)
        remember(entry->comm, entry->where, 0);
    else if (handle == NULL || shim_comm_find((uint64_t)(uintptr_t)handle) != NULL)
        shim_comm_close(entry->comm, SHIM_COMM_FAILED); /* the place was used for something else: what was made is not known */
    else
        bind(entry->comm, handle);
}

void nccl_group_ended(nccl_result result)
{
    struct pending taken;

    if (__atomic_load_n(&pending_count, __ATOMIC_RELAXED) == 0 || !shim_on())
        return;
    while ((taken = take_of_thread(this_thread())).comm != NULL)
        end_of_group(&taken, result);
}

/* Takes the entry whose place holds this handle, which the program is using. */
static struct shim_comm *take_of_handle(nccl_comm handle)
{
    struct pending taken = {0};

    shim_lock();
    forget_those_of_the_parent();
    for (uint32_t each = 0; each < pending_count && taken.comm == NULL; each++) {
        if (peek(pending[each].where) != handle)
            continue;
        taken = pending[each];
        drop(each);
    }
    shim_unlock();
    return taken.comm != NULL && taken.comm->generation == taken.generation ? taken.comm : NULL;
}

struct shim_comm *nccl_adopt(nccl_comm handle)
{
    struct shim_comm *comm = NULL;

    if (__atomic_load_n(&pending_count, __ATOMIC_RELAXED) != 0)
        comm = take_of_handle(handle);
    if (comm == NULL)
        comm = shim_comm_claim_unseen((uint64_t)(uintptr_t)handle);
    if (comm == NULL)
        return NULL;
    if (comm->identity == 0) {
        comm->flags |= SHIM_COMM_LOCAL_ID;
        nccl_limit_peers(comm, 0);
    }
    bind(comm, handle);
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
