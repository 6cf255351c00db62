/* The records of calls are the journal of the communicators. Every look of the heartbeat writes what they say into the slots, so that
 * it is still there when newer records have overwritten them; what came after the last look is read from the records. */
#include <string.h>

#include "ring/internal.h"

static uint64_t seen[SHIM_MAX_RINGS]; /* records of each ring that were looked at */

/* The next record of the ring, copied; false while it is not written, or when it is being overwritten. */
static bool copy_call(const struct shim_ring *ring, uint64_t number, struct shim_call *call)
{
    const struct shim_call *record = (const struct shim_call *)&shim_log.records[ring->first + (number & (ring->records - 1))];

    if (__atomic_load_n(&record->sequence, __ATOMIC_ACQUIRE) != number + 1)
        return false;
    call->enter = SHIM_LOAD(record->enter);
    call->leave = SHIM_LOAD(record->leave);
    call->op_number = SHIM_LOAD(record->op_number);
    call->kind = SHIM_LOAD(record->kind);
    call->generation = SHIM_LOAD(record->generation);
    call->comm = SHIM_LOAD(record->comm);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return SHIM_LOAD(record->sequence) == number + 1;
}

static void tell_comm(const struct shim_call *call, uint32_t thread)
{
    struct shim_comm *comm = &shim_log.comms[call->comm];

    if (call->kind > SHIM_LAST_OPERATION || call->comm >= shim_log.comm_count || (uint8_t)SHIM_LOAD(comm->generation) != call->generation)
        return;
    if (call->op_number < SHIM_LOAD(comm->ops))
        return; /* of another thread's ring, and older */
    SHIM_STORE(comm->ops, call->op_number);
    SHIM_STORE(comm->last_enter, call->enter);
    SHIM_STORE(comm->last_leave, call->leave);
    SHIM_STORE(comm->inside, call->leave == 0 ? thread : 0);
    SHIM_STORE(comm->inside_kind, call->kind);
}

/* The first record that may still be there: newer ones are numbered on from it. */
static uint64_t resume(const struct shim_ring *ring, uint64_t from)
{
    const struct shim_record *place = &shim_log.records[ring->first + (from & (ring->records - 1))];
    uint64_t found = __atomic_load_n(&place->sequence, __ATOMIC_ACQUIRE) & ~SHIM_BUSY;

    return found > from + 1 ? found - ring->records / 2 : from;
}

/* The last one is looked at again the next time: it may be inside now and have left then. */
static void look_through(struct shim_ring *ring, uint64_t *from)
{
    struct shim_call call;
    uint64_t number = resume(ring, SHIM_LOAD(*from));

    for (uint64_t most = number + ring->records; number < most && copy_call(ring, number, &call); number++)
        tell_comm(&call, SHIM_LOAD(ring->thread));
    if (number > SHIM_LOAD(ring->head))
        SHIM_STORE(ring->head, number);
    SHIM_STORE(*from, number > 0 ? number - 1 : 0);
}

void shim_checkpoint(void)
{
    for (uint32_t each = 0; each < shim_log.ring_count && each < SHIM_MAX_RINGS; each++)
        if (shim_log.rings[each].ring_class == SHIM_RING_CALLS)
            look_through(&shim_log.rings[each], &seen[each]);
}

void shim_journal_forget(void)
{
    memset(seen, 0, sizeof seen);
}
