/* Layout 1 of the log that the collector inside a training process writes: docs/formats/shim-log.md, byte by byte.
 *
 * Every number is in the byte order of the host that wrote it. Times are ticks of the counter named in the head, unless the
 * name ends with _ns; the clock table converts them. A field is written by one thread at a time and read by anyone. */
#ifndef FORENSICS_SHIM_LOG_H
#define FORENSICS_SHIM_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "forensics/clock.h"
#include "forensics/shim_records.h"
#include "forensics/shim_states.h"

#define SHIM_MAGIC "FRXSHIM\n"
#define SHIM_BYTE_ORDER 0x0A0B0C0Du
#define SHIM_MAJOR 1u /* another one: the reader stops */
#define SHIM_MINOR 2u /* a higher one only adds */
#define SHIM_HEAD_BYTES 2048u /* never changes once the file has its name */
#define SHIM_LIVE_BYTES 2048u /* follows the head; changes all the time */
#define SHIM_MAX_SECTIONS 32u
#define SHIM_UNKNOWN (-1)

enum shim_section_kind {
    SHIM_SECTION_CLOCKS = 1,     /* struct forensics_clock_reading */
    SHIM_SECTION_COMMS = 2,      /* struct shim_comm */
    SHIM_SECTION_PROXY_OPS = 3,  /* struct shim_proxy_op */
    SHIM_SECTION_QUEUE_PAIRS = 4, /* struct shim_queue_pair */
    SHIM_SECTION_EPOCHS = 5,     /* SHIM_EPOCH_BINS struct shim_epoch_bin for each queue pair */
    SHIM_SECTION_RINGS = 6,      /* struct shim_ring */
    SHIM_SECTION_RECORDS = 7,    /* struct shim_record, cut into rings by their struct shim_ring */
};

struct shim_section {
    uint32_t kind; /* enum shim_section_kind */
    uint32_t entry_bytes;
    uint64_t offset; /* from the start of the file, a multiple of 64 */
    uint64_t count;
    uint64_t reserved;
};

enum shim_architecture { SHIM_ARCH_OTHER = 0, SHIM_ARCH_X86_64 = 1, SHIM_ARCH_AARCH64 = 2 };

/* Where the ticks of this file come from; the first two are enum forensics_counter. */
#define SHIM_TICKS_MONOTONIC_NS 3u

/* Written before the file gets its name; `checksum` covers all of it. */
struct shim_head {
    char magic[8];
    uint32_t byte_order;
    uint16_t major;
    uint16_t minor;
    uint32_t head_bytes;
    uint32_t record_bytes;
    uint64_t file_bytes;
    uint32_t checksum; /* CRC-32 (IEEE) of the first head_bytes with this field zero */
    uint32_t section_count;
    uint32_t section_offset;
    uint32_t section_entry_bytes;
    uint64_t pid;
    uint64_t parent_pid;
    uint64_t process_start; /* field 22 of /proc/self/stat: pid, process_start and boot_id name one process */
    int64_t created_ns;     /* CLOCK_REALTIME */
    uint64_t created;       /* ticks */
    uint16_t ticks;         /* enum forensics_counter or SHIM_TICKS_MONOTONIC_NS */
    uint16_t architecture;
    uint16_t epoch_shift; /* epoch of a tick = tick >> epoch_shift */
    uint16_t epoch_bins;  /* bins for each queue pair */
    int32_t rank;         /* -1: no variable says */
    int32_t local_rank;
    int32_t world_size;
    uint32_t sample_ms;     /* how often a state in progress is sampled */
    uint32_t live_offset;
    uint32_t live_bytes;
    uint32_t mode;          /* of the file; wider than 0600: pointers are masked */
    uint8_t reserved0[4];
    char host[64];
    char boot_id[40];
    char rank_variable[24]; /* the environment variable that gave the rank */
    char executable[128];
    char job[64];
    char visible_devices[64];
    struct shim_section sections[SHIM_MAX_SECTIONS];
    char build[64];
    char run[32]; /* tells jobs of one name apart: the folder of the job is called job-run */
    uint8_t reserved1[416];
};

enum shim_state { SHIM_STATE_RECORDING = 1, SHIM_STATE_STOPPED = 2, SHIM_STATE_ENDED = 3, SHIM_STATE_UNWATCHED = 4 };

/* Why less was recorded than could have been; 0 for nothing to tell. */
enum shim_reason {
    SHIM_REASON_NONE = 0,
    SHIM_REASON_SHRUNK = 1,         /* the disk had no room for the wanted size; a smaller file was made */
    SHIM_REASON_NO_SPACE = 2,
    SHIM_REASON_CANNOT_CREATE = 3,
    SHIM_REASON_CANNOT_MAP = 4,
    SHIM_REASON_NO_THREAD = 5,      /* the heartbeat could not be started: no samples, two clock readings only */
    SHIM_REASON_SYMBOL_NOT_FOUND = 6, /* a hooked function without the real one behind it */
    SHIM_REASON_UNKNOWN_ABI = 7,    /* a profiler or verbs layout that is not known: left alone */
    SHIM_REASON_INTERNAL = 8,
    SHIM_REASON_SHARE = 9,          /* a smaller file was made: the wanted one is more than a sixteenth of the free space */
    SHIM_REASON_NO_SHARE = 10,      /* none: the smallest one is more than that */
    SHIM_REASON_FOREIGN_FOLDER = 11, /* none: the folder is a link, of somebody else, or writable by others */
    SHIM_REASON_CUT = 12,           /* somebody cut the file while it was in use, or its file system had no room: recording stopped */
    SHIM_REASON_REMOVED = 13,       /* somebody removed the file while it was in use: recording went on without a name */
};

