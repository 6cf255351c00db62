/* The profiler plugin interface: the layouts that NVIDIA publishes with NCCL 2.30.7 (src/include/plugin/profiler,
    versions 1 to 6)
 * and with 2.31 (version 7). Declared here anew, in the order of the published members. */
#ifndef TESTBED_PROFILER_ABI_H
#define TESTBED_PROFILER_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum event_type {
    EVENT_GROUP = 1, EVENT_COLL = 2, EVENT_P2P = 4, EVENT_PROXY_OP = 8, EVENT_PROXY_STEP = 16, EVENT_PROXY_CTRL = 32,
    EVENT_KERNEL_CH = 64, EVENT_NET_PLUGIN = 128, EVENT_GROUP_API = 256, EVENT_COLL_API = 512, EVENT_P2P_API = 1024,
    EVENT_KERNEL_LAUNCH = 2048,
};

enum event_state {
    STATE_OP_SEND_POSTED, STATE_OP_SEND_REM_FIFO_WAIT, STATE_OP_SEND_TRANSMITTED, STATE_OP_SEND_DONE, STATE_OP_RECV_POSTED,
    STATE_OP_RECV_RECEIVED, STATE_OP_RECV_TRANSMITTED, STATE_OP_RECV_DONE, STATE_SEND_GPU_WAIT, STATE_SEND_WAIT,
    STATE_RECV_WAIT,
    STATE_RECV_FLUSH_WAIT, STATE_RECV_GPU_WAIT, STATE_CTRL_IDLE, STATE_CTRL_ACTIVE, STATE_CTRL_SLEEP, STATE_CTRL_WAKEUP,
    STATE_CTRL_APPEND, STATE_CTRL_APPEND_END, STATE_OP_IN_PROGRESS, STATE_SEND_PEER_WAIT, STATE_NET_UPDATE, STATE_KERNEL_STOP,
    STATE_GROUP_START_STOP, STATE_GROUP_END_START,
};

