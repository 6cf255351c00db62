/* The record of a call: written when it is entered, completed when it returns. */
#include "ring/mask.h"
#include "shim/nccl.h"

/* What a call has to look up. */
struct numbers {
    uint32_t op, p2p;
    uint8_t generation;
};

/* One thread calls on a communicator at a time, as NCCL asks for: these are no atomic additions. */
static inline struct numbers count_operation(struct shim_counter *counter, uint32_t slot, const struct nccl_facts *facts)
{
    struct numbers numbers = {
        .op = __atomic_load_n(&counter->ops, __ATOMIC_RELAXED) + 1,
        .generation = (uint8_t)__atomic_load_n(&counter->generation, __ATOMIC_RELAXED),
    };

    __atomic_store_n(&counter->ops, numbers.op, __ATOMIC_RELAXED);
    if (facts->kind == SHIM_SEND || facts->kind == SHIM_RECV)
        numbers.p2p = nccl_p2p_number(counter, slot, facts->peer, facts->kind == SHIM_RECV);
    return numbers;
}

static inline void fill(struct shim_call *record, const struct nccl_facts *facts, uint32_t groups, uint64_t now)
{
    record->enter = now;
    record->leave = 0;
    record->count = facts->count;
    record->stream = shim_masked(facts->stream);
    record->peer = facts->peer;
    record->dtype = facts->dtype;
    record->redop = facts->redop;
    record->depth = (uint8_t)(groups < 127 ? groups : 127);
    record->result = SHIM_NO_RESULT;
    record->kind = facts->kind;
}

static inline void fill_comm(struct shim_call *record, uint32_t slot, const struct numbers *numbers)
{
    record->op_number = numbers->op;
    record->p2p_number = numbers->p2p;
    record->generation = numbers->generation;
    record->comm = (uint16_t)slot;
}

static inline void record_enter(struct shim_call *record, uint32_t slot, const struct nccl_facts *facts, struct shim_thread *me,
                                uint64_t now)
{
    struct numbers numbers = {0};

    if (__builtin_expect(slot != SHIM_NO_COMM, 1))
        numbers = count_operation(shim_counter_of(slot), slot, facts);
    fill(record, facts, me->groups, now);
    fill_comm(record, slot, &numbers);
    shim_publish_call(me, (struct shim_record *)record);
}

/* The clock is read early: reading it waits for all memory that was asked for before, and what is asked for after it arrives while
 * NCCL asks for its own. */
void nccl_enter(struct nccl_visit *visit, const struct nccl_library *library, nccl_comm handle, const struct nccl_facts *facts)
{
    struct shim_thread *me = shim_me();
    struct shim_record *record = NULL;
    struct shim_comm *comm = NULL;
    uint32_t slot = SHIM_NO_COMM;
    bool is_outer = nccl_is_outer(me);

    me->inside++; /* first: what a signal handler calls in between is no call of the program's own */
    if (__builtin_expect(is_outer, 1)) {
        uint64_t now = shim_now();

        shim_cover_function(SHIM_CALLED, facts->kind);
        comm = nccl_comm_of(handle);
        slot = shim_comm_slot(comm);
        record = shim_reserve_on(me, SHIM_RING_CALLS);
        if (__builtin_expect(record != NULL, 1))
            record_enter((struct shim_call *)record, slot, facts, me, now);
    }
    *visit = (struct nccl_visit){(struct shim_call *)record, comm, library, handle,
                                  __atomic_load_n(&shim_hot.sweeps, __ATOMIC_RELAXED), slot};
}

void nccl_enter_rare(struct nccl_visit *visit, struct shim_comm *comm, const struct nccl_facts *facts)
{
    const struct numbers numbers = {.generation = comm != NULL ? (uint8_t)comm->generation : 0};

    *visit = (struct nccl_visit){.comm = comm, .slot = SHIM_NO_COMM};
    if (shim_me()->inside++ > 0)
        return;
    shim_cover_function(SHIM_CALLED, facts->kind);
    visit->record = (struct shim_call *)shim_reserve(SHIM_RING_RARE);
    if (visit->record == NULL)
        return;
    fill(visit->record, facts, shim_me()->groups, shim_now());
    fill_comm(visit->record, shim_comm_slot(comm), &numbers);
    shim_publish((struct shim_record *)visit->record, SHIM_RING_RARE);
}

/* The operation was taken by NCCL: its handle is that of a ready communicator. */
static inline void learn_once(const struct nccl_visit *visit, nccl_result result)
{
    if (visit->slot == SHIM_NO_COMM || (shim_counter_of(visit->slot)->generation & SHIM_COUNTER_UNASKED) == 0)
        return;
    if (result == NCCL_SUCCESS && shim_me()->groups == 0)
        nccl_learn(visit->library, visit->comm, visit->handle);
}

/* Reading the clock is the dearest part of a call, and no rule needs to know when a short one returned: that it did is enough. A call
 * that spans a sweep of the heartbeat tells the moment. */
void nccl_leave(struct nccl_visit *visit, nccl_result result)
{
    uint64_t left = SHIM_LEFT;

    shim_me()->inside--;
    if (visit->record == NULL || !shim_on())
        return;
    if (visit->sweeps == 0 || visit->sweeps != __atomic_load_n(&shim_hot.sweeps, __ATOMIC_RELAXED))
        left = shim_now();
    __atomic_store_n(&visit->record->result, (uint8_t)result, __ATOMIC_RELAXED);
    __atomic_store_n(&visit->record->leave, left, __ATOMIC_RELEASE);
    learn_once(visit, result);
}

nccl_result nccl_missing(enum shim_kind kind)
{
    shim_cover_function(SHIM_UNRESOLVED, kind);
    shim_tell(SHIM_REASON_SYMBOL_NOT_FOUND, 0, "an NCCL function was called that the NCCL of its caller does not have");
    return NCCL_INVALID_USAGE;
}
