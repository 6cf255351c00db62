/* Calls the profiler hook as NCCL does, and compares what it counts with a count of its own. */
#define _GNU_SOURCE

#include "profiler_harm.h"

/* An operation on two channels, both directions, and what must be in the log along the way and after it. */
static void run_operation(int version, void *context, uint64_t id, uint32_t number, bool check_done)
{
    void *group_parent = NULL, *coll;
    struct event group = event_of(version, 1, NULL, 3);
    struct model models[4];
    uint64_t done_before, done_after;
    bool alive = true;

    group_parent = start(version, context, &group);
    CHECK(group_parent != NULL); /* or NCCL up to 2.27 tells nothing more */
    coll = start_coll(version, context, id, group_parent);
    CHECK(coll != NULL);
    stop(version, coll); /* enqueued: its children come later */
    stop(version, group_parent);
    (void)newest(SHIM_OP_DONE, &done_before);
    for (int each = 0; each < 4; each++) {
        models[each] = (struct model){.version = version, .context = context, .total = STEPS, .sends = each % 2 == 0};
        models[each].proxy = start_proxy(version, context, coll, getpid(), each / 2, 5, STEPS, models[each].sends);
        if (version >= 4)
            record_proxy(version, models[each].proxy, 19, 0, 0);
        begin_step(&models[each]);
    }
    while (alive) {
        alive = false;
        for (int each = 0; each < 4; each++) {
            turn(&models[each]);
            alive |= models[each].first < STEPS;
            if (roll(16) == 0)
                compare(&models[each], slot_of(&models[each], each / 2, number));
        }
    }
    for (int each = 0; each < 4; each++) {
        compare(&models[each], slot_of(&models[each], each / 2, number));
        stop(version, models[each].proxy);
    }
    if (!check_done)
        return;
    const struct shim_done_record *done = (const struct shim_done_record *)newest(SHIM_OP_DONE, &done_after);
    EQUAL(done_after, done_before + 1);
    EQUAL(done->bytes, models[0].bytes + models[1].bytes + models[2].bytes + models[3].bytes);
    EQUAL(done->op_number, number);
    EQUAL(done->operation, SHIM_ALL_REDUCE);
    EQUAL(done->channels, 2);
    EQUAL(done->algorithm, 1);
    EQUAL(done->protocol, 2);
    CHECK(done->end >= done->start && done->start != 0);
}

static void check_comm(int version, uint64_t id, uint32_t operations)
{
    const struct shim_comm *comm = NULL;

    for (uint32_t each = 0; each < shim_log.comm_count; each++)
        if (shim_log.comms[each].comm_id == id)
            comm = &shim_log.comms[each];
    CHECK(comm != NULL);
    EQUAL(comm->rank, 3);
    EQUAL(strcmp(comm->name, "data"), 0);
    EQUAL(comm->ranks, version < 4 ? -1 : 16);
    EQUAL(comm->profiler_ops, operations);
    CHECK(comm->ops_done >= 1);
}

static void test_version(int version)
{
    uint64_t id = 0xABC000u + (unsigned)version, calls;
    int mask = -1;
    void *context = init(version, id, &mask), *p2p;
    const struct shim_call *call;

    EQUAL(mask, version >= 5 ? 30 | 512 | 1024 : 30);
    EQUAL(shim_log.live->profiler_version, version);
    for (uint32_t number = 1; number <= 5; number++)
        run_operation(version, context, id, number, true);
    for (int each = 1; each <= 3; each++) {
        p2p = start_p2p(version, context, id, each != 2, 9);
        call = (const struct shim_call *)newest(each != 2 ? SHIM_SEND : SHIM_RECV, &calls);
        EQUAL(call->result, SHIM_NO_RESULT);
        EQUAL(call->p2p_number, each == 3 ? 2 : 1);
        EQUAL(call->peer, 9);
        EQUAL(call->depth, SHIM_TOLD_BY_PROFILER);
        stop(version, p2p);
        CHECK(call->leave >= call->enter && call->result == 0);
    }
    check_comm(version, id, 8);
    EQUAL((shim_log.live->hooked[1] >> SHIM_HOOK_PROFILER_PEER_WAIT) & 1, 1);
    finalize(version, context);
    printf("v%d\n", version);
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";

    if (strcmp(what, "versions") == 0)
        for (int version = 6; version >= 1; version--)
            test_version(version);
    else if (strcmp(what, "unbalanced") == 0) test_unbalanced();
    else if (strcmp(what, "foreign") == 0) test_foreign();
    else if (strcmp(what, "namesake") == 0) test_namesake();
    else if (strcmp(what, "leak") == 0) test_leak();
    else if (strcmp(what, "abort") == 0) test_abort();
    else if (strcmp(what, "api") == 0) test_api();
    else if (strcmp(what, "kernel") == 0) test_kernel();
    else if (strcmp(what, "threads") == 0) test_threads();
    else if (strcmp(what, "fork") == 0) test_fork();
    else if (strcmp(what, "off") == 0) test_off();
    else return 2;
    puts("ok");
    return 0;
}
