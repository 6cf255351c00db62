/* The record of a call: written when it is entered, completed when it returns. */
#include "shim/nccl.h"

#define BUSY_KINDS (SHIM_COMM_KINDS - 1u)

static void fill(struct shim_call *record, const struct shim_comm *comm, const struct nccl_facts *facts, uint64_t now)
{
    record->enter = now;
    record->leave = 0;
    record->count = facts->count;
    record->stream = facts->stream;
    record->op_number = 0;
    record->p2p_number = 0;
    record->peer = facts->peer;
    record->dtype = facts->dtype;
    record->redop = facts->redop;
    record->depth = (uint8_t)(shim_self.groups < 127 ? shim_self.groups : 127);
    record->result = SHIM_NO_RESULT;
    record->kind = facts->kind;
    record->generation = comm != NULL ? (uint8_t)comm->generation : 0;
    record->comm = shim_comm_slot(comm);
}

/* One thread calls on a communicator at a time, as NCCL asks for: these are no atomic additions. */
static void count_operation(struct shim_comm *comm, struct shim_call *record)
{
    uint64_t number = __atomic_load_n(&comm->ops, __ATOMIC_RELAXED) + 1;
    uint32_t *kind_count = &comm->counts[record->kind & BUSY_KINDS];

    record->op_number = (uint32_t)number;
    if (record->kind == SHIM_SEND || record->kind == SHIM_RECV)
        record->p2p_number = nccl_p2p_number(comm, record->peer, record->kind == SHIM_RECV);
    __atomic_store_n(&comm->inside, shim_self.cursors[SHIM_RING_CALLS].thread, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->inside_kind, record->kind, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->last_leave, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->last_enter, record->enter, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->ops, number, __ATOMIC_RELAXED);
    __atomic_store_n(kind_count, __atomic_load_n(kind_count, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

void nccl_enter(struct nccl_visit *visit, const struct nccl_library *library, nccl_comm handle, const struct nccl_facts *facts)
{
    uint64_t now;

    visit->record = NULL;
    visit->comm = NULL;
    visit->ring_class = SHIM_RING_CALLS;
    if (!nccl_is_outer()) {
        shim_self.inside++;
        return;
    }
    shim_self.inside++;
    now = shim_now();
    shim_cover_function(SHIM_CALLED, facts->kind);
    visit->comm = handle != NULL ? nccl_comm_of(library, handle) : NULL;
    visit->record = (struct shim_call *)shim_reserve(SHIM_RING_CALLS);
    if (visit->record == NULL)
        return;
    fill(visit->record, visit->comm, facts, now);
    if (visit->comm != NULL)
        count_operation(visit->comm, visit->record);
    shim_publish((struct shim_record *)visit->record, SHIM_RING_CALLS);
}

void nccl_enter_rare(struct nccl_visit *visit, struct shim_comm *comm, const struct nccl_facts *facts)
{
    visit->comm = comm;
    visit->ring_class = SHIM_RING_RARE;
    visit->record = NULL;
    if (shim_self.inside++ > 0)
        return;
    shim_cover_function(SHIM_CALLED, facts->kind);
    visit->record = (struct shim_call *)shim_reserve(SHIM_RING_RARE);
    if (visit->record == NULL)
        return;
    fill(visit->record, comm, facts, shim_now());
    shim_publish((struct shim_record *)visit->record, SHIM_RING_RARE);
}

void nccl_leave(struct nccl_visit *visit, nccl_result result)
{
    uint64_t now;

    shim_self.inside--;
    if (visit->record == NULL || !shim_on())
        return;
    now = shim_now();
    __atomic_store_n(&visit->record->result, (uint8_t)result, __ATOMIC_RELAXED);
    __atomic_store_n(&visit->record->leave, now, __ATOMIC_RELEASE);
    if (visit->comm == NULL || visit->ring_class != SHIM_RING_CALLS)
        return;
    __atomic_store_n(&visit->comm->last_leave, now, __ATOMIC_RELAXED);
    __atomic_store_n(&visit->comm->inside, 0, __ATOMIC_RELAXED);
}

nccl_result nccl_missing(enum shim_kind kind)
{
    shim_cover_function(SHIM_UNRESOLVED, kind);
    shim_tell(SHIM_REASON_SYMBOL_NOT_FOUND, 0, "an NCCL function was called that the NCCL of its caller does not have");
    return NCCL_INVALID_USAGE;
}
