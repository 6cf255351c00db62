/* What every part of the test bed shares: a folder of mapped files, the identity of a rank, a pause, and the board.
 *
 * All ranks of a job name the same folder in TESTBED_DIR. It is the only thing that connects them: memory, wire and
 * rendezvous are files in it, mapped by every process, so what a killed or stopped rank had done stays done. */
#ifndef TESTBED_BED_H
#define TESTBED_BED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define BED_RANKS 64
#define BED_PATH 256

#define TESTBED_API __attribute__((visibility("default")))

/* What the host code of a rank does, as the test program sees it: the trainer writes, only tests read. */
enum bed_doing { BED_NOTHING, BED_STARTING, BED_FORWARD, BED_BACKWARD, BED_GRADIENTS, BED_BARRIER, BED_BLOCKED, BED_DONE };

struct bed_place {
    _Atomic int32_t pid;
    _Atomic int32_t step; /* also the clock of the faults */
    _Atomic int32_t microbatch;
    _Atomic int32_t doing;
    _Atomic uint64_t progress; /* any movement of the rank raises it */
    uint64_t reserved[5];
};

_Static_assert(sizeof(struct bed_place) == 64, "read by the tests");

/* The full path of a file of the job; `out` has BED_PATH bytes. */
void bed_path(char *out, const char *name);
/* Maps a file of the job, created with zeros where it does not exist; ends the process if that fails. */
void *bed_map(const char *name, size_t size);
/* An environment variable as a number. */
long bed_number(const char *name, long otherwise);
/* RANK, or 0; and the host that TESTBED_HOST names, or the one that LOCAL_WORLD_SIZE puts the rank on. */
int bed_rank(void);
int bed_host(void);
/* This rank's place on the board. */
struct bed_place *bed_place(void);
void bed_moved(void);
uint64_t bed_now_us(void);
/* Waits a little, the longer the more often in a row it was called: polling that leaves the machine to others. */
void bed_pause(unsigned *idle);
uint64_t bed_mix(uint64_t seed, uint64_t value);
uint64_t bed_mix_bytes(uint64_t seed, const void *bytes, size_t size);

#endif
