/* Communicator slots: which ncclComm_t is which communicator. */
#define _GNU_SOURCE

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring/internal.h"

static struct shim_table handles;
static uint32_t used;                           /* slots ever claimed */
static uint32_t starting_thread[SHIM_MAX_COMMS]; /* OS thread in the init call of a slot */
struct shim_counter shim_more_counters[SHIM_MAX_COMMS - SHIM_COUNTERS];
static bool all_taken;                          /* by communicators that are not over */
static uint64_t bound[SHIM_MAX_COMMS];           /* the handle of a slot; the file may have it masked */

_Static_assert(SHIM_MAX_COMMS <= SHIM_NEAR_SLOTS + 1, "a slot fits into a word of the excerpt");

static void drop_near(uint64_t handle)
{
    uint64_t word = shim_near_word(handle);

    for (uint32_t second = 0; second < 2 && word != 0; second++) {
        uint64_t *place = &shim_hot.near[shim_near_place(handle) ^ second];

        if ((*place & ~SHIM_NEAR_SLOTS) == word)
            __atomic_store_n(place, 0, __ATOMIC_RELEASE);
    }
}

/* What finds both places taken goes to the second one: the communicator that was there is found in the table, a little later. */
static void put(uint64_t handle, uint32_t slot)
{
    uint64_t word = shim_near_word(handle), *place = &shim_hot.near[shim_near_place(handle)];

    drop_near(handle);
    (void)shim_table_put(&handles, handle, slot);
    if (*place != 0)
        place = &shim_hot.near[shim_near_place(handle) ^ 1];
    if (word != 0)
        __atomic_store_n(place, word | slot, __ATOMIC_RELEASE);
}

struct shim_comm *shim_comm_far(uint64_t handle)
{
    uint32_t slot = shim_table_find(&handles, handle);

    return slot == SHIM_NOT_FOUND ? NULL : &shim_hot.comms[slot];
}

static bool is_over(const struct shim_comm *comm)
{
    uint32_t state = SHIM_LOAD(comm->state);

    return state == SHIM_COMM_DESTROYED || state == SHIM_COMM_ABORTED || state == SHIM_COMM_FAILED;
}

/* A fresh slot while there is one: a destroyed communicator is evidence too. */
static struct shim_comm *free_slot(void)
{
    struct shim_comm *oldest = NULL;

    if (used < shim_log.comm_count && used < SHIM_MAX_COMMS)
        return &shim_log.comms[used++];
    for (uint32_t each = 0; each < used; each++) {
        struct shim_comm *comm = &shim_log.comms[each];

        if (is_over(comm) && (oldest == NULL || comm->closed < oldest->closed))
            oldest = comm;
    }
    return oldest;
}

static void clear_counter(struct shim_counter *counter, uint32_t generation)
{
    uint32_t *pairs = counter->pairs;

    *counter = (struct shim_counter){.generation = generation & 0xFFu};
    if (pairs != NULL)
        munmap(pairs, SHIM_PAIRS_BYTES(pairs[0]));
}

static void clear(struct shim_comm *comm, uint32_t generation)
{
    SHIM_STORE(comm->state, SHIM_COMM_FREE);
    memset((char *)comm + sizeof comm->state, 0, sizeof *comm - sizeof comm->state);
    SHIM_STORE(comm->generation, generation);
    comm->color = comm->device = comm->nodes = SHIM_UNKNOWN;
    bound[shim_comm_slot(comm)] = 0;
    clear_counter(shim_counter_of(shim_comm_slot(comm)), generation);
}

static struct shim_comm *claim(uint64_t identity, uint64_t parent, int32_t rank, int32_t ranks)
{
    struct shim_comm *comm = free_slot();

    if (comm == NULL) {
        SHIM_ADD(shim_log.live->lost_comms, 1u);
        SHIM_STORE(all_taken, true);
        return NULL;
    }
    clear(comm, comm->generation + 1);
    comm->identity = identity;
    comm->parent = parent;
    comm->rank = rank;
    comm->ranks = ranks;
    comm->init_enter = shim_now();
    starting_thread[shim_comm_slot(comm)] = (uint32_t)syscall(SYS_gettid);
    __atomic_store_n(&comm->state, SHIM_COMM_STARTING, __ATOMIC_RELEASE);
    return comm;
}

struct shim_comm *shim_comm_claim(uint64_t identity, uint64_t parent, int32_t rank, int32_t ranks)
{
    struct shim_comm *comm;

    if (!shim_on())
        return NULL;
    shim_lock();
    comm = claim(identity, parent, rank, ranks);
    shim_unlock();
    return comm;
}

/* A handle that was closed is not taken for a new communicator. */
static bool was_closed(uint64_t handle)
{
    for (uint32_t each = 0; each < used; each++)
        if (bound[each] == handle && SHIM_LOAD(shim_log.comms[each].closed) != 0)
            return true;
    return false;
}

