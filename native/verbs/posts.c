/* Work requests on their way out. They are counted before they are posted: another thread may poll their completion at once. */
#include <errno.h>

#include "verbs/hooks.h"

static uint64_t bytes_of(const struct verbs_send_wr *wr)
{
    uint64_t bytes = 0;

    for (int32_t each = 0; each < wr->sge_count; each++)
        bytes += wr->sges[each].length;
    return bytes;
}

/* More in flight than there are marks: counted together, and completed together when the last of them is. */
static void put_aside(struct pair *pair, uint64_t now)
{
    if (pair->extra++ == 0)
        pair->extra_since = now;
    pair->extra_wrs += pair->tail_wrs;
    pair->extra_bytes += pair->tail_bytes;
    GROW(pair->slot->marks_lost, 1);
}

static void push_mark(struct pair *pair, uint64_t now)
{
    if (pair->head == pair->tail && pair->extra == 0)
        pair->busy_from = now;
    if (pair->extra != 0 || pair->head - pair->tail == MARKS) {
        put_aside(pair, now);
    } else {
        pair->marks[pair->head++ % MARKS] =
            (struct mark){.time = now, .bytes = pair->tail_bytes, .wrs = (uint32_t)pair->tail_wrs};
    }
    pair->tail_wrs = pair->tail_bytes = 0;
}

void show_oldest(struct pair *pair)
{
    uint64_t oldest = 0;

    if (pair->head != pair->tail)
        oldest = pair->marks[pair->tail % MARKS].time;
    else if (pair->extra != 0)
        oldest = pair->extra_since;
    STORE(pair->slot->oldest_post, pair->polled && !LOAD(pair->blind) ? oldest : 0);
    STORE(pair->slot->tail_wrs, pair->tail_wrs);
}

static void count(struct pair *pair, const struct verbs_send_wr *wr, const struct verbs_send_wr *end, uint64_t now)
{
    uint64_t wrs = 0, bytes = 0, signaled = 0;

    for (; wr != end; wr = wr->next, wrs++) {
        uint64_t size = bytes_of(wr);

        bytes += size;
        pair->tail_wrs++;
        pair->tail_bytes += size;
        if ((wr->flags & SEND_SIGNALED) || pair->all_signaled) {
            push_mark(pair, now);
            signaled++;
        }
    }
    GROW(pair->slot->posted_wrs, wrs);
    GROW(pair->slot->posted_bytes, bytes);
    GROW(pair->slot->signaled_posted, signaled);
    STORE(pair->slot->last_post, now);
    show_oldest(pair);
}

void count_posts(struct pair *pair, const struct verbs_send_wr *first, const struct verbs_send_wr *end,
                 struct before_post *before)
{
    before->counted = false;
    if (!pair_enter(pair))
        return;
    if (!pair->failed && !LOAD(pair->blind)) {
        *before = (struct before_post){.tail_wrs = pair->tail_wrs, .tail_bytes = pair->tail_bytes, .counted = true};
        pair->poster = &shim_self;
        count(pair, first, end, shim_now());
    }
    pair_leave(pair);
}

struct sum { uint64_t wrs, bytes, signaled, tail_wrs, tail_bytes; };

static struct sum sum_of(const struct pair *pair, const struct verbs_send_wr *wr, const struct verbs_send_wr *end)
{
    struct sum sum = {0};

    for (; wr != end; wr = wr->next) {
        bool signaled = (wr->flags & SEND_SIGNALED) || pair->all_signaled;

        sum.wrs++;
        sum.bytes += bytes_of(wr);
        sum.signaled += signaled;
        sum.tail_wrs = signaled ? 0 : sum.tail_wrs + 1;
        sum.tail_bytes = signaled ? 0 : sum.tail_bytes + bytes_of(wr);
    }
    return sum;
}

static uint64_t less(uint64_t value, uint64_t by)
{
    return value > by ? value - by : 0;
}

/* The newest marks are those of the refused requests; older ones may have completed by now. */
static void take_back(struct pair *pair, const struct sum *refused)
{
    uint64_t aside = refused->signaled < pair->extra ? refused->signaled : pair->extra;

    pair->extra -= aside;
    pair->extra_wrs = pair->extra == 0 ? 0 : less(pair->extra_wrs, aside != 0 ? refused->wrs : 0);
    pair->extra_bytes = pair->extra == 0 ? 0 : less(pair->extra_bytes, aside != 0 ? refused->bytes : 0);
    pair->head -= (uint32_t)(refused->signaled - aside);
    STORE(pair->slot->posted_wrs, LOAD(pair->slot->posted_wrs) - refused->wrs);
    STORE(pair->slot->posted_bytes, LOAD(pair->slot->posted_bytes) - refused->bytes);
    STORE(pair->slot->signaled_posted, LOAD(pair->slot->signaled_posted) - refused->signaled);
}

/* The provider took only those before `bad`. */
void count_refused(struct pair *pair, const struct verbs_send_wr *first, const struct verbs_send_wr *bad,
                   const struct before_post *before)
{
    struct sum kept = sum_of(pair, first, bad), refused = sum_of(pair, bad, NULL);

    if (!pair_enter(pair))
        return;
    GROW(pair->slot->post_errors, 1);
    if (before->counted && !pair->failed) {
        take_back(pair, &refused);
        pair->tail_wrs = kept.tail_wrs + (kept.signaled == 0 ? before->tail_wrs : 0);
        pair->tail_bytes = kept.tail_bytes + (kept.signaled == 0 ? before->tail_bytes : 0);
        show_oldest(pair);
    }
    pair_leave(pair);
}

int hooked_post_send(struct verbs_qp *qp, struct verbs_send_wr *wr, struct verbs_send_wr **bad)
{
    const struct hooked_context *hooked = hooked_context_of(qp->context);
    struct pair *pair = pair_of(qp);
    struct before_post before;
    int result;

    if (pair == NULL || hooked == NULL)
        return hooked != NULL ? hooked->post_send(qp, wr, bad) : EINVAL;
    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_VERBS_POST_SEND);
    count_posts(pair, wr, NULL, &before);
    shim_posted_on(pair->slot);
    result = hooked->post_send(qp, wr, bad);
    if (__builtin_expect(result != 0, 0))
        count_refused(pair, wr, bad != NULL && *bad != NULL ? *bad : wr, &before);
    return result;
}

/* Receives are told by their completions; here the queue pair is only met. */
int hooked_post_recv(struct verbs_qp *qp, struct verbs_recv_wr *wr, struct verbs_recv_wr **bad)
{
    const struct hooked_context *hooked = hooked_context_of(qp->context);

    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_VERBS_POST_RECV);
    (void)pair_of(qp);
    return hooked != NULL ? hooked->post_recv(qp, wr, bad) : EINVAL;
}
