/* The record of a call: written when it is entered, completed when it returns. */
#include "shim/nccl.h"

#define BUSY_KINDS (SHIM_COMM_KINDS - 1u)

/* What a call has to look up. */
struct numbers {
    uint64_t op;
    uint32_t p2p, of_kind;
    uint8_t generation;
};

/* One thread calls on a communicator at a time, as NCCL asks for: these are no atomic additions. */
static inline struct numbers count_operation(const struct shim_comm *comm, const struct nccl_facts *facts)
{
    struct numbers numbers = {
        .op = __atomic_load_n(&comm->ops, __ATOMIC_RELAXED) + 1,
        .of_kind = __atomic_load_n(&comm->counts[facts->kind & BUSY_KINDS], __ATOMIC_RELAXED) + 1,
        .generation = (uint8_t)__atomic_load_n(&comm->generation, __ATOMIC_RELAXED),
    };

    if (facts->kind == SHIM_SEND || facts->kind == SHIM_RECV)
        numbers.p2p = nccl_p2p_number(comm, facts->peer, facts->kind == SHIM_RECV);
    return numbers;
}

static inline void fill(struct shim_call *record, const struct nccl_facts *facts, uint32_t groups, uint64_t now)
{
    record->enter = now;
    record->leave = 0;
    record->count = facts->count;
    record->stream = facts->stream;
    record->peer = facts->peer;
    record->dtype = facts->dtype;
    record->redop = facts->redop;
    record->depth = (uint8_t)(groups < 127 ? groups : 127);
    record->result = SHIM_NO_RESULT;
    record->kind = facts->kind;
}

static inline void fill_comm(struct shim_call *record, const struct shim_comm *comm, const struct numbers *numbers)
{
    record->op_number = (uint32_t)numbers->op;
    record->p2p_number = numbers->p2p;
    record->generation = numbers->generation;
    record->comm = shim_comm_slot(comm);
}

static inline void go_inside(struct shim_comm *comm, const struct numbers *numbers, uint8_t kind, uint32_t thread, uint64_t now)
{
    __atomic_store_n(&comm->inside, thread, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->inside_kind, kind, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->last_leave, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->last_enter, now, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->ops, numbers->op, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->counts[kind & BUSY_KINDS], numbers->of_kind, __ATOMIC_RELAXED);
}

static inline void record_enter(struct shim_call *record, struct shim_comm *comm, const struct nccl_facts *facts,
                                struct shim_thread *me, uint64_t now)
{
    struct numbers numbers = {0};

    if (__builtin_expect(comm != NULL, 1))
        numbers = count_operation(comm, facts);
    fill(record, facts, me->groups, now);
    fill_comm(record, comm, &numbers);
    if (__builtin_expect(comm != NULL, 1))
        go_inside(comm, &numbers, facts->kind, me->calls.thread, now);
    shim_publish_at(&me->calls, (struct shim_record *)record);
}

/* The clock is read early: reading it waits for all memory that was asked for before, and what is asked for after it arrives while
 * NCCL asks for its own. */
void nccl_enter(struct nccl_visit *visit, const struct nccl_library *library, nccl_comm handle, const struct nccl_facts *facts)
{
    struct shim_thread *me = shim_me();
    struct shim_record *record = NULL;
    struct shim_comm *comm = NULL;
    bool is_outer = nccl_is_outer(me);

    me->inside++; /* first: what a signal handler calls in between is no call of the program's own */
    if (__builtin_expect(is_outer, 1)) {
        uint64_t now = shim_now();

        shim_cover_function(SHIM_CALLED, facts->kind);
        comm = nccl_comm_of(handle);
        record = shim_reserve_on(me, SHIM_RING_CALLS);
        if (__builtin_expect(record != NULL, 1))
            record_enter((struct shim_call *)record, comm, facts, me, now);
    }
    *visit = (struct nccl_visit){(struct shim_call *)record, comm, library, handle, SHIM_RING_CALLS};
}

void nccl_enter_rare(struct nccl_visit *visit, struct shim_comm *comm, const struct nccl_facts *facts)
{
    const struct numbers numbers = {.generation = comm != NULL ? (uint8_t)comm->generation : 0};

    *visit = (struct nccl_visit){.comm = comm, .ring_class = SHIM_RING_RARE};
    if (shim_me()->inside++ > 0)
        return;
    shim_cover_function(SHIM_CALLED, facts->kind);
    visit->record = (struct shim_call *)shim_reserve(SHIM_RING_RARE);
    if (visit->record == NULL)
        return;
    fill(visit->record, facts, shim_me()->groups, shim_now());
    fill_comm(visit->record, comm, &numbers);
    shim_publish((struct shim_record *)visit->record, SHIM_RING_RARE);
}

void nccl_leave(struct nccl_visit *visit, nccl_result result)
{
    uint64_t now;

    shim_me()->inside--;
    if (visit->record == NULL || !shim_on())
        return;
    now = shim_now();
    __atomic_store_n(&visit->record->result, (uint8_t)result, __ATOMIC_RELAXED);
    __atomic_store_n(&visit->record->leave, now, __ATOMIC_RELEASE);
    if (visit->comm == NULL || visit->ring_class != SHIM_RING_CALLS)
        return;
    __atomic_store_n(&visit->comm->last_leave, now, __ATOMIC_RELAXED);
    __atomic_store_n(&visit->comm->inside, 0, __ATOMIC_RELAXED);
    if (__builtin_expect(visit->comm->flags & SHIM_COMM_UNASKED, 0) && result == NCCL_SUCCESS && shim_me()->groups == 0)
        nccl_learn(visit->library, visit->comm, visit->handle);
}

nccl_result nccl_missing(enum shim_kind kind)
{
    shim_cover_function(SHIM_UNRESOLVED, kind);
    shim_tell(SHIM_REASON_SYMBOL_NOT_FOUND, 0, "an NCCL function was called that the NCCL of its caller does not have");
    return NCCL_INVALID_USAGE;
}
