/* The active probe (MegaTrace): when a queue pair is stalled, one signaled RDMA write of no bytes is posted on it. On a healthy
 * link it completes, on a dead one it stays, and the count of requests in flight says so.
 *
 * OFF unless FORENSICS_SHIM_PROBE=1, because it is the only thing here that acts: it takes a place in the send queue and in the
 * completion queue, which the program sized for itself; the program's next post may be refused for want of that place, and it
 * will take that for a fatal error. It goes behind the requests that are stuck, so it rarely tells more than they do.
 * It is posted by the thread that posts and polls this queue pair, never by another, and its completion is taken out again:
 * NCCL would not know its wr_id. */
#include <stdlib.h>
#include <string.h>

#include "verbs/hooks.h"

#define STALLED_EPOCHS 5000u /* of about 100 us each: 500 ms, as published */
#define PROBE_WR_ID 0xF0CEA5C5B00DE500ull

bool probing;
uint32_t probes_in_flight;

static uint64_t numbers;

void probe_setting(void)
{
    const char *setting = getenv("FORENSICS_SHIM_PROBE");

    probing = setting != NULL && strcmp(setting, "1") == 0;
}

static bool is_stalled(const struct pair *pair, uint64_t now, uint64_t limit)
{
    uint64_t oldest = LOAD(pair->slot->oldest_post);

    return oldest != 0 && now > oldest && now - oldest > limit && pair->probe == 0 && !pair->failed &&
           LOAD(pair->slot->connected) != 0 && pair->poster == &shim_self;
}

static void probe(struct pair *pair)
{
    struct verbs_send_wr wr = {.opcode = WR_RDMA_WRITE, .flags = SEND_SIGNALED}, *bad = NULL;
    const struct hooked_context *hooked = hooked_context_of(pair->qp->context);
    struct before_post before;

    wr.wr_id = PROBE_WR_ID + (__atomic_add_fetch(&numbers, 1u, __ATOMIC_RELAXED) & 0xFF);
    pair->probe = wr.wr_id;
    __atomic_fetch_add(&probes_in_flight, 1u, __ATOMIC_RELAXED);
    count_posts(pair, &wr, NULL, &before);
    if (hooked->post_send(pair->qp, &wr, &bad) == 0)
        return;
    count_refused(pair, &wr, &wr, &before);
    pair->probe = 0;
    __atomic_fetch_sub(&probes_in_flight, 1u, __ATOMIC_RELAXED);
}

void probe_stalled(struct polled_cq *cq, uint64_t now)
{
    uint64_t limit;
    struct pair *pair;

    if (!shim_on())
        return;
    limit = (uint64_t)STALLED_EPOCHS << shim_log.head->epoch_shift;
    for (uint32_t each = 0; (pair = pair_at(each)) != NULL; each++)
        if (pair->slot != NULL && LOAD(pair->slot->state) == SHIM_SLOT_ACTIVE && pair->send_cq == cq->cq &&
            is_stalled(pair, now, limit))
            probe(pair);
}

static bool is_probe(const struct polled_cq *cq, const struct verbs_wc *wc)
{
    struct pair *pair = (wc->wr_id & ~0xFFull) == PROBE_WR_ID ? pair_of_number(cq->context, wc->qp_number) : NULL;

    if (pair == NULL || pair->probe != wc->wr_id)
        return false;
    pair->probe = 0;
    __atomic_fetch_sub(&probes_in_flight, 1u, __ATOMIC_RELAXED);
    return true;
}

int swallow_probes(struct polled_cq *cq, struct verbs_wc *wc, int count)
{
    int kept = 0;

    for (int each = 0; each < count; each++)
        if (!is_probe(cq, &wc[each]))
            wc[kept++] = wc[each];
    return kept;
}
