/* Ways to use verbs that are not the plain one. */
#ifndef VERBS_WAYS_H
#define VERBS_WAYS_H

#include "verbs_program.h"

/* Two providers, a queue pair whose making was not seen, a queue that nobody polls, a table that is filled again. */
static void test_ways(void)
{
    struct verbs_context *one = open_it(&device), *two;
    struct fake_cq *first = new_cq(one), *second;
    struct fake_qp *seen = (struct fake_qp *)fake_create(&(struct verbs_pd){.context = one},
                                                         &(struct verbs_qp_init){.send_cq = &first->cq, .recv_cq = &first->cq});
    struct fake_qp *other;
    struct verbs_send_wr wr[1];
    struct verbs_wc wc[4];
    uint32_t taken;
    uint64_t events;

    provider = 2;
    two = open_it(&device);
    second = new_cq(two);
    other = new_qp(two, second, false);
    EQUAL(poll(second, 4, wc), 0);
    EQUAL(post_chain(seen, 1, 10, true, wr, &taken), 0);
    EQUAL(((const struct shim_qp_event_record *)newest(SHIM_QP_EVENT, &events))->event, SHIM_QP_SEEN);
    EQUAL(slot_of(seen)->created, 0);
    EQUAL(slot_of(seen)->posted_wrs, 1);
    EQUAL(slot_of(seen)->oldest_post, 0); /* nobody polled here yet: what is in flight is not known */
    EQUAL(poll(first, 4, wc), 0);
    CHECK(slot_of(seen)->oldest_post != 0);
    carry(seen, 1);
    EQUAL(poll(first, 4, wc), 1);
    EQUAL(slot_of(seen)->oldest_post, 0);
    complete(second, 1, 0, 129, 777, other->qp.number);
    EQUAL(poll(second, 4, wc), 1);
    EQUAL(slot_of(other)->received_bytes, 777);
    EQUAL(slot_of(other)->received_wrs, 1);
    EQUAL(slot_of(other)->completed_wrs, 0);
    complete(second, 1, 0, 1, 0, other->qp.number); /* of a request that was posted out of sight */
    EQUAL(poll(second, 4, wc), 1);
    EQUAL(slot_of(other)->signaled_completed, 0);
    two->operations.poll = poll_two; /* the provider fills its table again */
    EQUAL(destroy_it(&other->qp), 0);
    other = new_qp(two, second, false);
    CHECK(two->operations.poll == hooked_poll);
    EQUAL(poll(second, 4, wc), 0);
    EQUAL(close_it(one), 0);
    EQUAL(shim_log.live->verbs_contexts, 2);
    free(seen), free(first), free(other), free(second), free(two);
}

static bool running = true;

static void *poller(void *data)
{
    struct fake_qp *qp = data;
    struct fake_cq *cq = (struct fake_cq *)qp->qp.send_cq;

    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) || __atomic_load_n(&qp->posted, __ATOMIC_ACQUIRE) != qp->carried ||
           cq->head != cq->tail) {
        carry(qp, 64);
        (void)drain(cq);
    }
    return NULL;
}

/* One thread posts, another polls. */
static void test_threads(void)
{
    struct verbs_context *context = open_it(&device);
    struct fake_cq *cq = new_cq(context);
    struct fake_qp *qp = new_qp(context, cq, false);
    const struct shim_queue_pair *slot = slot_of(qp);
    struct verbs_send_wr chain[4];
    pthread_t thread;
    uint64_t signaled = 0, wrs = 0;
    uint32_t taken;

    EQUAL(pthread_create(&thread, NULL, poller, qp), 0);
    for (int each = 0; each < 20000; each++) {
        int result = post_chain(qp, 4, 100, each % 3 != 0, chain, &taken);

        signaled += result == 0 && each % 3 != 0;
        wrs += taken;
        if (result != 0)
            sched_yield();
    }
    __atomic_store_n(&running, false, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    if (slot->marks_lost == 0) { /* else a thread lost its CPU while it counted, and the queue pair says that it is blind */
        EQUAL(slot->posted_wrs, wrs);
        EQUAL(slot->signaled_posted, signaled);
        EQUAL(slot->signaled_completed, signaled);
    }
    EQUAL(slot->oldest_post, 0);
    free(qp), free(cq), free(context);
}

static void test_fork(void)
{
    struct verbs_context *context = open_it(&device);
    struct fake_cq *cq = new_cq(context);
    struct fake_qp *qp = new_qp(context, cq, false);
    struct verbs_send_wr wr[1];
    uint32_t taken;
    int status;
    pid_t child;

    (void)drain(cq);
    EQUAL(post_chain(qp, 1, 100, true, wr, &taken), 0);
    child = fork();
    if (child == 0) {
        EQUAL(post_chain(qp, 1, 100, true, wr, &taken), 0);
        carry(qp, 2);
        EQUAL(drain(cq), 2);
        EQUAL(close_it(open_it(&device)), 0);
        EQUAL(destroy_it(&qp->qp), 0);
        qp = new_qp(context, cq, false);
        EQUAL(post_chain(qp, 1, 100, true, wr, &taken), 0);
        EQUAL(slot_of(qp)->posted_wrs, 1);
        _exit(0);
    }
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    EQUAL(slot_of(qp)->posted_wrs, 1);
    EQUAL(slot_of(qp)->completed_wrs, 0);
    free(qp), free(cq), free(context);
}

/* The probe: only when asked for, only after 500 ms, once, and its completion never reaches the program. */
static void test_probe(bool on)
{
    struct verbs_context *context;
    struct fake_cq *cq;
    struct fake_qp *qp;
    struct verbs_send_wr wr[1];
    struct verbs_wc wc[8];
    uint32_t taken;
    uint64_t wait;

    if (on)
        setenv("FORENSICS_SHIM_PROBE", "1", 1);
    context = open_it(&device);
    cq = new_cq(context);
    qp = new_qp(context, cq, false);
    wait = 8000ull << shim_log.head->epoch_shift;
    (void)drain(cq);
    EQUAL(post_chain(qp, 1, 100, true, wr, &taken), 0);
    for (uint64_t until = shim_now() + wait; shim_now() < until;)
        (void)drain(cq);
    EQUAL(qp->posted, on ? 2 : 1);
    EQUAL(slot_of(qp)->signaled_posted, on ? 2 : 1);
    carry(qp, 8);
    EQUAL(poll(cq, 8, wc), 1);
    EQUAL(wc[0].wr_id, 0);
    EQUAL(slot_of(qp)->signaled_completed, on ? 2 : 1);
    EQUAL(slot_of(qp)->oldest_post, 0);
    EQUAL(probes_in_flight, 0);
    free(qp), free(cq), free(context);
}

#endif
