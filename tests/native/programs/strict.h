/* The strict stand-in for libnccl: what a program says to it beside the NCCL interface, and what its files share.
 *
 * A communicator is a page of its own, which nobody may touch once it is destroyed. Every call must be one that the program has
 * announced, one that the library makes itself, or a question by somebody else about a communicator that is ready. */
#ifndef PROGRAMS_STRICT_H
#define PROGRAMS_STRICT_H

#include <stdbool.h>

#include "abi.h"

#define SHOWN __attribute__((visibility("default")))

struct strict_rules {
    uint64_t seed;
    uint32_t failures; /* of 100 calls */
    bool reuses;       /* pages of destroyed communicators serve again */
    bool signals;      /* some calls are interrupted by a signal */
    void (*log)(const char *format, ...) __attribute__((format(printf, 1, 2)));
};

#define STRICT_FUNCTIONS(each)                                                                                                       \
    each(void, begin, (const struct strict_rules *))                     /* forgets everything of before */                    \
    each(void, thread, (int number))                                     /* who the calling thread is: decides what fails */    \
    each(int, announce, (int function))                                  /* the next call of this thread; returns the one before */ \
    each(bool, holds, (const void *place))                               /* true while it will write there */                  \
    each(int, number, (const void *handle))                              /* of a live communicator; -1: there is none */       \
    each(void, hand_over, (const void *handle, int thread))              /* another thread uses it from now on */              \
    each(uint64_t, functions, (void))                                    /* a bit for each that it has */

#define STRICT_DECLARE(type, name, parameters) SHOWN type strict_##name parameters;
STRICT_FUNCTIONS(STRICT_DECLARE)
#undef STRICT_DECLARE
#define STRICT_MEMBER(type, name, parameters) type(*name) parameters;
struct strict_functions {
    STRICT_FUNCTIONS(STRICT_MEMBER)
};
#undef STRICT_MEMBER

/* --- Inside the library ------------------------------------------------------------------------------------------------- */

enum state { INITIAL, STARTING, READY, FAILED, FINALIZED, REVOKED };

struct ncclComm {
    uint64_t magic;
    int number, thread, rank, ranks, device;
    enum state state, next; /* `next` after some more polls */
    int polls, error;
    bool is_nonblocking;
};

#define GROUP_PLACES 64

struct promise {
    ncclComm_t *place; /* NULL: nothing is stored there any more */
    struct ncclComm *comm;
    bool is_dying; /* to be freed when the group ends */
};

/* What the library knows of a thread. */
struct strict_self {
    int thread, announced, depth, error;
    uint32_t calls, inner, comms, promises;
    struct promise promised[GROUP_PLACES];
};

/* As in NCCL: pncclX is the function, ncclX a weak name of it. */
#ifdef WITHOUT_PNCCL
#define API(name, parameters) SHOWN int nccl##name parameters
#else
#define API(name, parameters)                                                                                                   \
    SHOWN int pnccl##name parameters;                                                                                           \
    SHOWN int nccl##name parameters __attribute__((weak, alias("pnccl" #name)));                                                \
    int pnccl##name parameters
#endif

#pragma GCC visibility push(hidden)
extern struct strict_rules strict_rules;
extern _Thread_local struct strict_self strict_self;

enum caller { BY_PROGRAM, BY_LIBRARY, BY_STRANGER };
enum caller strict_enter(enum function function, ncclComm_t comm, uint64_t digest);
_Noreturn void strict_complain(const char *what, enum function function, int number);

uint32_t strict_dice(uint32_t what, uint32_t sides); /* the same for the same call, whatever else happens */
int strict_outcome(void);                            /* SUCCESS, or the error of this call */
int strict_error(uint32_t what);                     /* some error */

struct ncclComm *strict_live(const void *handle); /* NULL: no communicator that lives */
struct ncclComm *strict_make(int rank, int ranks);
void strict_free(struct ncclComm *comm);

int strict_judge(const struct ncclComm *comm); /* what a call on it is told */
void strict_start(struct ncclComm *comm);      /* its work goes on in the background */
int strict_within(enum function function);     /* the calls that NCCL makes to itself in this one */

int strict_promise(struct ncclComm *comm, ncclComm_t *place);
void strict_forget(const struct ncclComm *comm); /* no promise concerns it any more */
int strict_failed(int result);                   /* a call of this thread failed: tells its group */
void strict_drop_group(void);
#pragma GCC visibility pop

#endif
