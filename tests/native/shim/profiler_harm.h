/* What must do no harm. */
#ifndef PROFILER_HARM_H
#define PROFILER_HARM_H

#include "profiler_model.h"

static void run_operation(int version, void *context, uint64_t id, uint32_t number, bool check_done);

static void test_unbalanced(void)
{
    int mask;
    void *context = init(6, 1, &mask), *coll = start_coll(6, context, 1, NULL);
    void *proxy = start_proxy(6, context, coll, getpid(), 3, 5, 4, true), *step = start_step(6, context, proxy, 0), *second;
    struct model model = {.sends = true};
    const struct shim_proxy_op *slot = slot_of(&model, 3, 1);

    record_step(6, step, 8, 0);
    record_step(6, step, 9, 500); /* no waiting for the peer was told */
    EQUAL(slot->gpu_ready, 1);
    stop(6, step);
    stop(6, step);
    record_step(6, step, 20, 1); /* a state after the end */
    EQUAL(slot->done, 1);
    EQUAL(slot->bytes, 500);
    EQUAL(slot->unbalanced, 1);
    second = start_step(6, context, proxy, 1);
    record_step(6, second, 8, 0);
    CHECK(start_step(6, context, proxy, 9) != NULL); /* takes the place of a step that was never stopped */
    EQUAL(slot->unbalanced, 2);
    stop(6, proxy);
    EQUAL(slot->unbalanced, 3);
    EQUAL(slot->state, SHIM_SLOT_ENDED);
    stop(6, proxy);
    stop(6, second);
    record_step(6, second, 9, 1);
    CHECK(start_step(6, context, proxy, 2) == NULL);
    stop(6, NULL);
    stop(6, coll);
    stop(6, coll);
    EQUAL(((record_event)plugins[6]->record)(NULL, 8, NULL), 0);
    EQUAL(((record_event)plugins[6]->record)((void *)~0ull, 77, NULL), 0);
    finalize(6, context);
}

/* A proxy for another process: its context and parent are addresses, or handles, of that process. */
static void test_foreign(void)
{
    int mask;
    void *context = init(6, 2, &mask), *coll = start_coll(6, context, 2, NULL);
    void *proxy = start_proxy(6, (void *)0x7f0000001234, coll, getpid() + 1, 5, 1, 2, false);
    void *step = start_step(6, (void *)0x7f0000001234, proxy, 0);
    struct model model = {.sends = false};
    const struct shim_proxy_op *slot = slot_of(&model, 5, 0);

    record_step(6, step, 10, 0);
    EQUAL(slot->comm, SHIM_NO_COMM);
    EQUAL(slot->parent, (uint64_t)(uintptr_t)coll);
    EQUAL(slot->pid, getpid() + 1);
    EQUAL(slot->posted, 1);
    stop(6, step);
    stop(6, proxy);
    CHECK(start_coll(6, (void *)0x1234, 2, NULL) != NULL);
    finalize(6, (void *)0x1234);
    finalize(6, NULL);
    finalize(6, context);
}

/* The same number of process in another container, and even the same address: the parent is still no handle of ours. */
static void test_namesake(void)
{
    int mask;
    void *context = init(6, 2, &mask), *coll = start_coll(6, context, 2, NULL);
    void *stranger = (void *)((uintptr_t)coll ^ (uintptr_t)0x5a5a5a5a00000000ull);
    void *ours = start_proxy(6, context, coll, getpid(), 5, 1, 2, false), *ours_step = start_step(6, context, ours, 0);
    void *theirs = start_proxy(6, context, stranger, getpid(), 6, 1, 2, false), *step = start_step(6, context, theirs, 0);
    struct model model = {.sends = false};

    record_step(6, ours_step, 10, 0);
    record_step(6, step, 10, 0);
    CHECK(slot_of(&model, 5, 1)->comm != SHIM_NO_COMM);
    EQUAL(slot_of(&model, 6, 0)->comm, SHIM_NO_COMM);
    EQUAL(slot_of(&model, 6, 0)->op_number, 0);
    EQUAL(slot_of(&model, 6, 0)->parent, (uint64_t)(uintptr_t)stranger);
    stop(6, step);
    stop(6, theirs);
    finalize(6, context);
}

/* Proxies that are told and never heard of again must not use the slots up. */
static void test_leak(void)
{
    int mask;
    void *context = init(6, 3, &mask), *coll = start_coll(6, context, 3, NULL);

    for (int each = 0; each < 100000; each++)
        CHECK(start_proxy(6, context, coll, getpid(), 0, 0, 1, false) != NULL);
    EQUAL(shim_log.live->lost_proxy_ops, 0);
    run_operation(6, context, 3, 2, true);
    finalize(6, context);
}

