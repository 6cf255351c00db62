/* Polling. NCCL polls all the time: an empty poll costs a look into a table and a counter. */
#include <errno.h>

#include "verbs/hooks.h"

static void stamp(struct polled_cq *cq)
{
    uint64_t now = shim_now();

    STORE(cq->stamp, now);
    if (__builtin_expect(probing, 0))
        probe_stalled(cq, now);
}

static int found(struct polled_cq *cq, struct verbs_wc *wc, int count)
{
    uint64_t now;

    if (!shim_on())
        return __builtin_expect(LOAD(probes_in_flight) != 0, 0) ? swallow_probes(cq, wc, count) : count;
    now = shim_now();
    count_completions(cq, wc, count, now);
    STORE(cq->stamp, now);
    return __builtin_expect(LOAD(probes_in_flight) != 0, 0) ? swallow_probes(cq, wc, count) : count;
}

static inline int poll_through(struct polled_cq *entry, struct verbs_cq *cq, int room, struct verbs_wc *wc)
{
    int count = entry->poll(cq, room, wc);

    if (count > 0)
        return found(entry, wc, count);
    if (count == 0 && __builtin_expect((++entry->empties & (POLLS_A_STAMP - 1)) == 0, 0))
        stamp(entry);
    return count;
}

static int poll_slowly(struct verbs_cq *cq, int room, struct verbs_wc *wc)
{
    int error = errno;
    struct polled_cq *entry = meet_cq(cq);
    const struct hooked_context *hooked = hooked_context_of(cq->context);

    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_VERBS_POLL);
    errno = error;
    if (entry != NULL && entry->cq == cq)
        return poll_through(entry, cq, room, wc);
    return hooked != NULL ? hooked->poll(cq, room, wc) : -1; /* more queues than places: not counted */
}

static inline bool is_of(const struct polled_cq *entry, const struct verbs_cq *cq)
{
    return __atomic_load_n(&entry->cq, __ATOMIC_ACQUIRE) == cq && entry->context == cq->context;
}

/* Another queue has its place in the table. */
static int poll_elsewhere(struct verbs_cq *cq, int room, struct verbs_wc *wc)
{
    for (uint32_t step = 1; step < 8; step++) {
        struct polled_cq *entry = &polled_cqs[(place_of(cq, CQS) + step) & (CQS - 1)];

        if (is_of(entry, cq))
            return poll_through(entry, cq, room, wc);
    }
    return poll_slowly(cq, room, wc);
}

int hooked_poll(struct verbs_cq *cq, int room, struct verbs_wc *wc)
{
    struct polled_cq *entry = &polled_cqs[place_of(cq, CQS)];

    return __builtin_expect(is_of(entry, cq), 1) ? poll_through(entry, cq, room, wc) : poll_elsewhere(cq, room, wc);
}
