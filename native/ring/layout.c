/* Sizes and places of the sections in the file. */
#include <string.h>

#include "ring/internal.h"

#define PAGE 4096u
/* So far behind the start of a page the rings begin, that those of calls, which are the last, end in the next page with the first
 * communicators behind them: a call writes to both, and finds them with one walk of the page table. */
#define BEFORE_RINGS 512u
#define STANDARD (8u << 20)          /* the budget for which the counts below are made */
#define SHIM_SLOT_BUDGET (32u << 20) /* beyond it only the rings grow */

struct ring_plan {
    uint32_t rings;
    uint32_t records; /* each, for the standard budget; powers of two */
};

/* Calls: the main and the autograd thread, and one more. Rare: also the short-lived threads in which NCCL connects. Flows: NCCL
 * has a proxy thread for each group of communicators that share one. Samples: the heartbeat alone. */
static const struct ring_plan ring_plans[SHIM_RING_CLASSES] = {
    [SHIM_RING_CALLS] = {3, 16384},
    [SHIM_RING_RARE] = {16, 512},
    [SHIM_RING_FLOWS] = {12, 2048},
    [SHIM_RING_SAMPLES] = {1, 16384},
};

static uint64_t scaled(uint64_t count, uint64_t budget, uint64_t least)
{
    uint64_t result = count * budget / STANDARD;

    return result < least ? least : result;
}

static uint64_t ring_records(int ring_class, uint64_t budget)
{
    uint64_t wanted = scaled(ring_plans[ring_class].records, budget, 64), records = 64;

    while (records * 2 <= wanted)
        records *= 2;
    return records;
}

static uint64_t whole_pages(uint64_t end)
{
    return (end + PAGE - 1) / PAGE * PAGE;
}

static uint64_t add_section(struct shim_head *head, uint64_t end, uint32_t kind, size_t entry, uint64_t count)
{
    struct shim_section *section = &head->sections[head->section_count++];

    section->kind = kind;
    section->entry_bytes = (uint32_t)entry;
    section->offset = end;
    section->count = count;
    return end + entry * count;
}

uint64_t shim_plan(struct shim_head *head, uint64_t budget)
{
    uint64_t slots = budget < SHIM_SLOT_BUDGET ? budget : SHIM_SLOT_BUDGET;
    uint64_t end = PAGE, rings = 0, records = 0, pairs = scaled(512, slots, 32);

    for (int each = 0; each < SHIM_RING_CLASSES; each++) {
        rings += ring_plans[each].rings;
        records += ring_plans[each].rings * ring_records(each, budget);
    }
    head->section_count = 0;
    end = whole_pages(add_section(head, end, SHIM_SECTION_CLOCKS, sizeof(struct forensics_clock_reading), 512));
    end = add_section(head, end + BEFORE_RINGS, SHIM_SECTION_RINGS, sizeof(struct shim_ring), rings);
    end = whole_pages(add_section(head, end, SHIM_SECTION_COMMS, sizeof(struct shim_comm), scaled(256, slots, 64)));
    end = whole_pages(add_section(head, end, SHIM_SECTION_PROXY_OPS, sizeof(struct shim_proxy_op), scaled(1024, slots, 128)));
    end = whole_pages(add_section(head, end, SHIM_SECTION_QUEUE_PAIRS, sizeof(struct shim_queue_pair), pairs));
    end = whole_pages(add_section(head, end, SHIM_SECTION_EPOCHS, sizeof(struct shim_epoch_bin), pairs * SHIM_EPOCH_BINS));
    return whole_pages(add_section(head, end, SHIM_SECTION_RECORDS, sizeof(struct shim_record), records));
}

static void *at(const struct shim_head *head, uint32_t kind, uint32_t *count)
{
    for (uint32_t each = 0; each < head->section_count; each++) {
        if (head->sections[each].kind != kind)
            continue;
        if (count != NULL)
            *count = (uint32_t)head->sections[each].count;
        return (char *)(uintptr_t)head + head->sections[each].offset;
    }
    return NULL;
}

void shim_lay_out_rings(struct shim_log *log, uint64_t budget)
{
    struct shim_ring *ring = log->rings;
    uint64_t first = 0;

    for (int each = SHIM_RING_CLASSES - 1; each >= 0; each--) {
        for (uint32_t number = 0; number < ring_plans[each].rings; number++, ring++) {
            ring->ring_class = (uint32_t)each;
            ring->first = first;
            ring->records = ring_records(each, budget);
            first += ring->records;
        }
    }
}

/* `base` begins with a head whose section directory is complete. */
void shim_lay_out(struct shim_log *log, void *base)
{
    log->head = base;
    log->live = (struct shim_live *)((char *)base + SHIM_HEAD_BYTES);
    log->clocks = at(log->head, SHIM_SECTION_CLOCKS, &log->clock_count);
    log->comms = at(log->head, SHIM_SECTION_COMMS, &log->comm_count);
    log->proxy_ops = at(log->head, SHIM_SECTION_PROXY_OPS, &log->proxy_op_count);
    log->queue_pairs = at(log->head, SHIM_SECTION_QUEUE_PAIRS, &log->queue_pair_count);
    log->epochs = at(log->head, SHIM_SECTION_EPOCHS, NULL);
    log->rings = at(log->head, SHIM_SECTION_RINGS, &log->ring_count);
    log->records = at(log->head, SHIM_SECTION_RECORDS, NULL);
}

uint32_t shim_crc32(const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;
    uint32_t crc = 0xFFFFFFFFu;

    while (count-- > 0) {
        crc ^= *byte++;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
    }
    return ~crc;
}
