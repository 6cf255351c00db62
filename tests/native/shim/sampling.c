/* Two proxy operations for 1.6 seconds: on channel 0 one that moves, on channel 1 one that is stuck. */
#define _GNU_SOURCE
#include <unistd.h>

#include "ring/log.h"

static struct shim_proxy_op *begin(uint8_t channel)
{
    struct shim_proxy_op *op = shim_proxy_op_claim();

    op->channel = channel;
    op->op_number = 1;
    op->total = 1000;
    op->start = op->last_change = shim_now();
    shim_proxy_op_publish(op);
    return op;
}

int main(void)
{
    struct shim_proxy_op *moving, *stuck;

    if (!shim_start())
        return 1;
    moving = begin(0);
    stuck = begin(1);
    __atomic_store_n(&stuck->posted, 7, __ATOMIC_RELAXED);
    for (uint32_t step = 1; step <= 80; step++) {
        __atomic_store_n(&moving->posted, step, __ATOMIC_RELAXED);
        __atomic_store_n(&moving->last_change, shim_now(), __ATOMIC_RELAXED);
        usleep(20000);
    }
    return 0;
}
