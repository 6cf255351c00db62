/* Calls the verbs hook as NCCL does, over a small provider of its own, and compares what it counts with a count of its own. */
#define _GNU_SOURCE

#include "verbs_ways.h"

static void check_peer(const struct shim_queue_pair *slot)
{
    uint64_t events;

    EQUAL(slot->remote_number, 4242);
    EQUAL(slot->timeout, 20);
    EQUAL(slot->retry_count, 7);
    EQUAL(slot->link, 2);
    EQUAL(slot->gid_index, 3);
    EQUAL(slot->remote_gid[1], 0x80);
    EQUAL(slot->gid[0], 0x13);
    EQUAL(slot->mtu, 5);
    EQUAL(strcmp(slot->device, "mlx5_7"), 0);
    CHECK(slot->created != 0 && slot->connected >= slot->created);
    CHECK(newest(SHIM_QP_EVENT, &events) != NULL && events == 3);
}

static uint64_t bin_bytes(const struct shim_queue_pair *slot, uint64_t *bins)
{
    const struct shim_epoch_bin *bin = shim_queue_pair_bins(slot);
    uint64_t bytes = 0;

    for (*bins = 0; *bins < SHIM_EPOCH_BINS && bin[*bins].epoch != 0; (*bins)++)
        bytes += bin[*bins].bytes;
    return bytes;
}

/* Posts, refusals and completions by chance; the model counts beside it. */
static void test_mixed(uint64_t posts)
{
    struct verbs_context *context = open_it(&device);
    struct verbs_send_wr chain[9];
    uint64_t wrs = 0, bytes = 0, signaled = 0, refused = 0, completions = 0, last_of[2] = {0}, done_wrs;
    struct fake_cq *cq = new_cq(context);
    struct fake_qp *qp;
    const struct shim_queue_pair *slot;
    uint8_t gid[16];

    EQUAL(query_gid_it(context, 1, 3, gid), 0);
    qp = new_qp(context, cq, false);
    slot = slot_of(qp);
    check_peer(slot);
    qp->room = 40;
    (void)drain(cq);
    while (wrs < posts) {
        uint32_t count = 1 + roll(8), size = roll(1 << 16), taken;
        bool is_signaled = roll(3) != 0;
        int result = post_chain(qp, count, size, is_signaled, chain, &taken);

        refused += result != 0;
        wrs += taken;
        bytes += (uint64_t)taken * size;
        signaled += result == 0 && is_signaled;
        if (result == 0 && is_signaled)
            last_of[0] = wrs;
        last_of[1] = wrs;
        EQUAL(slot->posted_wrs, wrs);
        EQUAL(slot->posted_bytes, bytes);
        EQUAL(slot->signaled_posted, signaled);
        EQUAL(slot->tail_wrs, last_of[1] - last_of[0]);
        carry(qp, roll(9));
        if (roll(4) == 0)
            completions += (uint64_t)drain(cq);
        EQUAL(slot->signaled_completed, completions);
        CHECK((slot->oldest_post == 0) == (signaled == completions));
    }
    carry(qp, DEPTH);
    completions += (uint64_t)drain(cq);
    EQUAL(slot->signaled_posted - slot->signaled_completed, 0);
    EQUAL(completions, signaled);
    EQUAL(slot->oldest_post, 0);
    done_wrs = slot->posted_wrs - slot->tail_wrs;
    EQUAL(slot->completed_wrs, done_wrs);
    EQUAL(slot->post_errors, refused);
    CHECK(refused > 0);
    EQUAL(slot->marks_lost, 0);
    CHECK(slot->completed_bytes <= bytes && slot->busy > 0 && slot->window_ticks > 0 && slot->window_bytes > 0);
    printf("wrs %llu refused %llu completions %llu\n", (unsigned long long)wrs, (unsigned long long)refused,
           (unsigned long long)completions);
    EQUAL(destroy_it(&qp->qp), 0);
    EQUAL(slot->state, SHIM_SLOT_ENDED);
    EQUAL(destroy_cq_it(&cq->cq), 0);
    EQUAL(close_it(context), 0);
    EQUAL(closed, 1);
}

