/* Numbers of point-to-point calls by communicator, peer and direction: what pairs a send with its receive. */
#define _GNU_SOURCE

#include <sys/mman.h>

#include "ring/internal.h"
#include "shim/nccl.h"

static int32_t most_peers[SHIM_MAX_COMMS];

void nccl_limit_peers(const struct shim_comm *comm, int32_t most)
{
    most_peers[shim_comm_slot(comm)] = most;
}

/* Pages are taken as peers are used: a communicator of thousands costs only what it talks to. */
static uint32_t *make(int32_t ranks)
{
    uint32_t *pairs;

    if (ranks <= 0 || ranks > 1 << 20)
        return NULL;
    pairs = mmap(NULL, SHIM_PAIRS_BYTES(ranks), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pairs == MAP_FAILED)
        return NULL;
    pairs[0] = (uint32_t)ranks;
    return pairs;
}

uint32_t nccl_first_p2p_number(uint32_t slot, int32_t peer, bool is_recv)
{
    struct shim_counter *counter = shim_counter_of(slot);

    counter->pairs = make(shim_hot.comms[slot].ranks > 0 ? shim_hot.comms[slot].ranks : most_peers[slot]);
    return counter->pairs != NULL ? nccl_p2p_number(counter, slot, peer, is_recv) : 0;
}
