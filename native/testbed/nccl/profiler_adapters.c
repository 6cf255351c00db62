/* One function per version of the plugin interface: fills that version's descriptor. */
#include <string.h>

#include "profiler.h"

#define ALGO_RING 1
#define PROTO_SIMPLE 2

static const char *type_name(ncclDataType_t type)
{
    static const char *const NAMES[ncclNumTypes] = {
        "ncclInt8",    "ncclUint8",   "ncclInt32",    "ncclUint32",     "ncclInt64",      "ncclUint64",
        "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2",
    };

    return NAMES[type];
}

/* What all versions share. */
#define HEAD(event)                              \
    memset(&descr, 0, sizeof descr);             \
    descr.type = (uint8_t)(event)->type;         \
    descr.parentObj = (event)->parent;           \
    descr.rank = (event)->rank
#define HEAD_V5(event)                           \
    HEAD(event);                                 \
    descr.type = (event)->type
#define COLL(event)                                       \
    descr.coll.seqNumber = (event)->sequence;             \
    descr.coll.sendBuff = (event)->task->in;              \
    descr.coll.recvBuff = (event)->task->out;             \
    descr.coll.count = (event)->task->count;              \
    descr.coll.root = (event)->task->root;                \
    descr.coll.nWarps = 16
#define COLL_NAMES(event)                                 \
    COLL(event);                                          \
    descr.coll.func = func_name((event)->task->func);     \
    descr.coll.datatype = type_name((event)->task->type); \
    descr.coll.algo = "RING";                             \
    descr.coll.proto = "SIMPLE"
#define P2P(event)                                                                                                      \
    descr.p2p.buff = (event)->task->func == FUNC_SEND ? (void *)(uintptr_t)(event)->task->in : (event)->task->out;      \
    descr.p2p.count = (event)->task->count;                                                                             \
    descr.p2p.peer = (event)->task->root
#define P2P_NAMES(event)                                  \
    P2P(event);                                           \
    descr.p2p.func = func_name((event)->task->func);      \
    descr.p2p.datatype = type_name((event)->task->type)
#define PROXY(event)                                      \
    case EVENT_PROXY_OP:                                  \
        descr.proxyOp.pid = (event)->pid;                 \
        descr.proxyOp.channelId = (uint8_t)(event)->channel; \
        descr.proxyOp.peer = (event)->peer;               \
        descr.proxyOp.nSteps = (event)->steps;            \
        descr.proxyOp.chunkSize = (event)->chunk;         \
        descr.proxyOp.isSend = (event)->is_send;          \
        break;                                            \
    case EVENT_PROXY_STEP:                                \
        descr.proxyStep.step = (event)->step;             \
        break;                                            \
    default:                                              \
        break
#define KERNEL(event)                                     \
    case EVENT_KERNEL_CH:                                 \
        descr.kernelCh.channelId = (uint8_t)(event)->channel; \
        descr.kernelCh.pTimer = (event)->clock;           \
        break
/* Up to version 4 the parent of a task is the group; its name and hash are filled only where the version was current. */
#define OLD_TASK(event, member)                           \
    descr.parentObj = (event)->group;                     \
    descr.member.name = profiler.native < 4 ? (event)->comm_name : NULL; \
    descr.member.commHash = profiler.native < 4 ? (event)->comm : 0

static void start_v1(const struct event *event, void *context, void **handle)
{
    struct descr_v1 descr;

    HEAD(event);
    switch (event->type) {
    case EVENT_COLL:
        OLD_TASK(event, coll);
        COLL(event);
        descr.coll.func = (uint8_t)event->task->func;
        descr.coll.datatype = (uint8_t)event->task->type;
        descr.coll.nMaxChannels = (uint8_t)event->channels;
        descr.coll.op = profiler.native == 1 ? (uint32_t)event->task->op : 0;
        descr.coll.algo = ALGO_RING;
        descr.coll.proto = PROTO_SIMPLE;
        break;
    case EVENT_P2P:
        OLD_TASK(event, p2p);
        P2P(event);
        descr.p2p.func = (uint8_t)event->task->func;
        descr.p2p.datatype = (uint8_t)event->task->type;
        break;
        PROXY(event);
    }
    profiler.plugin->start(context, handle, &descr);
}

