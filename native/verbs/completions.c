/* Completions. A send queue completes in order, so that one completes everything posted before it. */
#include "verbs/hooks.h"
#include "ring/mask.h"

/* The oldest mark, or the last of those for which there was none. */
static struct mark pop(struct pair *pair)
{
    struct mark mark = {.time = pair->extra_since};

    if (pair->head != pair->tail)
        return pair->marks[pair->tail++ % MARKS];
    if (--pair->extra == 0) {
        mark.wrs = (uint32_t)pair->extra_wrs;
        mark.bytes = pair->extra_bytes;
        pair->extra_wrs = pair->extra_bytes = 0;
    }
    return mark;
}

/* The last SHIM_WINDOW completions: their bytes, and the time in which something was in flight for them. */
static void slide(struct pair *pair, uint64_t bytes, uint64_t busy_before)
{
    struct shim_queue_pair *slot = pair->slot;
    uint32_t at = pair->completions++ % SHIM_WINDOW;
    uint32_t first = pair->completions >= SHIM_WINDOW ? (at + 1) % SHIM_WINDOW : 0;

    STORE(slot->window_bytes, LOAD(slot->window_bytes) + bytes - pair->window[at].bytes);
    pair->window[at].bytes = bytes;
    pair->window[at].busy = busy_before;
    STORE(slot->window_ticks, LOAD(slot->busy) - pair->window[first].busy);
}

static uint64_t later(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* Something was in flight since the completion before, or since the queue pair was last idle. How much earlier than this poll
 * the request completed, nobody knows: not before the poll before. */
static void time_it(struct pair *pair, const struct mark *mark, uint64_t polled, uint64_t now)
{
    struct shim_queue_pair *slot = pair->slot;
    uint64_t busy_before = LOAD(slot->busy), gap = now - later(polled, mark->time);

    if (now > pair->busy_from) {
        pair->spread_from = pair->busy_from;
        STORE(slot->busy, busy_before + (now - pair->busy_from));
        pair->busy_from = now;
    }
    if (gap > LOAD(slot->poll_gap))
        STORE(slot->poll_gap, gap);
    spread_bytes(slot, later(pair->spread_from, mark->time), now, mark->bytes, gap);
    slide(pair, mark->bytes, busy_before);
}

static void sent(struct pair *pair, uint64_t polled, uint64_t now)
{
    struct shim_queue_pair *slot = pair->slot;
    struct mark mark;

    if (pair->head == pair->tail && pair->extra == 0)
        return; /* posted before we saw this queue pair */
    mark = pop(pair);
    GROW(slot->completed_wrs, mark.wrs);
    GROW(slot->completed_bytes, mark.bytes);
    GROW(slot->signaled_completed, 1);
    STORE(slot->last_completion, now);
    time_it(pair, &mark, polled < now ? polled : now, now);
    show_oldest(pair);
}

static void received(struct pair *pair, const struct verbs_wc *wc)
{
    GROW(pair->slot->received_wrs, 1);
    GROW(pair->slot->received_bytes, wc->byte_count);
}

/* The first error that is no flush is the cause; a flush on one queue may be polled before the error on the other. Of a failed
 * completion only wr_id, status, number and vendor code hold. */
static void failed(struct pair *pair, const struct verbs_wc *wc, uint64_t now)
{
    struct shim_queue_pair *slot = pair->slot;
    bool is_cause = LOAD(slot->error_status) == 0 || (LOAD(slot->error_status) == WC_FLUSHED && wc->status != WC_FLUSHED);

    pair->failed = true;
    GROW(slot->errors, 1);
    if (!is_cause)
        return;
    STORE(slot->error_time, now);
    STORE(slot->error_wr_id, shim_masked(wc->wr_id)); /* mostly a pointer */
    STORE(slot->error_vendor, wc->vendor_error);
    STORE(slot->error_status, (uint32_t)wc->status);
    shim_record_qp_event(slot, SHIM_QP_FAILED, now);
}

static void count(struct pair *pair, const struct verbs_wc *wc, uint64_t polled, uint64_t now)
{
    if (!pair_enter(pair))
        return;
    if (wc->status != WC_SUCCESS)
        failed(pair, wc, now);
    else if (pair->failed || LOAD(pair->blind))
        ;
    else if (wc->opcode & WC_RECV_BIT)
        received(pair, wc);
    else
        sent(pair, polled, now);
    pair_leave(pair);
}

void count_completions(struct polled_cq *cq, const struct verbs_wc *wc, int count_of, uint64_t now)
{
    for (int each = 0; each < count_of; each++) {
        struct pair *pair = pair_of_number(cq->context, wc[each].qp_number);

        if (pair != NULL)
            count(pair, &wc[each], LOAD(cq->stamp), now);
    }
}
