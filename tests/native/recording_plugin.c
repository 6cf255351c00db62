/* A profiler plugin that writes down every callback, one line each, to $RECORDING_DIR/<pid>.rec. Built once per version of the
 * interface with -DVERSION=n, so that each binary offers exactly one version. Handles are numbers that never come back. */
#define _GNU_SOURCE

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler_abi.h"

#define JOIN(a, b) a##b
#define NAMED(prefix, version) JOIN(prefix, version)
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

typedef struct NAMED(descr_v, VERSION) descr;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long handles;
static FILE *file;

static void open_file(void)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%d.rec", getenv("RECORDING_DIR"), (int)getpid());
    file = fopen(path, "w");
    if (file == NULL)
        abort();
    setvbuf(file, NULL, _IOLBF, 4096);
}

#define WRITE(...)                     \
    do {                               \
        pthread_mutex_lock(&lock);     \
        if (file == NULL)              \
            open_file();               \
        fprintf(file, __VA_ARGS__);    \
        pthread_mutex_unlock(&lock);   \
    } while (0)

static int begin(void **context, int *mask, const char *name, unsigned long id, int nodes, int ranks, int rank)
{
    const char *wanted = getenv("RECORDING_MASK");

    *mask = wanted != NULL ? atoi(wanted) : 4095;
    *context = (void *)(__atomic_add_fetch(&handles, 1, __ATOMIC_RELAXED));
    WRITE("init %lu comm=%lu nodes=%d ranks=%d rank=%d name=%s\n", (unsigned long)*context, id, nodes, ranks, rank,
        name ? name : "-");
    return 0;
}

#if VERSION <= 3
static int initialize(void **context, int *mask)
{
    return begin(context, mask, NULL, 0, 0, 0, 0);
}
#elif VERSION == 4
static int initialize(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank,
    plugin_logger log)
{
    (void)log;
    return begin(context, mask, name, hash, nodes, ranks, rank);
}
#else
static int initialize(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank,
    plugin_logger log)
{
    (void)log;
    return begin(context, mask, name, id, nodes, ranks, rank);
}
#endif

/* Version 1 gives numbers where the later ones give names. */
#if VERSION == 1
#define NAME "%d"
#else
#define NAME "%s"
#endif

static int start(void *context, void **handle, void *given)
{
    const descr *event = given;
    unsigned long number = __atomic_add_fetch(&handles, 1, __ATOMIC_RELAXED), parent = (unsigned long)event->parentObj;
    unsigned long type = (unsigned long)event->type;

    *handle = (void *)number;
    if (type == EVENT_COLL)
        WRITE("start %lu type=2 parent=%lu in=%lu rank=%d func=" NAME " seq=%lu count=%zu algo=" NAME "\n", number, parent,
              (unsigned long)context, event->rank, event->coll.func, event->coll.seqNumber, event->coll.count,
                  event->coll.algo);
    else if (type == EVENT_P2P)
        WRITE("start %lu type=4 parent=%lu in=%lu rank=%d func=" NAME " peer=%d count=%zu\n", number, parent,
            (unsigned long)context,
              event->rank, event->p2p.func, event->p2p.peer, event->p2p.count);
    else if (type == EVENT_PROXY_OP)
        WRITE("start %lu type=8 parent=%lu in=%lu rank=%d pid=%d channel=%d peer=%d steps=%d send=%d\n", number, parent,
              (unsigned long)context, event->rank, event->proxyOp.pid, event->proxyOp.channelId, event->proxyOp.peer,
              event->proxyOp.nSteps, event->proxyOp.isSend);
    else if (type == EVENT_PROXY_STEP)
        WRITE("start %lu type=16 parent=%lu in=%lu rank=%d step=%d\n", number, parent, (unsigned long)context, event->rank,
              event->proxyStep.step);
    else
        WRITE("start %lu type=%lu parent=%lu in=%lu rank=%d\n", number, type, parent, (unsigned long)context, event->rank);
    return 0;
}

static int stop(void *handle)
{
    WRITE("stop %lu\n", (unsigned long)handle);
    return 0;
}

static int record(void *handle, int state, void *arguments)
{
    size_t size = 0;

    if (arguments != NULL && state >= STATE_SEND_GPU_WAIT && state <= STATE_RECV_GPU_WAIT)
        memcpy(&size, arguments, sizeof size); /* the first member in every version */
    WRITE("state %lu value=%d size=%zu\n", (unsigned long)handle, state, size);
    return 0;
}

static int finalize(void *context)
{
    WRITE("finalize %lu\n", (unsigned long)context);
    return 0;
}

__attribute__((visibility("default"))) struct plugin NAMED(ncclProfiler_v, VERSION) = {
    "recording " TEXT(VERSION), (void *)initialize, start, stop, record, finalize,
};