#define START_OLD(version, EXTRA)                                                         \
    static void start_v##version(const struct event *event, void *context, void **handle) \
    {                                                                                     \
        struct descr_v##version descr;                                                    \
                                                                                          \
        HEAD(event);                                                                      \
        switch (event->type) {                                                            \
        case EVENT_COLL:                                                                  \
            OLD_TASK(event, coll);                                                        \
            COLL_NAMES(event);                                                            \
            descr.coll.nMaxChannels = (uint8_t)event->channels;                           \
            break;                                                                        \
        case EVENT_P2P:                                                                   \
            OLD_TASK(event, p2p);                                                         \
            P2P_NAMES(event);                                                             \
            break;                                                                        \
            EXTRA                                                                         \
            PROXY(event);                                                                 \
        }                                                                                 \
        profiler.plugin->start(context, handle, &descr);                                  \
    }

START_OLD(2, )
START_OLD(3, case EVENT_KERNEL_CH: descr.kernelCh.channelId = (uint8_t)event->channel; break;)

static void start_v4(const struct event *event, void *context, void **handle)
{
    struct descr_v4 descr;

    HEAD(event);
    switch (event->type) {
    case EVENT_COLL:
        descr.parentObj = event->group;
        COLL_NAMES(event);
        descr.coll.nChannels = (uint8_t)event->channels;
        break;
    case EVENT_P2P:
        descr.parentObj = event->group;
        P2P_NAMES(event);
        descr.p2p.nChannels = (uint8_t)event->channels;
        break;
        KERNEL(event);
        PROXY(event);
    }
    profiler.plugin->start(context, handle, &descr);
}

#define API_CALL(event, member)                                 \
    descr.member.func = func_name((event)->task->api);          \
    descr.member.count = (event)->task->count;                  \
    descr.member.datatype = type_name((event)->task->type);     \
    descr.member.stream = (event)->task->stream

#define START_NEW(version, TAG_COLL_API, TAG_P2P_API, TAG_COLL, TAG_P2P)                  \
    static void start_v##version(const struct event *event, void *context, void **handle) \
    {                                                                                     \
        struct descr_v##version descr;                                                    \
                                                                                          \
        HEAD_V5(event);                                                                   \
        switch (event->type) {                                                            \
        case EVENT_GROUP_API:                                                             \
            descr.groupApi.groupDepth = event->depth;                                     \
            break;                                                                        \
        case EVENT_COLL_API:                                                              \
            API_CALL(event, collApi);                                                     \
            descr.collApi.root = event->task->root;                                       \
            TAG_COLL_API                                                                  \
            break;                                                                        \
        case EVENT_P2P_API:                                                               \
            API_CALL(event, p2pApi);                                                      \
            TAG_P2P_API                                                                   \
            break;                                                                        \
        case EVENT_KERNEL_LAUNCH:                                                         \
            descr.kernelLaunch.stream = event->task->stream;                              \
            break;                                                                        \
        case EVENT_COLL:                                                                  \
            COLL_NAMES(event);                                                            \
            descr.coll.nChannels = (uint8_t)event->channels;                              \
            descr.coll.parentGroup = event->group;                                        \
            TAG_COLL                                                                      \
            break;                                                                        \
        case EVENT_P2P:                                                                   \
            P2P_NAMES(event);                                                             \
            descr.p2p.nChannels = (uint8_t)event->channels;                               \
            descr.p2p.parentGroup = event->group;                                         \
            TAG_P2P                                                                       \
            break;                                                                        \
            KERNEL(event);                                                                \
            PROXY(event);                                                                 \
        }                                                                                 \
        profiler.plugin->start(context, handle, &descr);                                  \
    }

START_NEW(5, , , , )
START_NEW(6, , , , )
START_NEW(7, descr.collApi.userTag = event->task->tag;, descr.p2pApi.userTag = event->task->tag;,
          descr.coll.userTag = event->task->tag; descr.coll.kernelVariant = "AllReduce_RING_SIMPLE";,
              descr.p2p.userTag = event->task->tag;)

void adapter_start(const struct event *event, void *context, void **handle)
{
    static void (*const STARTS[])(const struct event *, void *, void **) = {
        NULL, start_v1, start_v2, start_v3, start_v4, start_v5, start_v6, start_v7,
    };
    static const uint64_t KNOWN[] = {0, 63, 63, 255, 255, 4095, 4095, 4095};

    *handle = NULL;
    if ((event->type & KNOWN[profiler.version]) != 0)
        STARTS[profiler.version](event, context, handle);
}