/* A receiver's credits: inline writes, of which one in 256 is signaled. They never make the queue pair look stuck. */
static void test_credits(void)
{
    struct verbs_context *context = open_it(&device);
    struct fake_cq *cq = new_cq(context);
    struct fake_qp *qp = new_qp(context, cq, false);
    const struct shim_queue_pair *slot = slot_of(qp);
    struct verbs_send_wr wr[1];
    uint32_t taken;

    (void)drain(cq);
    for (uint32_t each = 0; each < 20000; each++) {
        bool is_signaled = each % 256 == 0;

        EQUAL(post_chain(qp, 1, 64, is_signaled, wr, &taken), 0);
        CHECK((slot->oldest_post != 0) == is_signaled);
        carry(qp, 1);
        (void)drain(cq);
        EQUAL(slot->oldest_post, 0);
        EQUAL(slot->signaled_posted, slot->signaled_completed);
        EQUAL(slot->tail_wrs, each % 256);
    }
    free(qp), free(cq), free(context);
}

static void test_storm(void)
{
    struct verbs_context *context = open_it(&device);
    struct fake_cq *cq = new_cq(context);
    struct fake_qp *qp = new_qp(context, cq, false), *healthy = new_qp(context, cq, false);
    const struct shim_queue_pair *slot = slot_of(qp);
    const struct shim_qp_event_record *event;
    struct shim_queue_pair before;
    struct verbs_send_wr chain[8];
    struct verbs_qp_attributes reset = {.state = QPS_RESET};
    uint64_t events;
    uint32_t taken;

    (void)drain(cq);
    for (int each = 0; each < 200; each++)
        EQUAL(post_chain(qp, 8, 1000, each % 2 == 0, chain, &taken), 0);
    carry(qp, 333);
    (void)drain(cq);
    before = *slot;
    complete(cq, 9, WC_FLUSHED, 0, 0, qp->qp.number); /* a receive, polled before the cause */
    (void)drain(cq);
    EQUAL(slot->error_status, WC_FLUSHED);
    fail(qp, 12);
    (void)drain(cq);
    EQUAL(slot->error_status, 12);
    EQUAL(slot->error_vendor, 0x81);
    EQUAL(slot->error_wr_id, 333 % 8);
    EQUAL(slot->errors, 1 + 1600 - 333);
    CHECK(slot->error_time != 0);
    EQUAL(slot->completed_wrs, before.completed_wrs); /* frozen: it is evidence */
    EQUAL(slot->signaled_completed, before.signaled_completed);
    EQUAL(slot->completed_bytes, before.completed_bytes);
    EQUAL(slot->received_bytes, 0);
    EQUAL(post_chain(qp, 8, 1000, true, chain, &taken), 0);
    EQUAL(slot->posted_wrs, before.posted_wrs);
    event = (const struct shim_qp_event_record *)newest(SHIM_QP_EVENT, &events);
    EQUAL(event->event, SHIM_QP_FAILED);
    EQUAL(event->status, 12);
    EQUAL(event->vendor_error, 0x81);
    EQUAL(events, 8); /* made, connected, ready of two; a flush, the cause */
    EQUAL(post_chain(healthy, 8, 1000, true, chain, &taken), 0);
    carry(healthy, 8);
    (void)drain(cq);
    EQUAL(slot_of(healthy)->completed_wrs, 8);
    EQUAL(slot_of(healthy)->errors, 0);
    EQUAL(modify_it(&qp->qp, &reset, ATTR_STATE), 0); /* used again: another life under the same number */
    CHECK(slot_of(qp) != slot && slot->state == SHIM_SLOT_ENDED);
    EQUAL(slot->error_status, 12);
    EQUAL(slot_of(qp)->generation, 2);
    EQUAL(slot_of(qp)->posted_wrs, 0);
    free(qp), free(healthy), free(cq), free(context);
}

/* More signaled requests in flight than there are marks: late, but neither lost nor early. */
static void test_overflow(void)
{
    struct verbs_context *context = open_it(&device);
    struct fake_cq *cq = new_cq(context);
    struct fake_qp *qp = new_qp(context, cq, true);
    const struct shim_queue_pair *slot = slot_of(qp);
    struct verbs_send_wr wr[1];
    uint32_t taken;

    (void)drain(cq);
    for (uint32_t each = 0; each < 1500; each++)
        EQUAL(post_chain(qp, 1, 100, true, wr, &taken), 0);
    EQUAL(slot->marks_lost, 1500 - MARKS);
    carry(qp, 600);
    (void)drain(cq);
    EQUAL(slot->signaled_completed, 600);
    EQUAL(slot->completed_wrs, MARKS);
    CHECK(slot->oldest_post != 0);
    carry(qp, 900);
    (void)drain(cq);
    EQUAL(slot->completed_wrs, 1500);
    EQUAL(slot->completed_bytes, 150000);
    EQUAL(slot->oldest_post, 0);
    EQUAL(post_chain(qp, 1, 100, true, wr, &taken), 0);
    CHECK(slot->oldest_post != 0);
    carry(qp, 1);
    (void)drain(cq);
    EQUAL(slot->signaled_completed, 1501);
    EQUAL(slot->completed_wrs, 1501);
    free(qp), free(cq), free(context);
}