typedef void (*plugin_logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

#define PROXY_MEMBERS                                                                                    \
    struct { int pid; uint8_t channelId; int peer, nSteps, chunkSize, isSend; } proxyOp;                 \
    struct { int step; } proxyStep;
#define NET_MEMBERS struct { int64_t id; void *data; } netPlugin;

struct descr_v1 {
    uint8_t type; void *parentObj; int rank;
    union {
        struct {
            const char *name; uint64_t commHash, seqNumber; uint8_t func; void const *sendBuff; void *recvBuff;
            size_t count; int root;
            uint8_t datatype; uint32_t op; size_t trafficBytes; uint8_t nMaxChannels, nWarps, algo, proto; int isCollnet,
            isNvls;
        } coll;
        struct { const char *name; uint64_t commHash; uint8_t func; void *buff; uint8_t datatype; size_t count; int peer; } p2p;
        PROXY_MEMBERS
    };
};

#define NAMED_P2P                                                                                                             \
    struct {                                                                                                                  \
        const char *name; uint64_t commHash; const char *func; void *buff; const char *datatype; size_t count; int peer;      \
    } p2p;

struct descr_v2 {
    uint8_t type; void *parentObj; int rank;
    union {
        struct {
            const char *name; uint64_t commHash, seqNumber; const char *func; void const *sendBuff; void *recvBuff;
            size_t count;
            int root; const char *datatype; size_t trafficBytes; uint8_t nMaxChannels, nWarps; const char *algo, *proto;
        } coll;
        NAMED_P2P
        PROXY_MEMBERS
    };
};

struct descr_v3 {
    uint8_t type; void *parentObj; int rank;
    union {
        struct {
            const char *name; uint64_t commHash, seqNumber; const char *func; void const *sendBuff; void *recvBuff;
            size_t count;
            int root; const char *datatype; uint8_t nMaxChannels, nWarps; const char *algo, *proto;
        } coll;
        NAMED_P2P
        PROXY_MEMBERS
        struct { uint8_t channelId; } kernelCh;
        NET_MEMBERS
    };
};

#define COLL_V4                                                                                                             \
    uint64_t seqNumber; const char *func; void const *sendBuff; void *recvBuff; size_t count; int root; const char *datatype; \
    uint8_t nChannels, nWarps; const char *algo, *proto;
#define P2P_V4 const char *func; void *buff; const char *datatype; size_t count; int peer; uint8_t nChannels;
#define KERNEL_V4 struct { uint8_t channelId; uint64_t pTimer; } kernelCh;

struct descr_v4 {
    uint8_t type; void *parentObj; int rank;
    union {
        struct { COLL_V4 } coll;
        struct { P2P_V4 } p2p;
        PROXY_MEMBERS
        KERNEL_V4
        NET_MEMBERS
    };
};

#define API_V5(tag)                                                                                                        \
    struct { bool graphCaptured; int groupDepth; } groupApi;                                                               \
    struct { const char *func; size_t count; const char *datatype; int root; void *stream; bool graphCaptured; tag } collApi; \
    struct { const char *func; size_t count; const char *datatype; void *stream; bool graphCaptured; tag } p2pApi;          \
    struct { void *stream; } kernelLaunch;

struct descr_v5 {
    uint64_t type; void *parentObj; int rank;
    union {
        API_V5()
        struct { COLL_V4 void *parentGroup; } coll;
        struct { P2P_V4 void *parentGroup; } p2p;
        PROXY_MEMBERS
        KERNEL_V4
        NET_MEMBERS
    };
};

#define COPY_ENGINE(tag)                                                                                                     \
    struct {                                                                                                                 \
        uint64_t seqNumber; const char *func; void const *sendBuff; void *recvBuff; size_t count; int root; \
        const char *datatype; \
        const char *syncStrategy; bool intraBatchSync; uint32_t batchSize, numBatches, ceSeqNum; void *stream; tag            \
    } ceColl;                                                                                                                \
    struct { bool isComplete; int nRanks; } ceCollSync;                                                                      \
    struct { int numOps; size_t totalBytes; bool useIntraSync; } ceCollBatch;

struct descr_v6 {
    uint64_t type; void *parentObj; int rank;
    union {
        API_V5()
        struct { COLL_V4 void *parentGroup; } coll;
        struct { P2P_V4 void *parentGroup; } p2p;
        PROXY_MEMBERS
        KERNEL_V4
        NET_MEMBERS
        COPY_ENGINE()
    };
};

struct descr_v7 {
    uint64_t type; void *parentObj; int rank;
    union {
        API_V5(uint64_t userTag;)
        struct { COLL_V4 void *parentGroup; const char *kernelVariant; bool isSymColl; uint64_t userTag; } coll;
        struct { P2P_V4 void *parentGroup; uint64_t userTag; } p2p;
        PROXY_MEMBERS
        KERNEL_V4
        NET_MEMBERS
        COPY_ENGINE(uint64_t userTag;)
        struct { uint8_t channelId, phaseId; const char *phaseName; uint64_t pTimer; } kernelPhase;
    };
};

#define LAYOUT(version, bytes, member, at)                                           \
    _Static_assert(sizeof(struct descr_v##version) == (bytes), "published layout");  \
    _Static_assert(offsetof(struct descr_v##version, member) == (at), "published layout")
#if defined(__x86_64__) || defined(__aarch64__)
LAYOUT(1, 120, coll.nMaxChannels, 104);
LAYOUT(2, 128, coll.proto, 120);
LAYOUT(3, 120, coll.proto, 112);
LAYOUT(4, 104, coll.proto, 96);
LAYOUT(5, 112, p2p.parentGroup, 64);
LAYOUT(6, 112, ceColl.stream, 104);
LAYOUT(7, 136, coll.userTag, 128);
#endif

/* Arguments of a state: the first form up to version 3, the second from version 4 on. */
union args_v1 { struct { size_t transSize; int steps; } proxyOp; struct { int appendedProxyOps; } proxyCtrl; };
union args_v4 {
    struct { size_t transSize; } proxyStep;
    struct { int appendedProxyOps; } proxyCtrl;
    struct { void *data; } netPlugin;
    struct { uint64_t pTimer; } kernelCh;
};

/* One shape for all versions: only the arguments of init and the meaning of the pointers differ. */
struct plugin {
    const char *name;
    void *init;
    int (*start)(void *context, void **handle, void *descr);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *arguments);
    int (*finalize)(void *context);
};

typedef int (*init_v1)(void **context, int *mask);
typedef int (*init_v4)(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank,
    plugin_logger);
typedef int (*init_v5)(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, plugin_logger);

#endif
