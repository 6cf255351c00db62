/* Prints what the profiler and verbs hooks cost where NCCL calls them all the time: nanoseconds per call over a plain call
 * through a pointer to a function that does nothing; the fastest of many short runs, as the machine is shared. */
#define _GNU_SOURCE

#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "verbs/hooks.h"

#define RUNS 300
#define CALLS 4000

struct plugin { const char *name; void *init, *start, *stop, *record, *finalize; };
extern const struct plugin ncclProfiler_v6;
typedef int (*record_event)(void *, int, void *);
typedef int (*start_event)(void *, void **, void *);
typedef int (*init_event)(void **, uint64_t, int *, const char *, int, int, int, void *);

static struct verbs_device device = {.name = "bench_0"};
static struct { struct verbs_context context; char rest[64]; } context;
static struct { struct verbs_qp qp; char rest[64]; } qp;
static struct { struct verbs_cq cq; char rest[64]; } cq;
static int ready;

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int nothing_recorded(void *handle, int state, void *arguments)
{
    __asm__ volatile("" ::"r"(handle), "r"(state), "r"(arguments));
    return 0;
}

static int plain_poll(struct verbs_cq *polled, int room, struct verbs_wc *wc)
{
    (void)polled, (void)room;
    if (ready == 0)
        return 0;
    wc[0] = (struct verbs_wc){.qp_number = 77, .opcode = 1};
    return ready--;
}

static int plain_post(struct verbs_qp *posted, struct verbs_send_wr *wr, struct verbs_send_wr **bad)
{
    __asm__ volatile("" ::"r"(posted), "r"(wr), "r"(bad));
    return 0;
}

static int plain_recv(struct verbs_qp *posted, struct verbs_recv_wr *wr, struct verbs_recv_wr **bad)
{
    (void)posted, (void)wr, (void)bad;
    return 0;
}

static double time_records(record_event volatile *record, void *handle, int state)
{
    size_t arguments[2] = {4096, 0};
    double best = 1e9;

    for (int run = 0; run < RUNS; run++) {
        double start = now_ns();

        for (int each = 0; each < CALLS; each++)
            (*record)(handle, state, arguments);
        start = (now_ns() - start) / CALLS;
        best = start < best ? start : best;
    }
    return best;
}

static double time_polls(verbs_poll volatile *poll)
{
    struct verbs_wc wc[4];
    double best = 1e9;

    for (int run = 0; run < RUNS; run++) {
        double start = now_ns();

        for (int each = 0; each < CALLS; each++)
            (*poll)(&cq.cq, 4, wc);
        start = (now_ns() - start) / CALLS;
        best = start < best ? start : best;
    }
    return best;
}

static double time_traffic(verbs_post_send volatile *post, verbs_poll volatile *poll)
{
    struct verbs_sge sge = {.length = 65536};
    struct verbs_send_wr last = {.sges = &sge, .sge_count = 1, .flags = SEND_SIGNALED};
    struct verbs_send_wr first = {.sges = &sge, .sge_count = 1, .next = &last}, *bad;
    struct verbs_wc wc[4];
    double best = 1e9;

    for (int run = 0; run < RUNS; run++) {
        double start = now_ns();

        for (int each = 0; each < CALLS; each++) {
            (*post)(&qp.qp, &first, &bad);
            ready = 1;
            (*poll)(&cq.cq, 4, wc);
        }
        start = (now_ns() - start) / CALLS;
        best = start < best ? start : best;
    }
    return best;
}

static struct verbs_context *open_plain(struct verbs_device *opened)
{
    context.context.device = opened;
    context.context.operations.poll = plain_poll;
    context.context.operations.post_send = plain_post;
    context.context.operations.post_recv = plain_recv;
    return &context.context;
}

static void cost_of_verbs(void)
{
    struct verbs_context *(*open_it)(struct verbs_device *);
    verbs_poll plain = plain_poll, hooked;
    verbs_post_send plain_send = plain_post, hooked_send;

    memcpy(&open_it, (void *[]){hook_for("ibv_open_device", (void *)open_plain)}, sizeof open_it);
    (void)open_it(&device);
    qp.qp = (struct verbs_qp){.context = &context.context, .send_cq = &cq.cq, .recv_cq = &cq.cq, .number = 77};
    cq.cq.context = &context.context;
    hooked = context.context.operations.poll;
    hooked_send = context.context.operations.post_send;
    printf("empty_poll %.2f\n", time_polls(&hooked) - time_polls(&plain));
    printf("post_two_poll_one %.2f\n", time_traffic(&hooked_send, &hooked) - time_traffic(&plain_send, &plain));
}

static void *start(void *profiler, uint64_t type, void *parent, int32_t first, int32_t steps)
{
    _Alignas(8) unsigned char event[192] = {0};
    void *handle = NULL;
    int32_t sends = 1;

    memcpy(event, &type, 8);
    memcpy(event + 8, &parent, sizeof parent);
    memcpy(event + 24, &first, 4);
    memcpy(event + 36, &steps, 4);
    memcpy(event + 44, &sends, 4);
    ((start_event)ncclProfiler_v6.start)(profiler, &handle, event);
    return handle;
}

static void cost_of_profiler(void)
{
    record_event plain = nothing_recorded, record = (record_event)ncclProfiler_v6.record;
    void *profiler = NULL, *proxy, *step;
    int mask;

    ((init_event)ncclProfiler_v6.init)(&profiler, 1, &mask, NULL, 1, 2, 0, NULL);
    proxy = start(profiler, 8, NULL, getpid(), 100);
    step = start(profiler, 16, proxy, 0, 0);
    record(step, 8, NULL);
    record(step, 20, NULL);
    printf("repeated_state %.2f\n", time_records(&record, step, 20) - time_records(&plain, step, 20));
}

int main(void)
{
    cost_of_profiler();
    cost_of_verbs();
    return 0;
}