/* Returns false when this thread lost its CPU for so long that there is nothing to compare. */
static bool spread_once(struct fake_qp *qp, struct fake_cq *cq)
{
    const struct shim_queue_pair *slot = slot_of(qp);
    struct verbs_send_wr chain[4];
    uint64_t bins, before, start, epoch = 1ull << shim_log.head->epoch_shift, most = 0;
    uint32_t taken;

    start = shim_now();
    EQUAL(post_chain(qp, 1, 1 << 20, true, chain, &taken), 0);
    for (uint64_t until = shim_now() + 50 * epoch; shim_now() < until;)
        (void)drain(cq);
    carry(qp, 1);
    (void)drain(cq);
    if (shim_now() - start > 100 * epoch)
        return false;
    EQUAL(bin_bytes(slot, &bins), 1 << 20);
    CHECK(bins >= 50);
    for (uint64_t each = 0; each < bins; each++)
        most = shim_queue_pair_bins(slot)[each].bytes > most ? shim_queue_pair_bins(slot)[each].bytes : most;
    CHECK(most <= (1 << 20) / 50 + 64);
    CHECK(slot->busy >= 50 * epoch && slot->busy <= 100 * epoch);
    before = slot->busy;
    for (uint64_t until = shim_now() + 20 * epoch; shim_now() < until;) /* idle: neither busy nor in any bin */
        (void)drain(cq);
    start = shim_now();
    for (int each = 0; each < 3; each++)
        EQUAL(post_chain(qp, 4, 1000, true, chain, &taken), 0);
    carry(qp, 12);
    EQUAL(drain(cq), 3); /* three at once: one interval, not three points */
    if (shim_now() - start > 10 * epoch)
        return false;
    CHECK(slot->busy - before <= 10 * epoch);
    EQUAL(bin_bytes(slot, &bins), (1 << 20) + 12000);
    EQUAL(slot->window_bytes, (1 << 20) + 12000);
    EQUAL(slot->window_ticks, slot->busy);
    for (uint64_t each = 1; each < bins; each++)
        CHECK(shim_queue_pair_bins(slot)[each].epoch > shim_queue_pair_bins(slot)[each - 1].epoch);
    return true;
}

/* 1 MB that takes 5 ms does not land in the epoch in which it was polled. */
static void test_spread(void)
{
    struct verbs_context *context = open_it(&device);
    struct fake_cq *cq = new_cq(context);
    uint64_t epoch = 1ull << shim_log.head->epoch_shift;
    struct verbs_send_wr chain[1];
    struct fake_qp *qp = NULL;
    uint32_t taken;
    bool compared = false;

    (void)drain(cq);
    for (int tries = 0; tries < 50 && !compared; tries++) {
        free(qp);
        qp = new_qp(context, cq, false);
        compared = spread_once(qp, cq);
    }
    EQUAL(post_chain(qp, 1, 1000, true, chain, &taken), 0);
    for (uint64_t until = shim_now() + 300 * epoch; shim_now() < until;) /* longer than all bins */
        (void)drain(cq);
    carry(qp, 1);
    (void)drain(cq);
    CHECK(slot_of(qp)->bins <= 4 * SHIM_EPOCH_BINS);
    free(qp), free(cq), free(context);
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";

    look_everything_up();
    if (strcmp(what, "mixed") == 0) test_mixed(count > 2 ? strtoull(arguments[2], NULL, 10) : 1000000);
    else if (strcmp(what, "credits") == 0) test_credits();
    else if (strcmp(what, "storm") == 0) test_storm();
    else if (strcmp(what, "overflow") == 0) test_overflow();
    else if (strcmp(what, "spread") == 0) test_spread();
    else if (strcmp(what, "ways") == 0) test_ways();
    else if (strcmp(what, "threads") == 0) test_threads();
    else if (strcmp(what, "fork") == 0) test_fork();
    else if (strcmp(what, "probe") == 0) test_probe(true);
    else if (strcmp(what, "no_probe") == 0) test_probe(false);
    else return 2;
    puts("ok");
    return 0;
}
