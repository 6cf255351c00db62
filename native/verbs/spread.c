/* Where the bytes of a completion lie in time. */
#include "verbs/hooks.h"

static uint32_t saturated(uint64_t value)
{
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static struct shim_epoch_bin *newest(struct shim_queue_pair *slot, uint64_t back)
{
    return &shim_queue_pair_bins(slot)[(LOAD(slot->bins) - 1 - back) % SHIM_EPOCH_BINS];
}

static struct shim_epoch_bin *append(struct shim_queue_pair *slot, uint64_t epoch)
{
    struct shim_epoch_bin *bin = &shim_queue_pair_bins(slot)[LOAD(slot->bins) % SHIM_EPOCH_BINS];

    STORE(bin->epoch, 0u);
    STORE(bin->bytes, 0u);
    STORE(bin->poll_gap, 0u);
    __atomic_store_n(&bin->epoch, epoch, __ATOMIC_RELEASE);
    GROW(slot->bins, 1);
    return bin;
}

/* The bin of an epoch; for one that passed without a bin, the next later one. */
static struct shim_epoch_bin *bin_of(struct shim_queue_pair *slot, uint64_t epoch)
{
    uint64_t bins = LOAD(slot->bins), back = 0;

    if (bins == 0 || LOAD(newest(slot, 0)->epoch) < epoch)
        return append(slot, epoch);
    while (back + 1 < bins && back + 1 < SHIM_EPOCH_BINS && LOAD(newest(slot, back + 1)->epoch) >= epoch)
        back++;
    return newest(slot, back);
}

static void add(struct shim_epoch_bin *bin, uint64_t bytes)
{
    STORE(bin->bytes, saturated(LOAD(bin->bytes) + bytes));
}

/* A completion says that its bytes left between the one before it, or their post, and now: they are spread evenly over that
 * time, so that 1 MB does not all lie where it was polled. What is older than the bins reach is left out. */
void spread_bytes(struct shim_queue_pair *slot, uint64_t from, uint64_t to, uint64_t bytes, uint64_t poll_gap)
{
    uint32_t shift = shim_log.head->epoch_shift;
    uint64_t last = to >> shift, first = from < to ? from >> shift : last, share;
    struct shim_epoch_bin *bin;

    share = first == last ? 0 : bytes / (last - first + 1);
    bytes -= share * (last - first);
    if (last - first >= SHIM_EPOCH_BINS)
        first = last - SHIM_EPOCH_BINS + 1;
    for (uint64_t epoch = first; epoch < last; epoch++)
        add(bin_of(slot, epoch), share);
    bin = bin_of(slot, last);
    add(bin, bytes);
    if (poll_gap > LOAD(bin->poll_gap))
        STORE(bin->poll_gap, saturated(poll_gap));
}
