/* The records of calls are the journal of the communicators. Every sweep of the heartbeat writes what they say into the slots, so that
 * it is still there when newer records have overwritten them; what came after the last sweep is read from the records. */
#include "ring/internal.h"

/* Rings of calls. What the file says of them is not asked again: it may be cut, and then says nothing but zero. */
static struct shim_journal {
    struct shim_ring *ring;
    const struct shim_record *records;
    uint64_t mask;
    uint64_t seen; /* records that were looked at */
} journals[SHIM_MAX_RINGS];
static uint32_t journal_count;

/* The next record of the ring, copied; false while it is not written, or when it is being overwritten. */
static bool copy_call(const struct shim_journal *journal, uint64_t number, struct shim_call *call)
{
    const struct shim_call *record = (const struct shim_call *)&journal->records[number & journal->mask];

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
static uint64_t resume(const struct shim_journal *journal, uint64_t from)
{
    uint64_t found = __atomic_load_n(&journal->records[from & journal->mask].sequence, __ATOMIC_ACQUIRE) & ~SHIM_BUSY;

    return found > from + 1 ? found - (journal->mask + 1) / 2 : from;
}

/* The last one is read again the next time: it may be inside now and have left then. */
static void look_through(struct shim_journal *journal)
{
    struct shim_call call;
    uint64_t number = resume(journal, journal->seen), most = number + journal->mask;

    for (; number < most && copy_call(journal, number, &call); number++)
        tell_comm(&call, SHIM_LOAD(journal->ring->thread));
    if (number > SHIM_LOAD(journal->ring->head))
        SHIM_STORE(journal->ring->head, number);
    journal->seen = number > 0 ? number - 1 : 0;
}

/* Under the lock, or a slot could be given to another communicator between a read of its generation and a word about it. */
void shim_checkpoint(void)
{
    shim_lock();
    for (uint32_t each = 0; each < journal_count; each++)
        look_through(&journals[each]);
    shim_unlock();
}

void shim_journal_start(void)
{
    journal_count = 0;
    for (uint32_t each = 0; each < shim_log.ring_count && journal_count < SHIM_MAX_RINGS; each++) {
        struct shim_ring *ring = &shim_log.rings[each];

        if (ring->ring_class == SHIM_RING_CALLS && ring->records > 0)
            journals[journal_count++] = (struct shim_journal){ring, &shim_log.records[ring->first], ring->records - 1, 0};
    }
}

void shim_journal_forget(void)
{
    journal_count = 0;
}
