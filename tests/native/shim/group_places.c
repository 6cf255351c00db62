/* Programs whose places for handles are gone, or hold something else, when a group ends: `group_places CASE`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deferred_nccl.h"

#define SYSTEM_ERROR 2
#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #what), exit(1)))

static ncclComm_t world;
static const ncclUniqueId id;

static ncclComm_t *new_place(void)
{
    void *place = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(place != MAP_FAILED);
    return place;
}

static void use(ncclComm_t comm)
{
    CHECK(ncclAllReduce(0, 0, 1, 7, 0, comm, 0) == 0);
}

static ncclComm_t *split_in_failing_group(void)
{
    ncclComm_t *place = new_place();

    nccl_fail_groups(SYSTEM_ERROR);
    CHECK(ncclGroupStart() == 0);
    CHECK(ncclCommSplit(world, 1, 0, place, NULL) == 0);
    CHECK(ncclGroupEnd() == SYSTEM_ERROR);
    nccl_fail_groups(0);
    return place;
}

static void empty_group(void)
{
    CHECK(ncclGroupStart() == 0);
    CHECK(ncclGroupEnd() == 0);
}

static void *run_empty_group(void *nothing)
{
    empty_group();
    return nothing;
}

static void in_another_thread(void *(*what)(void *))
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, what, NULL) == 0);
    pthread_join(thread, NULL);
}

static void unmapped(void)
{
    munmap(split_in_failing_group(), 4096);
    empty_group();
    in_another_thread(run_empty_group);
}

static void reused(void)
{
    ncclComm_t *place = split_in_failing_group();

    *place = (ncclComm_t)(uintptr_t)0xdeadbeef0;
    empty_group();
    in_another_thread(run_empty_group);
}

/* The place holds a number of the program's own when another group of the thread ends. */
static void reused_before_the_end(void)
{
    ncclComm_t *place = new_place(), before;

    CHECK(ncclGroupStart() == 0);
    CHECK(ncclCommSplit(world, 1, 0, place, NULL) == 0);
    CHECK(ncclGroupStart() == 0); /* nested: nothing is made by its end */
    CHECK(ncclGroupEnd() == 0);
    before = *place;
    CHECK(before == NULL);
    CHECK(ncclGroupEnd() == 0);
    use(*place);
    *place = (ncclComm_t)(uintptr_t)0x10;
    empty_group();
}

static void *leave_a_group_open(void *nothing)
{
    ncclComm_t *place = new_place();

    CHECK(ncclGroupStart() == 0);
    CHECK(ncclCommInitRank(place, 4, id, 2) == 0);
    munmap(place, 4096);
    return nothing;
}

static void open_group_of_a_thread(void)
{
    for (int each = 0; each < 20; each++) {
        in_another_thread(leave_a_group_open);
        in_another_thread(run_empty_group);
    }
    empty_group();
}

static void *split_in_a_group(void *nothing)
{
    for (int each = 0; each < 200; each++) {
        ncclComm_t *place = new_place(), made;

        CHECK(ncclGroupStart() == 0);
        CHECK(ncclCommInitRank(place, 4, id, each % 4) == 0);
        CHECK(ncclGroupEnd() == 0);
        made = *place;
        munmap(place, 4096);
        use(made);
        CHECK((each % 2 == 0 ? ncclCommAbort(made) : ncclCommDestroy(made)) == 0);
    }
    return nothing;
}

static void threads(void)
{
    pthread_t workers[4];

    for (int each = 0; each < 4; each++)
        CHECK(pthread_create(&workers[each], NULL, split_in_a_group, NULL) == 0);
    for (int each = 0; each < 4; each++)
        pthread_join(workers[each], NULL);
}

static void nonblocking(void)
{
    static ncclComm_t child;
    int config = 1, error = 0;

    CHECK(ncclCommSplit(world, 1, 0, &child, &config) == 7);
    empty_group(); /* the child is not ready: nobody may ask about it */
    CHECK(ncclCommGetAsyncError(world, &error) == 0 && error == 0);
    empty_group();
    CHECK(ncclCommGetAsyncError(child, &error) == 0 && error == 7);
    CHECK(ncclCommGetAsyncError(child, &error) == 0 && error == 0);
    use(child);
}

static void nonblocking_freed(void)
{
    ncclComm_t *place = new_place(), child;
    int config = 1, error = 0;

    CHECK(ncclCommSplit(world, 1, 0, place, &config) == 7);
    CHECK(ncclCommGetAsyncError(world, &error) == 0 && error == 0);
    child = *place;
    munmap(place, 4096);
    empty_group();
    CHECK(ncclCommGetAsyncError(child, &error) == 0);
    use(child);
}

static void forked(void)
{
    ncclComm_t *place = new_place();
    int status = 0;

    CHECK(ncclGroupStart() == 0);
    CHECK(ncclCommSplit(world, 1, 0, place, NULL) == 0);
    if (fork() == 0) {
        munmap(place, 4096);
        nccl_fail_groups(SYSTEM_ERROR);
        _exit(ncclGroupEnd() == SYSTEM_ERROR && ncclGroupStart() == 0 ? 0 : 9);
    }
    wait(&status);
    CHECK(status == 0);
    CHECK(ncclGroupEnd() == 0);
    use(*place);
}

/* More communicators than slots: all work, and those that have none are known to have none. */
static void many(void)
{
    static ncclComm_t comms[600];

    for (int round = 0; round < 2; round++) {
        for (int each = 0; each < 600; each++)
            CHECK(ncclCommInitRank(&comms[each], 4, id, each % 4) == 0);
        for (int each = 0; each < 600; each++)
            use(comms[each]);
        for (int each = 0; each < 600; each++)
            CHECK(ncclCommDestroy(comms[each]) == 0);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"unmapped", unmapped}, {"reused", reused}, {"reused_before_the_end", reused_before_the_end},
        {"open_group_of_a_thread", open_group_of_a_thread}, {"threads", threads}, {"nonblocking", nonblocking},
        {"nonblocking_freed", nonblocking_freed}, {"forked", forked}, {"many", many},
    };

    CHECK(ncclCommInitRank(&world, 4, id, 1) == 0);
    for (size_t each = 0; each < sizeof cases / sizeof cases[0]; each++)
        if (argc > 1 && strcmp(argv[1], cases[each].name) == 0)
            return cases[each].run(), 0;
    return 2;
}
