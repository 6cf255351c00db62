/* What every call reads and counts in, in one page: in the middle of a training step each further cache line is a trip to memory,
 * and each further page is a walk of the page table on top. A call of an operation touches this page and that of its record, and
 * of the thread one line beside what the C library keeps there. */
#ifndef FORENSICS_RING_HOT_H
#define FORENSICS_RING_HOT_H

#include <stddef.h>
#include <stdint.h>

/* What is hidden anyway must also be known to be, or each access goes through a table. */
#pragma GCC visibility push(hidden)

#define SHIM_HOT_BYTES 4096u
#define SHIM_NEAR 64u      /* communicators, in pairs that share a line */
#define SHIM_COUNTERS 64u  /* of the first slots of communicators */
#define SHIM_SITES 64u     /* call sites, in fours that share a line */
#define SHIM_FUNCTIONS 48u /* of a library of the program that are called on its behalf */
#define SHIM_LIBRARIES 3u
#define SHIM_NEAR_SLOTS 0xFFFull

struct shim_comm;
typedef void (*shim_function)(void);

/* What callers of one kind reach behind the collector. */
struct shim_library {
    shim_function functions[SHIM_FUNCTIONS];
};

/* What calls of a communicator are numbered by. Not in the log: the heartbeat brings its slot there up to date, and until then the
 * records themselves tell. */
struct shim_counter {
    uint32_t ops;        /* operations so far */
    uint32_t generation; /* low byte of that of the slot; SHIM_COUNTER_UNASKED while NCCL was not asked for its rank and size */
    uint32_t *pairs;     /* point-to-point calls: the number of ranks, then two for each peer; NULL: none so far */
};
#define SHIM_COUNTER_UNASKED 0x100u

/* A call site and what its object reaches: written once, the address last. */
struct shim_site {
    void *address;
    const struct shim_library *library;
};

struct shim_hot {
    uint16_t recording;      /* 1 while records are taken */
    uint16_t ticks;          /* enum forensics_counter, or SHIM_TICKS_MONOTONIC_NS; decided before the first record */
    uint32_t incarnation;    /* changes in a forked child: what a hook remembers of slots is then void */
    uint32_t sweeps;         /* of the heartbeat, never 0 while it runs: a call that spans one reads the clock when it returns */
    uint32_t masks;          /* 1 while others may read the file: pointers are stored masked */
    struct shim_comm *comms; /* the slots of shim_log */
    ptrdiff_t self;          /* from a thread's own pointer to its shim_self; 0 unknown */
    uint64_t covered[3][2];  /* coverage bits that are set already, of this process */
    uint64_t near[SHIM_NEAR] __attribute__((aligned(64))); /* a handle and its slot in one word: shim_near_word */
    struct shim_site sites[SHIM_SITES] __attribute__((aligned(64)));
    struct shim_library libraries[SHIM_LIBRARIES];
    struct shim_counter counters[SHIM_COUNTERS] __attribute__((aligned(64)));
} __attribute__((aligned(SHIM_HOT_BYTES)));
extern struct shim_hot shim_hot;

_Static_assert(sizeof(struct shim_hot) == SHIM_HOT_BYTES, "one page");

/* The word of a handle in slot 0, to which a slot is added; 0 when the two do not fit into a word. Handles are pointers to large
 * structures, so that the low four bits and the top byte are free. */
static inline uint64_t shim_near_word(uint64_t handle)
{
    uint64_t word = handle << 8 | handle >> 56;

    return (word & SHIM_NEAR_SLOTS) == 0 ? word : 0;
}

static inline uint32_t shim_near_place(uint64_t handle)
{
    return (uint32_t)((handle * 0x9E3779B97F4A7C15ull) >> 58) % SHIM_NEAR;
}

#pragma GCC visibility pop

#endif
