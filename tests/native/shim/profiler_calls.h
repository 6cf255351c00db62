/* Events as NCCL hands them to a plugin, laid out by offset as published for each version, not by the hook's declarations. */
#ifndef PROFILER_CALLS_H
#define PROFILER_CALLS_H

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

struct plugin {
    const char *name;
    void *init, *start, *stop, *record, *finalize;
};
extern const struct plugin ncclProfiler_v1, ncclProfiler_v2, ncclProfiler_v3, ncclProfiler_v4, ncclProfiler_v5, ncclProfiler_v6;
static const struct plugin *const plugins[] = {NULL, &ncclProfiler_v1, &ncclProfiler_v2, &ncclProfiler_v3,
                                               &ncclProfiler_v4, &ncclProfiler_v5, &ncclProfiler_v6};

typedef int (*init_old)(void **, int *);
typedef int (*init_four)(void **, int *, const char *, uint64_t, int, int, int, void *);
typedef int (*init_five)(void **, uint64_t, int *, const char *, int, int, int, void *);
typedef int (*start_event)(void *, void **, void *);
typedef int (*stop_event)(void *);
typedef int (*record_event)(void *, int, void *);

struct event { _Alignas(8) unsigned char bytes[192]; };

static void put(struct event *event, size_t at, const void *value, size_t size) { memcpy(event->bytes + at, value, size); }
static void put_i32(struct event *event, size_t at, int32_t value) { put(event, at, &value, sizeof value); }
static void put_u64(struct event *event, size_t at, uint64_t value) { put(event, at, &value, sizeof value); }
static void put_text(struct event *event, size_t at, const char *value) { put(event, at, &value, sizeof value); }

static struct event event_of(int version, uint64_t type, void *parent, int rank)
{
    struct event event = {{0}};

    memset(event.bytes, version >= 5 ? 0 : 0xEE, 8); /* up to v4 the type is one byte, the rest is padding */
    if (version >= 5)
        put_u64(&event, 0, type);
    else
        event.bytes[0] = (unsigned char)type;
    put_text(&event, 8, parent);
    put_i32(&event, 16, rank);
    return event;
}

static void *start(int version, void *context, struct event *event)
{
    void *handle = (void *)0x5A5A;

    EQUAL(((start_event)plugins[version]->start)(context, &handle, event), 0);
    return handle;
}

static void stop(int version, void *handle) { EQUAL(((stop_event)plugins[version]->stop)(handle), 0); }

static void finalize(int version, void *context) { EQUAL(((stop_event)plugins[version]->finalize)(context), 0); }

static void *init(int version, uint64_t id, int *mask)
{
    void *context = NULL;
    const struct plugin *plugin = plugins[version];

    if (version < 4)
        EQUAL(((init_old)plugin->init)(&context, mask), 0);
    else if (version == 4)
        EQUAL(((init_four)plugin->init)(&context, mask, "data", id, 2, 16, 3, NULL), 0);
    else
        EQUAL(((init_five)plugin->init)(&context, id, mask, "data", 2, 16, 3, NULL), 0);
    return context;
}

static void *start_coll(int version, void *context, uint64_t id, void *parent)
{
    struct event event = event_of(version, 2, parent, 3);
    size_t base = version >= 4 ? 24 : 40;

    if (version < 4) {
        put_text(&event, 24, "data");
        put_u64(&event, 32, id);
    }
    put_u64(&event, base, 7);
    if (version == 1) {
        event.bytes[48] = 4; /* AllReduce */
        event.bytes[84] = 7;
        event.bytes[106] = 1;
        event.bytes[107] = 2;
    } else {
        put_text(&event, base + 8, "AllReduce");
        put_text(&event, base + 48, "ncclFloat32");
        put_text(&event, version == 2 ? 112 : version == 3 ? 104 : 88, "RING");
        put_text(&event, version == 2 ? 120 : version == 3 ? 112 : 96, "SIMPLE");
    }
    put_u64(&event, base + 32, 1 << 20);
    put_i32(&event, base + 40, 0);
    return start(version, context, &event);
}

static void *start_p2p(int version, void *context, uint64_t id, bool sends, int peer)
{
    struct event event = event_of(version, 4, NULL, 3);

    if (version < 4) {
        put_text(&event, 24, "data");
        put_u64(&event, 32, id);
    }
    if (version == 1) {
        event.bytes[40] = sends ? 6 : 7;
        event.bytes[56] = 7;
    } else {
        put_text(&event, version < 4 ? 40 : 24, sends ? "Send" : "Recv");
        put_text(&event, version < 4 ? 56 : 40, "ncclBfloat16");
    }
    put_u64(&event, version < 4 ? 64 : 48, 4096);
    put_i32(&event, version < 4 ? 72 : 56, peer);
    return start(version, context, &event);
}

static void *start_proxy(int version, void *context, void *parent, int pid, int channel, int peer, int steps, bool sends)
{
    struct event event = event_of(version, 8, parent, 3);

    put_i32(&event, 24, pid);
    event.bytes[28] = (unsigned char)channel;
    put_i32(&event, 32, peer);
    put_i32(&event, 36, steps);
    put_i32(&event, 40, 1 << 17);
    put_i32(&event, 44, sends);
    return start(version, context, &event);
}

static void *start_step(int version, void *context, void *proxy, int step)
{
    struct event event = event_of(version, 16, proxy, 3);

    put_i32(&event, 24, step);
    return start(version, context, &event);
}

static void record_step(int version, void *handle, int state, size_t bytes)
{
    size_t arguments[2] = {bytes, 0};

    EQUAL(((record_event)plugins[version]->record)(handle, state, version >= 4 ? arguments : NULL), 0);
}

static void record_proxy(int version, void *handle, int state, size_t bytes, int steps)
{
    struct { size_t bytes; int steps; } arguments = {bytes, steps};

    EQUAL(((record_event)plugins[version]->record)(handle, state, &arguments), 0);
}

#endif
