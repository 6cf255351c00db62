/* Numbers of point-to-point calls by communicator, peer and direction: what pairs a send with its receive. */
#define _GNU_SOURCE

#include <sys/mman.h>

#include "ring/internal.h"
#include "shim/nccl.h"

struct numbers {
    uint32_t *values; /* two for each peer */
    uint32_t generation, incarnation;
    int32_t ranks;
};

static struct numbers table[SHIM_MAX_COMMS];

/* Pages are taken as peers are used: a communicator of thousands costs only what it talks to. */
static bool prepare(struct numbers *numbers, const struct shim_comm *comm)
{
    size_t bytes = (size_t)comm->ranks * 2 * sizeof *numbers->values;
    void *memory;

    if (numbers->values != NULL)
        munmap(numbers->values, (size_t)numbers->ranks * 2 * sizeof *numbers->values);
    *numbers = (struct numbers){.generation = comm->generation, .incarnation = shim_incarnation};
    if (comm->ranks <= 0 || comm->ranks > 1 << 20)
        return false;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    numbers->values = memory;
    numbers->ranks = comm->ranks;
    return true;
}

uint32_t nccl_p2p_number(const struct shim_comm *comm, int32_t peer, bool is_recv)
{
    struct numbers *numbers = &table[shim_comm_slot(comm)];

    if ((numbers->generation != comm->generation || numbers->incarnation != shim_incarnation) && !prepare(numbers, comm))
        return 0;
    if (numbers->values == NULL || peer < 0 || peer >= numbers->ranks)
        return 0;
    return ++numbers->values[2 * peer + is_recv];
}
