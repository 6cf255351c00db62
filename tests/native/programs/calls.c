/* Single calls of a random program, with random arguments. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "program.h"

#define MARK 4711 /* errno before each call */

uint32_t roll(uint32_t sides)
{
    worker->random = mix(worker->random);
    return (uint32_t)(worker->random >> 33) % sides;
}

const struct api *api_of_call(void)
{
    const struct api *apis[] = {&job.linked, &job.global, &job.held};

    return apis[worker->style < 3 ? (uint32_t)worker->style : (uint32_t)(worker->random >> 7) % 3];
}

void before(enum function function)
{
    tape("%d %s\n", worker->steps++, function_names[function]);
    (void)job.strict.announce((int)function);
    worker->current = function;
    errno = MARK;
}

int after(enum function function, int result)
{
    int error = errno;

    if (job.strict.announce(NO_FUNCTION) != NO_FUNCTION)
        tape("STRICT: %s did not arrive\n", function_names[function]);
    worker->current = NO_FUNCTION;
    tape("  -> %d", result);
    if (error != MARK)
        tape(" errno %d", error);
    tape("\n");
    return result;
}

void keep_comm(ncclComm_t comm)
{
    for (int each = 0; each < worker->comm_count; each++)
        if (worker->comms[each] == comm)
            return;
    if (worker->comm_count < COMMS)
        worker->comms[worker->comm_count++] = comm;
}

/* Addresses that serve again may be another thread's by now: those are never called on again. */
void drop_comm(ncclComm_t comm)
{
    for (int each = 0; each < worker->comm_count; each++)
        if (worker->comms[each] == comm)
            worker->comms[each--] = worker->comms[--worker->comm_count];
    if (comm != NULL && !worker->reuses && may(WITH_STALE))
        worker->stale[worker->stale_count++ % 8] = comm;
    if (worker->stale_count > 8)
        worker->stale_count = 8;
}

ncclComm_t any_comm(void)
{
    static uint64_t no_comm[1024];
    uint32_t sort = roll(40);

    if (sort == 0)
        return NULL;
    if (sort == 1 && worker->stale_count > 0)
        return worker->stale[roll((uint32_t)worker->stale_count)];
    if (sort == 2 && may(WITH_GARBAGE))
        return (ncclComm_t)(void *)&no_comm[512];
    return worker->comm_count > 0 ? worker->comms[roll((uint32_t)worker->comm_count)] : NULL;
}

/* Arguments by the names that the lists of abi.h use; pointers are never followed. */
#define ARGUMENTS_OF_OPERATIONS                                                                                                 \
    void *in = (void *)(uintptr_t)(roll(9) * 4096), *out = (void *)(uintptr_t)(roll(9) * 4096), *stream = (void *)(uintptr_t)roll(5); \
    void *window = (void *)(uintptr_t)roll(9), *twin = (void *)(uintptr_t)roll(3);                                              \
    size_t count = roll(1000000), offset = roll(64);                                                                            \
    int dtype = (int)roll(14), op = (int)roll(20), root = (int)roll(9) - 1, context = (int)roll(3);                             \
    unsigned flags = roll(4);                                                                                                   \
    (void)in, (void)out, (void)stream, (void)window, (void)twin, (void)count, (void)offset, (void)dtype, (void)op, (void)root,  \
        (void)context, (void)flags

void do_operation(void)
{
    ncclComm_t comm = any_comm();
    enum function wanted = (enum function)roll(F_CommResume);
    ARGUMENTS_OF_OPERATIONS;

    switch ((int)wanted) {
#define OPERATE(name, parameters, arguments)                                                                                    \
    case F_##name:                                                                                                              \
        (void)CALL(name, LIST arguments);                                                                                       \
        break;
        OPERATIONS_OLD(OPERATE)
        OPERATIONS_NEW(OPERATE)
    default:
        (void)CALL(AllReduce, in, out, count, dtype, op, comm, stream);
    }
}

/* Full, older and shorter at the end of a page, unknown, or none. */
static struct config *some_config(void)
{
    static _Thread_local struct config full, wrong;
    static char *page;
    struct config *cut;
    int blocking = (int)roll(2);

