/* A random program of NCCL calls: its threads, what they hold, and the record that it leaves. */
#ifndef PROGRAMS_PROGRAM_H
#define PROGRAMS_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "job.h"

#define COMMS 48
#define PLACES 48
#define SLOTS 16      /* the main thread, seven others, and a forked child of each */
#define CHILD_SLOTS 8 /* added to the slot of the thread that forked */
#define TAPE_BYTES 131072

/* Kinds of misfortune that a run may leave out, by their letter in PROGRAMS_WITHOUT. */
enum kind {
    WITH_GARBAGE = 'g', /* calls on what never was a communicator */
    WITH_STALE = 's',   /* calls on destroyed ones */
    WITH_FORKS = 'f',
    WITH_THREADS = 't',
    WITH_SIGNALS = 'i',
    WITH_LEAVING = 'l', /* the main thread ends by pthread_exit */
    WITH_PROBES = 'p',  /* dlsym(RTLD_DEFAULT) */
    WITH_CONFIGS = 'c',
    WITH_BYPASSES = 'b', /* calls that pass the collector by, through the library's own handle */
};
bool may(enum kind kind);

enum fate { KEPT, UNMAPPED, GARBLED, SHUT, FRAMED };

/* Where a communicator is or will be stored. */
struct place {
    ncclComm_t *at;
    enum fate fate;
};

struct worker {
    int slot, style, depth, steps;
    uint64_t random;
    ncclComm_t comms[COMMS], stale[8], kept[PLACES];
    struct place places[PLACES];
    int comm_count, stale_count, place_count, kept_count;
    enum function current; /* the last that the program called */
    bool reuses;
};

extern _Thread_local struct worker *worker;
extern struct job job;
extern uint64_t program_seed;

/* tape.c: what happened, by thread; outlives the process. */
void tape_open(void);
void tape_clear(void);
void tape(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t tape_hash(uint64_t hash);
void tape_print(void);
int tape_complaints(void);

uint32_t roll(uint32_t sides);
const struct api *api_of_call(void); /* how the next call reaches NCCL */

/* Around each call: announces it to the library, and notes what came back. */
void before(enum function function);
int after(enum function function, int result);
#define CALL(name, ...)                                                                                                         \
    ({                                                                                                                          \
        __typeof__(api_of_call()->name) called = api_of_call()->name;                                                                           \
        called != NULL ? (before(F_##name), after(F_##name, called(__VA_ARGS__))) : -1;                                         \
    })

/* places.c */
struct place *place_take(ncclComm_t *frame);
void places_settle(void); /* takes what was stored out of places that the library is done with, and lets them go */
ncclComm_t garbage(void);

/* calls.c */
ncclComm_t any_comm(void);
void keep_comm(ncclComm_t comm);
void drop_comm(ncclComm_t comm);
void do_operation(void);
void do_making(ncclComm_t *frame);
void do_ending(void);
void do_asking(void);
void do_group_end(void);

/* lives.c */
void step(void);
void worker_open(struct worker *self, int slot);
void start_thread(void);
void join_threads(void);
void do_fork(void);
void do_probe(void);
void signals_open(void);
void end_program(uint32_t how) __attribute__((noreturn));
void last_calls(void);

/* driver.c */
void run_program(uint64_t seed, bool is_leaf) __attribute__((noreturn));

#endif
