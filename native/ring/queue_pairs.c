/* Epoch bins and events of queue pairs. */
#include "ring/internal.h"

static uint32_t saturated(uint64_t value)
{
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static struct shim_epoch_bin *begin(struct shim_queue_pair *qp, uint64_t epoch)
{
    struct shim_epoch_bin *bin = &shim_queue_pair_bins(qp)[SHIM_LOAD(qp->bins) % SHIM_EPOCH_BINS];

    SHIM_STORE(bin->epoch, 0u);
    SHIM_STORE(bin->bytes, 0u);
    SHIM_STORE(bin->poll_gap, 0u);
    __atomic_store_n(&bin->epoch, epoch, __ATOMIC_RELEASE);
    SHIM_STORE(qp->bins, SHIM_LOAD(qp->bins) + 1);
    return bin;
}

void shim_epoch_add(struct shim_queue_pair *qp, uint64_t now, uint64_t bytes, uint64_t poll_gap)
{
    struct shim_epoch_bin *bin;
    uint64_t epoch, bins;

    if (qp == NULL || !shim_on())
        return;
    epoch = now >> shim_log.head->epoch_shift;
    bins = SHIM_LOAD(qp->bins);
    bin = &shim_queue_pair_bins(qp)[(bins + SHIM_EPOCH_BINS - 1) % SHIM_EPOCH_BINS];
    if (bins == 0 || SHIM_LOAD(bin->epoch) != epoch)
        bin = begin(qp, epoch);
    SHIM_STORE(bin->bytes, saturated(SHIM_LOAD(bin->bytes) + bytes));
    if (poll_gap > SHIM_LOAD(bin->poll_gap))
        SHIM_STORE(bin->poll_gap, saturated(poll_gap));
}

void shim_record_qp_event(const struct shim_queue_pair *qp, enum shim_qp_event event, uint64_t now)
{
    struct shim_qp_event_record *record = qp != NULL ? (struct shim_qp_event_record *)shim_reserve(SHIM_RING_RARE) : NULL;

    if (record == NULL)
        return;
    record->time = now;
    record->wr_id = qp->error_wr_id;
    record->context = qp->context;
    record->number = qp->number;
    record->remote_number = qp->remote_number;
    record->status = qp->error_status;
    record->vendor_error = qp->error_vendor;
    record->slot = shim_queue_pair_slot(qp);
    record->event = (uint8_t)event;
    record->port = qp->port;
    record->timeout = qp->timeout;
    record->retry_count = qp->retry_count;
    record->kind = SHIM_QP_EVENT;
    record->generation = (uint8_t)qp->generation;
    record->comm = SHIM_NO_COMM;
    shim_publish((struct shim_record *)record, SHIM_RING_RARE);
}
