/* One proxy operation, driven by chance, with a count of its own. */
#ifndef PROFILER_MODEL_H
#define PROFILER_MODEL_H

#include "profiler_calls.h"

#define STEPS 20
static const int send_states[] = {8, 20, 9}, recv_states[] = {10, 11, 12};

struct model {
    int version, total, first, begun; /* steps first..begun-1 are alive */
    bool sends;
    void *context, *proxy, *steps[STEPS];
    int level[STEPS];
    uint32_t reached[5]; /* by level: 1 posted .. 4 finished */
    uint64_t size[STEPS], bytes, low[3], high[3], entered_low[STEPS], entered_high[STEPS];
};

static void leave_wait(struct model *model, int step, uint64_t before, uint64_t after)
{
    int level = model->level[step];

    if (level < 1)
        return;
    model->low[level - 1] += before > model->entered_high[step] ? before - model->entered_high[step] : 0;
    model->high[level - 1] += after - model->entered_low[step];
}

static void enter_level(struct model *model, int step, int level, uint64_t before, uint64_t after)
{
    leave_wait(model, step, before, after);
    for (int reached = model->level[step] + 1; reached <= level; reached++)
        model->reached[reached]++;
    model->level[step] = level;
    model->entered_low[step] = before;
    model->entered_high[step] = after;
}

static void begin_step(struct model *model)
{
    int step = model->begun++, repeats = model->sends ? 1 : 1 + (int)roll(4);

    for (int each = 0; each < repeats; each++) { /* a receiver begins again until it could post */
        void *handle = start_step(model->version, model->context, model->proxy, step);

        CHECK(handle != NULL && (each == 0 || handle == model->steps[step]));
        model->steps[step] = handle;
    }
    model->size[step] = 1 + roll(1 << 17);
}

static void move_step(struct model *model, int step)
{
    int level = model->level[step] + 1, state = model->sends ? send_states[level - 1] : recv_states[level - 1];
    bool has_peer_wait = model->version >= 4;
    uint64_t before;

    if (model->sends && level == 2 && !has_peer_wait) {
        before = shim_now();
        record_proxy(model->version, model->proxy, 1, 0, step + 1);
        record_proxy(model->version, model->proxy, 1, 0, step + 1);
        enter_level(model, step, 2, before, shim_now());
        return;
    }
    before = shim_now();
    record_step(model->version, model->steps[step], state, level == (model->sends ? 3 : 2) ? model->size[step] : 12345);
    enter_level(model, step, level, before, shim_now());
    for (uint32_t each = roll(4); each > 0; each--) /* told again while nothing changes, or late: both mean nothing */
        record_step(model->version, model->steps[step], roll(2) ? state : (model->sends ? 8 : 10), 99);
}

static void end_step(struct model *model)
{
    int step = model->first++;
    uint64_t before = shim_now();

    stop(model->version, model->steps[step]);
    enter_level(model, step, 4, before, shim_now());
    model->bytes += model->size[step];
    if (model->version < 4)
        record_proxy(model->version, model->proxy, model->sends ? 3 : 7, model->bytes, model->first);
}

/* NCCL moves each stage in order: a step never overtakes the one before it. */
static void turn(struct model *model)
{
    int step = model->first + (model->begun > model->first ? (int)roll((uint32_t)(model->begun - model->first)) : 0);

    if (model->begun < model->total && model->begun - model->first < 8 && roll(3) == 0)
        begin_step(model);
    else if (model->begun == model->first)
        return;
    else if (model->level[model->first] == 3)
        end_step(model);
    else if (model->level[step] < 3 && (step == model->first || model->level[step - 1] > model->level[step]))
        move_step(model, step);
}

static const struct shim_proxy_op *slot_of(const struct model *model, int channel, uint32_t op_number)
{
    const struct shim_proxy_op *found = NULL;

    for (uint32_t each = 0; each < shim_log.proxy_op_count; each++) {
        const struct shim_proxy_op *slot = &shim_log.proxy_ops[each];

        if (slot->state != SHIM_SLOT_FREE && slot->channel == channel && slot->op_number == op_number &&
            slot->direction == (model->sends ? SHIM_DIRECTION_SEND : SHIM_DIRECTION_RECV))
            found = found == NULL || slot->start > found->start ? slot : found;
    }
    CHECK(found != NULL);
    return found;
}

static void compare(const struct model *model, const struct shim_proxy_op *slot)
{
    unsigned first = model->sends ? SHIM_WAIT_GPU : SHIM_WAIT_WIRE;

    EQUAL(slot->posted, model->reached[1]);
    EQUAL(model->sends ? slot->gpu_ready : slot->received, model->reached[2]);
    EQUAL(model->sends ? slot->transmitted : slot->flushed, model->reached[3]);
    EQUAL(model->sends ? slot->done : slot->consumed, model->reached[4]);
    EQUAL(slot->bytes, model->bytes);
    EQUAL(slot->total, model->total);
    EQUAL(slot->unbalanced, 0);
    for (unsigned each = 0; each < 3; each++)
        CHECK(slot->wait[first + each] >= model->low[each] && slot->wait[first + each] <= model->high[each]);
    if (model->level[model->first % STEPS] > 0 && model->first < model->begun)
        EQUAL(slot->waiting, first + (unsigned)model->level[model->first] - 1);
}

#endif
