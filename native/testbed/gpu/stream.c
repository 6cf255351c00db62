#define _GNU_SOURCE

#include "stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "fault.h"

struct entry {
    struct entry *next;
    testbed_work work;
    void *argument;
};

struct testbed_stream {
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct entry *first, *last;
    int ending;
};

struct testbed_event {
    _Atomic uint64_t asked, reached;
};

struct point {
    testbed_event_t event;
    uint64_t number;
};

struct kernel {
    uint64_t us, ends;
    int stalls;
};

static struct entry *next_entry(testbed_stream_t stream)
{
    pthread_mutex_lock(&stream->lock);
    while (stream->first == NULL && !stream->ending)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    return stream->first;
}

static void *run(void *argument)
{
    testbed_stream_t stream = argument;
    struct entry *entry;

    while ((entry = next_entry(stream)) != NULL) {
        unsigned idle = 0;

        while (!entry->work(entry->argument))
            bed_pause(&idle);
        bed_moved();
        pthread_mutex_lock(&stream->lock);
        stream->first = entry->next;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
        free(entry);
    }
    return NULL;
}

int testbed_stream_create(testbed_stream_t *stream)
{
    testbed_stream_t made = calloc(1, sizeof *made);

    if (made == NULL)
        return -1;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    *stream = made;
    return pthread_create(&made->worker, NULL, run, made);
}

static testbed_stream_t default_stream;

static void create_default(void)
{
    testbed_stream_create(&default_stream);
}

static testbed_stream_t the(testbed_stream_t stream)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (stream != NULL)
        return stream;
    pthread_once(&once, create_default);
    return default_stream;
}

int testbed_enqueue(testbed_stream_t stream, testbed_work work, void *argument)
{
    struct entry *entry = calloc(1, sizeof *entry);

    if (entry == NULL)
        return -1;
    stream = the(stream);
    entry->work = work;
    entry->argument = argument;
    pthread_mutex_lock(&stream->lock);
    if (stream->first == NULL)
        stream->first = entry;
    else
        stream->last->next = entry;
    stream->last = entry;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return 0;
}

int testbed_stream_synchronize(testbed_stream_t stream)
{
    stream = the(stream);
    pthread_mutex_lock(&stream->lock);
    while (stream->first != NULL)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    return 0;
}

int testbed_stream_query(testbed_stream_t stream)
{
    int empty;

    stream = the(stream);
    pthread_mutex_lock(&stream->lock);
    empty = stream->first == NULL;
    pthread_mutex_unlock(&stream->lock);
    return empty;
}

int testbed_stream_destroy(testbed_stream_t stream)
{
    testbed_stream_synchronize(stream);
    pthread_mutex_lock(&stream->lock);
    stream->ending = 1;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->worker, NULL);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->changed);
    free(stream);
    return 0;
}

static int compute(void *argument)
{
    struct kernel *kernel = argument;

    if (kernel->stalls)
        return 0;
    if (kernel->ends == 0) {
        fault_jitter();
        kernel->ends = bed_now_us() + kernel->us;
    }
    if (bed_now_us() < kernel->ends)
        return 0;
    free(kernel);
    return 1;
}

int testbed_launch(testbed_stream_t stream, long us)
{
    struct kernel *kernel = calloc(1, sizeof *kernel);

    if (kernel == NULL)
        return -1;
    kernel->us = us > 0 ? (uint64_t)us : 0;
    kernel->stalls = fault_now(FAULT_COMPUTE_STALL) != NULL;
    return testbed_enqueue(stream, compute, kernel);
}

int testbed_event_create(testbed_event_t *event)
{
    *event = calloc(1, sizeof **event);
    return *event != NULL ? 0 : -1;
}

int testbed_event_destroy(testbed_event_t event)
{
    free(event);
    return 0;
}

static int reach(void *argument)
{
    struct point *point = argument;

    atomic_store(&point->event->reached, point->number);
    free(point);
    return 1;
}

static int wait_for(void *argument)
{
    struct point *point = argument;

    if (atomic_load(&point->event->reached) < point->number)
        return 0;
    free(point);
    return 1;
}

static int enqueue_point(testbed_stream_t stream, testbed_event_t event, uint64_t number, testbed_work work)
{
    struct point *point = calloc(1, sizeof *point);

    if (point == NULL)
        return -1;
    *point = (struct point){event, number};
    return testbed_enqueue(stream, work, point);
}

int testbed_event_record(testbed_event_t event, testbed_stream_t stream)
{
    return enqueue_point(stream, event, atomic_fetch_add(&event->asked, 1) + 1, reach);
}

int testbed_stream_wait_event(testbed_stream_t stream, testbed_event_t event)
{
    return enqueue_point(stream, event, atomic_load(&event->asked), wait_for);
}