struct shim_comm *shim_comm_claim_unseen(uint64_t handle)
{
    struct shim_comm *comm = NULL;

    if (!shim_on() || SHIM_LOAD(all_taken))
        return NULL;
    shim_lock();
    if (!was_closed(handle))
        comm = claim(0, 0, SHIM_UNKNOWN, SHIM_UNKNOWN);
    shim_unlock();
    return comm;
}

void shim_comm_bind(struct shim_comm *comm, uint64_t handle)
{
    if (comm == NULL || !shim_on())
        return;
    shim_lock();
    bound[shim_comm_slot(comm)] = handle;
    comm->handle = shim_masked(handle);
    put(handle, shim_comm_slot(comm));
    SHIM_STORE(comm->init_leave, shim_now());
    starting_thread[shim_comm_slot(comm)] = 0;
    __atomic_store_n(&comm->state, SHIM_COMM_READY, __ATOMIC_RELEASE);
    shim_unlock();
}

void shim_comm_close(struct shim_comm *comm, enum shim_comm_state state)
{
    uint64_t handle;

    if (comm == NULL || !shim_on())
        return;
    shim_lock();
    handle = bound[shim_comm_slot(comm)];
    if (handle != 0 && shim_table_find(&handles, handle) == shim_comm_slot(comm)) {
        drop_near(handle);
        shim_table_remove(&handles, handle);
    }
    SHIM_STORE(comm->closed, shim_now());
    starting_thread[shim_comm_slot(comm)] = 0;
    __atomic_store_n(&comm->state, state, __ATOMIC_RELEASE);
    SHIM_STORE(all_taken, false);
    shim_unlock();
}

void shim_comm_name(struct shim_comm *comm, const char *name)
{
    if (comm != NULL && name != NULL)
        shim_copy_text(comm->name, sizeof comm->name, name);
}

struct shim_comm *shim_comm_starting_here(void)
{
    uint32_t thread = (uint32_t)syscall(SYS_gettid);

    for (uint32_t each = 0; shim_on() && each < used; each++)
        if (starting_thread[each] == thread)
            return &shim_log.comms[each];
    return NULL;
}

/* Of the slots in their init call with this rank and size: the one of this thread, else the only one. NCCL runs a nonblocking
 * init in a thread of its own, and two of the same shape at one time cannot be told apart. */
static struct shim_comm *starting(int32_t rank, int32_t ranks)
{
    uint32_t thread = (uint32_t)syscall(SYS_gettid), found = 0;
    struct shim_comm *only = NULL;

    for (uint32_t each = 0; each < used; each++) {
        struct shim_comm *comm = &shim_log.comms[each];

        if (comm->comm_id != 0 || comm->init_leave != 0 || SHIM_LOAD(comm->state) != SHIM_COMM_STARTING)
            continue;
        if ((comm->rank >= 0 && comm->rank != rank) || (comm->ranks >= 0 && comm->ranks != ranks))
            continue;
        if (starting_thread[each] == thread)
            return comm;
        only = comm;
        found++;
    }
    return found == 1 ? only : NULL;
}

static struct shim_comm *known(uint64_t comm_id, int32_t rank)
{
    for (uint32_t each = 0; each < used; each++) {
        struct shim_comm *comm = &shim_log.comms[each];

        if (comm_id != 0 && comm->comm_id == comm_id && comm->rank == rank && !is_over(comm))
            return comm;
    }
    return NULL;
}

static struct shim_comm *told_by_profiler(uint64_t comm_id, int32_t rank, int32_t ranks)
{
    struct shim_comm *comm = known(comm_id, rank);

    if (comm == NULL)
        comm = starting(rank, ranks);
    if (comm != NULL)
        return comm;
    comm = claim(0, 0, rank, ranks);
    if (comm == NULL)
        return NULL;
    comm->flags |= SHIM_COMM_FROM_PROFILER;
    comm->init_leave = comm->init_enter;
    starting_thread[shim_comm_slot(comm)] = 0;
    __atomic_store_n(&comm->state, SHIM_COMM_READY, __ATOMIC_RELEASE);
    return comm;
}

struct shim_comm *shim_comm_for_profiler(uint64_t comm_id, int32_t rank, int32_t ranks, int32_t nodes, const char *name)
{
    struct shim_comm *comm;

    if (!shim_on())
        return NULL;
    shim_lock();
    comm = told_by_profiler(comm_id, rank, ranks);
    if (comm != NULL) {
        comm->comm_id = comm_id;
        comm->nodes = nodes;
        comm->rank = rank;
        comm->ranks = ranks;
        shim_comm_name(comm, name);
    }
    shim_unlock();
    return comm;
}

void shim_comms_forget(void)
{
    if (used == 0)
        return;
    shim_table_clear(&handles);
    memset(shim_hot.near, 0, sizeof shim_hot.near);
    memset(starting_thread, 0, used * sizeof *starting_thread);
    memset(bound, 0, used * sizeof *bound);
    used = 0;
    all_taken = false;
}