/* The communicator is aborted in the middle: the state stays readable, what comes late is ignored, the slots are free again. */
static void test_abort(void)
{
    int mask;

    for (int round = 0; round < 2000; round++) {
        void *context = init(6, 4, &mask), *coll = start_coll(6, context, 4, NULL);
        void *proxy = start_proxy(6, context, coll, getpid(), 1, 5, 4, true), *step = start_step(6, context, proxy, 0);

        CHECK(step != NULL);
        record_step(6, step, 8, 0);
        stop(6, coll);
        finalize(6, context);
        record_step(6, step, 20, 0);
        stop(6, step);
        stop(6, proxy);
    }
    EQUAL(shim_log.live->lost_proxy_ops, 0);
    for (uint32_t each = 0; each < shim_log.proxy_op_count; each++)
        CHECK(shim_log.proxy_ops[each].state != SHIM_SLOT_ACTIVE);
}

static void test_api(void)
{
    int mask;
    uint64_t count;
    void *context = init(6, 5, &mask), *api, *coll;
    struct event event = event_of(6, 512, NULL, 3);
    const struct shim_call *call;

    put_u64(&event, 56, 0x7fe1234000);
    event.bytes[64] = 1;
    api = start(6, context, &event);
    coll = start_coll(6, context, 5, api);
    call = (const struct shim_call *)newest(SHIM_ALL_REDUCE, &count);
    EQUAL(call->stream, 0x7fe1234000);
    EQUAL(call->count, 1 << 20);
    EQUAL(call->dtype, 7);
    stop(6, coll);
    stop(6, api);
    EQUAL((shim_log.live->called[1] >> SHIM_HOOK_GRAPH) & 1, 1);
    finalize(6, context);
}

static void test_kernel(void)
{
    int mask;
    uint64_t before, after;
    void *context, *coll, *kernel;
    struct event event;

    setenv("FORENSICS_SHIM_KERNEL_EVENTS", "1", 1);
    context = init(6, 6, &mask);
    CHECK(mask & 64);
    coll = start_coll(6, context, 6, NULL);
    event = event_of(6, 64, coll, 3);
    kernel = start(6, context, &event);
    stop(6, coll);
    (void)newest(SHIM_OP_DONE, &before);
    stop(6, kernel);
    stop(6, kernel);
    (void)newest(SHIM_OP_DONE, &after);
    EQUAL(after, before + 1);
    finalize(6, context);
}

static void *worker(void *number)
{
    uint64_t id = 100 + (uintptr_t)number;
    int mask;
    void *context = init(6, id, &mask);

    for (uint32_t each = 1; each <= 200; each++) {
        void *coll = start_coll(6, context, id, NULL), *proxy = start_proxy(6, context, coll, getpid(), 0, 1, 3, true);

        stop(6, coll);
        for (int step = 0; step < 3; step++) {
            void *handle = start_step(6, context, proxy, step);

            record_step(6, handle, 8, 0);
            record_step(6, handle, 20, 0);
            record_step(6, handle, 9, 10);
            stop(6, handle);
        }
        stop(6, proxy);
    }
    finalize(6, context);
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[4];
    int mask;
    void *context = init(6, 99, &mask);

    CHECK(context != NULL);
    for (uintptr_t each = 0; each < 4; each++)
        EQUAL(pthread_create(&threads[each], NULL, worker, (void *)each), 0);
    for (int each = 0; each < 4; each++)
        pthread_join(threads[each], NULL);
    for (uint32_t each = 0; each < shim_log.comm_count; each++)
        if (shim_log.comms[each].comm_id >= 100 && shim_log.comms[each].comm_id < 104)
            EQUAL(shim_log.comms[each].ops_done, 200);
    finalize(6, context);
}

static void test_fork(void)
{
    int mask, status;
    void *context = init(6, 7, &mask), *coll = start_coll(6, context, 7, NULL);
    void *proxy = start_proxy(6, context, coll, getpid(), 1, 5, 4, true), *step = start_step(6, context, proxy, 0);
    pid_t child;

    record_step(6, step, 8, 0);
    child = fork();
    if (child == 0) {
        record_step(6, step, 20, 0);
        stop(6, step);
        stop(6, proxy);
        finalize(6, context);
        context = init(6, 8, &mask);
        run_operation(6, context, 8, 1, true);
        finalize(6, context);
        _exit(0);
    }
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    EQUAL(shim_log.proxy_ops[0].posted + shim_log.proxy_ops[1].posted, 1);
    EQUAL(shim_log.proxy_ops[0].gpu_ready, 0);
    stop(6, proxy);
    finalize(6, context);
}

static void test_off(void)
{
    int mask = 77;

    setenv("FORENSICS_SHIM", "0", 1);
    CHECK(init(6, 1, &mask) == NULL);
    EQUAL(mask, 0);
    CHECK(start_coll(6, NULL, 1, NULL) == NULL);
    CHECK(start_proxy(6, NULL, NULL, getpid(), 0, 0, 1, true) == NULL);
    CHECK(start_step(6, NULL, NULL, 0) == NULL);
}

#endif