/* Bits of shim_live.hooked and shim_live.called, word 1 (word 0: bit = enum shim_kind of the NCCL function, < 64). */
enum shim_hook {
    SHIM_HOOK_PROFILER = 0,        /* hooked: NCCL looked our plugin up; called: its init ran */
    SHIM_HOOK_PROFILER_COLL = 1,   /* called: such an event was seen; hooked: it was asked for */
    SHIM_HOOK_PROFILER_P2P = 2,
    SHIM_HOOK_PROFILER_PROXY_OP = 3,
    SHIM_HOOK_PROFILER_PROXY_STEP = 4,
    SHIM_HOOK_PROFILER_KERNEL = 5,
    SHIM_HOOK_PROFILER_PEER_WAIT = 6, /* the bound version can tell waiting for the peer from waiting for the GPU */
    SHIM_HOOK_PROFILER_API = 7,
    SHIM_HOOK_VERBS_LOOKUP = 16,   /* hooked: dlvsym is ours; called: libibverbs was looked up through it */
    SHIM_HOOK_VERBS_LINKED = 17,   /* the linked symbols are ours */
    SHIM_HOOK_VERBS_CONTEXT = 18,  /* a device context was opened and its table changed */
    SHIM_HOOK_VERBS_POST_SEND = 19,
    SHIM_HOOK_VERBS_POST_RECV = 20,
    SHIM_HOOK_VERBS_POLL = 21,
    SHIM_HOOK_VERBS_MODIFY = 22,
    SHIM_HOOK_NCCL_API = 32,       /* hooked: the real functions were found; called: an NCCL call came through us */
    SHIM_HOOK_NCCL_TWO_COPIES = 33, /* calls came from objects bound to different NCCL libraries */
    SHIM_HOOK_GRAPH = 34,          /* a call was seen on a stream under capture: replays make no call */
};

/* Rings by what they hold. A flood in one cannot push out what another one holds. */
enum shim_ring_class {
    SHIM_RING_CALLS = 0,   /* operations and groups */
    SHIM_RING_RARE = 1,    /* communicators and queue pairs made, changed, ended; errors */
    SHIM_RING_FLOWS = 2,   /* what the profiler hook saw end */
    SHIM_RING_SAMPLES = 3, /* states in progress, by the heartbeat */
    SHIM_RING_CLASSES = 4,
};

/* What is true now, of the whole process. */
struct shim_live {
    uint32_t state;        /* enum shim_state */
    uint32_t reason;       /* enum shim_reason, the first one */
    int32_t reason_errno;
    uint32_t beat_version; /* odd while last_clock is being written */
    uint64_t beats;        /* heartbeats since the start */
    struct forensics_clock_reading last_clock;
    uint64_t clocks;       /* readings appended to the clock table; it is a ring except for its first entry */
    uint64_t hooked[2];    /* what has the real function behind it */
    uint64_t called[2];    /* what was seen at least once */
    uint64_t unresolved[2]; /* what was called, and the real function was not found */
    uint64_t dropped[SHIM_RING_CLASSES]; /* records of threads that found no free ring */
    uint64_t threads;      /* threads that claimed a ring */
    uint64_t lost_comms;   /* communicators, proxy operations, queue pairs that found no free slot */
    uint64_t lost_proxy_ops;
    uint64_t lost_queue_pairs;
    uint64_t ended;        /* ticks of an orderly exit; 0: none */
    uint32_t nccl_version; /* as ncclGetVersion says, 0 unknown */
    uint32_t profiler_version; /* interface version that NCCL bound, 0 none */
    uint32_t profiler_mask;
    uint32_t verbs_contexts;
    uint32_t forks;        /* forks seen; the child has a file of its own or none */
    uint32_t unlocked;     /* 1: the job closed the descriptor that holds the lock on the file */
    char note[128];        /* reason in words */
    uint8_t reserved1[1696];
};

/* One ring: `records` entries of the records section from `first` on. One thread writes it at a time; the next owner goes on
 * with the numbers. */
struct shim_ring {
    uint32_t ring_class; /* enum shim_ring_class */
    uint32_t thread;     /* OS thread id of the owner now or last; 0: never used */
    uint64_t first;
    uint64_t records;    /* a power of two */
    uint64_t head;       /* records published since the start; stored after the record */
    uint64_t owned_from; /* head when the owner took it */
    char thread_name[16];
    uint32_t owned; /* 1 while a thread has it */
    uint32_t reserved0;
    uint64_t owners;
    uint8_t reserved1[56];
};

_Static_assert(sizeof(struct shim_head) == SHIM_HEAD_BYTES, "layout is a contract");
_Static_assert(sizeof(struct shim_live) == SHIM_LIVE_BYTES, "layout is a contract");
_Static_assert(sizeof(struct shim_ring) == 128, "layout is a contract");

#endif
