/* Drives a profiler plugin as NCCL of the chosen version does. Every function does nothing where no plugin is loaded. */
#ifndef TESTBED_PROFILER_H
#define TESTBED_PROFILER_H

#include "comm.h"
#include "profiler_abi.h"

/* An event of any version; the adapters pick what a version knows. */
struct event {
    uint64_t type;
    void *parent, *group;
    int pid, rank, depth, channel, peer, steps, chunk, is_send, step, channels;
    const struct task *task;
    uint64_t comm, sequence, clock;
    const char *comm_name;
};

struct profiler {
    int version;      /* of the interface that is bound; 0: none */
    int native;       /* the one this NCCL version was written for */
    struct plugin *plugin;
    _Atomic int mask; /* as the plugin set it; it may change it at any time */
};

extern struct profiler profiler;

const char *func_name(enum func func);
/* Calls the plugin's startEvent with the layout of its version; the handle is NULL where the version has no such event. */
void adapter_start(const struct event *event, void *context, void **handle);

void profiler_init(struct ncclComm *comm);
void profiler_finalize(struct ncclComm *comm);

/* The calls: before and after an operation is queued, and around the end of the outermost group. */
void profiler_call_start(struct task *task, int depth);
void profiler_call_stop(struct task *task);
void profiler_group_ending(void);
void profiler_group_stop(void);

/* A launch of one communicator's tasks. */
void profiler_launch(struct ncclComm *comm, const struct task *first);
void *profiler_plan_start(struct ncclComm *comm, const struct task *first);
void profiler_task_start(struct task *task, void *plan, int channels);
void profiler_task_stop(struct task *task);
void profiler_plan_stop(void *plan);

void profiler_op_start(struct proxy_op *op);
void profiler_op_state(struct proxy_op *op, enum event_state state, uint32_t steps);
void profiler_op_stop(struct proxy_op *op);
void profiler_step_start(struct proxy_op *op, uint32_t step);
void profiler_step_state(struct proxy_op *op, uint32_t step, enum event_state state);
void profiler_step_stop(struct proxy_op *op, uint32_t step);
void profiler_control(struct ncclComm *comm, int appended);
void profiler_control_idle(struct ncclComm *comm, int idle);
void profiler_kernel_start(struct lane *lane, uint64_t clock);
void profiler_kernel_stop(struct lane *lane, uint64_t clock);

#endif
