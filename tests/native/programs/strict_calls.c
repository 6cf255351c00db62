/* The operations of the strict library: what is asked of a communicator that is ready. */
#include "strict.h"

/* All arguments as numbers. */
#define CASTS_1(a) (uint64_t)(a)
#define CASTS_2(a, ...) (uint64_t)(a), CASTS_1(__VA_ARGS__)
#define CASTS_3(a, ...) (uint64_t)(a), CASTS_2(__VA_ARGS__)
#define CASTS_4(a, ...) (uint64_t)(a), CASTS_3(__VA_ARGS__)
#define CASTS_5(a, ...) (uint64_t)(a), CASTS_4(__VA_ARGS__)
#define CASTS_6(a, ...) (uint64_t)(a), CASTS_5(__VA_ARGS__)
#define CASTS_7(a, ...) (uint64_t)(a), CASTS_6(__VA_ARGS__)
#define CASTS_8(a, ...) (uint64_t)(a), CASTS_7(__VA_ARGS__)
#define CASTS_9(a, ...) (uint64_t)(a), CASTS_8(__VA_ARGS__)
#define CASTS_10(a, ...) (uint64_t)(a), CASTS_9(__VA_ARGS__)
#define CASTS_11(a, ...) (uint64_t)(a), CASTS_10(__VA_ARGS__)
#define PICK(a, b, c, d, e, f, g, h, i, j, k, name, ...) name
#define CASTS(...)                                                                                                              \
    PICK(__VA_ARGS__, CASTS_11, CASTS_10, CASTS_9, CASTS_8, CASTS_7, CASTS_6, CASTS_5, CASTS_4, CASTS_3, CASTS_2, CASTS_1)      \
    (__VA_ARGS__)
#define DIGEST(...) digest(comm, (uint64_t[]){CASTS(__VA_ARGS__)}, sizeof((uint64_t[]){CASTS(__VA_ARGS__)}) / sizeof(uint64_t))

/* The address of a communicator differs from run to run. */
static uint64_t digest(ncclComm_t comm, const uint64_t *values, size_t count)
{
    uint64_t sum = count;

    for (size_t each = 0; each < count; each++)
        sum = mix(sum ^ (values[each] == (uint64_t)(uintptr_t)comm ? 1 : values[each]));
    return sum;
}

static int operate(enum function function, ncclComm_t handle, uint64_t sum)
{
    int result, outcome;
    struct ncclComm *comm;

    if (strict_enter(function, handle, sum) != BY_PROGRAM)
        return SUCCESS;
    comm = strict_live(handle);
    result = strict_within(function);
    outcome = strict_outcome();
    if (result == SUCCESS)
        result = strict_judge(comm);
    if (result == SUCCESS)
        result = outcome;
    if (result != SUCCESS)
        return strict_failed(result);
    if (comm->is_nonblocking && strict_self.depth == 0 && strict_dice(43, 8) == 0) {
        strict_start(comm);
        return IN_PROGRESS;
    }
    return SUCCESS;
}

#define OPERATION(name, parameters, arguments)                                                                                  \
    API(name, parameters)                                                                                                       \
    {                                                                                                                           \
        return operate(F_##name, comm, DIGEST arguments);                                                                       \
    }
OPERATIONS_OLD(OPERATION)
#ifndef OLD
OPERATIONS_NEW(OPERATION)
#endif