    full = (struct config){.size = sizeof full, .magic = CONFIG_MAGIC, .version = 22700, .blocking = blocking, .name = roll(2) ? "pipe" : NULL};
    wrong = (struct config){.size = roll(64), .magic = 0x0badf00d, .name = (const char *)1};
    if (worker->slot == 0 && page == NULL) {
        page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(page + 4096, 4096, PROT_NONE);
    }
    if (worker->slot == 0 && roll(4) == 0) {
        cut = (struct config *)(void *)(page + 4096 - 24);
        memcpy(cut, &(struct config){.size = 24, .magic = CONFIG_MAGIC, .version = 21400, .blocking = blocking}, 24);
        return cut;
    }
    return !may(WITH_CONFIGS) || roll(4) == 0 ? NULL : roll(12) == 0 ? &wrong : &full;
}

static void do_all(void)
{
    int ranks = roll(12) == 0 ? 70 : 1 + (int)roll(3), devices[80] = {0};
    ncclComm_t *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ncclComm_t filled = garbage();

    for (int each = 0; each < ranks; each++)
        made[each] = filled;
    (void)CALL(CommInitAll, made, ranks, roll(2) ? devices : NULL);
    for (int each = 0; each < ranks; each++)
        if (job.strict.number(made[each]) / 1000 == worker->slot && job.strict.number(made[each]) >= 0)
            keep_comm(made[each]);
    munmap(made, 4096);
}

void do_making(ncclComm_t *frame)
{
    struct config *config = some_config();
    ncclUniqueId id = {{(char)roll(3)}};
    int ranks = 1 + (int)roll(8), rank = (int)roll(8), color = (int)roll(4) - 1, out[2] = {(int)roll(4), 1};
    uint32_t sort = roll(8);
    struct place *place = sort == 0 ? NULL : place_take(frame);
    ncclComm_t *made = place != NULL ? place->at : NULL;

    if (place == NULL && roll(3) > 0)
        do_all();
    else if (sort <= 2)
        (void)CALL(CommInitRank, made, ranks, id, rank);
    else if (sort == 3)
        (void)CALL(CommInitRankConfig, made, ranks, id, rank, config);
    else if (sort == 4)
        (void)CALL(CommInitRankScalable, made, ranks, rank, 1, &id, config);
    else if (sort == 5)
        (void)CALL(CommGrow, any_comm(), ranks, roll(2) ? &id : NULL, rank, made, config);
    else if (sort == 6)
        (void)CALL(CommShrink, any_comm(), out, 1, made, config, (int)roll(2));
    else
        (void)CALL(CommSplit, any_comm(), color, rank, made, config);
}

static void do_freeing(void)
{
    ncclComm_t comm = any_comm();
    int number = job.strict.number(comm), result = roll(2) ? CALL(CommDestroy, comm) : CALL(CommAbort, comm);

    if (result == SUCCESS || job.strict.number(comm) != number)
        drop_comm(comm);
}

void do_ending(void)
{
    switch (roll(9)) {
    case 0:
        (void)CALL(CommFinalize, any_comm());
        break;
    case 1:
        (void)CALL(CommRevoke, any_comm(), (int)roll(2));
        break;
    case 2:
        (void)CALL(CommSuspend, any_comm(), (int)roll(2));
        break;
    case 3:
        (void)CALL(CommResume, any_comm());
        break;
    default:
        do_freeing();
    }
}

void do_asking(void)
{
    int value = -5;

    switch (roll(12)) {
    case 0:
        (void)CALL(CommUserRank, any_comm(), &value);
        break;
    case 1:
        (void)CALL(CommCount, any_comm(), &value);
        break;
    case 2:
        (void)CALL(CommCuDevice, any_comm(), &value);
        break;
    case 3:
        (void)CALL(GetVersion, &value);
        break;
    case 4:
        (void)CALL(CommGetAsyncError, any_comm(), NULL);
        break;
    case 5:
        (void)CALL(GetUniqueId, &(ncclUniqueId){{0}});
        break;
    default:
        (void)CALL(CommGetAsyncError, any_comm(), &value);
    }
    tape("  value %d\n", value);
}
