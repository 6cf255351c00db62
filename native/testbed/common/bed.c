#define _GNU_SOURCE

#include "bed.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "testbed: %s: ", what);
    perror(name);
    _exit(70);
}

void bed_path(char *out, const char *name)
{
    const char *folder = getenv("TESTBED_DIR");

    if (folder == NULL) {
        fprintf(stderr, "testbed: TESTBED_DIR is not set\n");
        _exit(70);
    }
    if (snprintf(out, BED_PATH, "%s/%s", folder, name) >= BED_PATH)
        fail("path too long", name);
}

void *bed_map(const char *name, size_t size)
{
    char path[BED_PATH];
    void *memory;
    int file;

    bed_path(path, name);
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, (off_t)size) != 0)
        fail("cannot create", path);
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        fail("cannot map", path);
    close(file);
    return memory;
}

long bed_number(const char *name, long otherwise)
{
    const char *text = getenv(name);

    return text != NULL && *text != '\0' ? strtol(text, NULL, 10) : otherwise;
}

int bed_rank(void)
{
    return (int)bed_number("RANK", 0);
}

int bed_host(void)
{
    long per_host = bed_number("LOCAL_WORLD_SIZE", 1);

    return (int)bed_number("TESTBED_HOST", bed_rank() / (per_host > 0 ? per_host : 1));
}

struct bed_place *bed_place(void)
{
    static _Atomic(struct bed_place *) own;
    struct bed_place *place = atomic_load(&own);

    if (place == NULL) {
        place = (struct bed_place *)bed_map("board", sizeof *place * BED_RANKS) + bed_rank() % BED_RANKS;
        atomic_store(&own, place); /* two threads may both map: the loser's mapping is the same memory */
    }
    return place;
}

void bed_moved(void)
{
    atomic_fetch_add_explicit(&bed_place()->progress, 1, memory_order_relaxed);
}

uint64_t bed_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void bed_pause(unsigned *idle)
{
    unsigned turns = (*idle)++;

    if (turns < 20)
        sched_yield();
    else
        usleep(turns < 200 ? 30 : turns < 1000 ? 200 : 1000);
}

uint64_t bed_mix(uint64_t seed, uint64_t value)
{
    uint64_t mixed = (seed ^ value) * 0x9e3779b97f4a7c15u;

    mixed ^= mixed >> 29;
    mixed *= 0xbf58476d1ce4e5b9u;
    return (mixed ^ (mixed >> 32)) | 1; /* never zero: zero marks an unused row */
}

uint64_t bed_mix_bytes(uint64_t seed, const void *bytes, size_t size)
{
    const unsigned char *cursor = bytes;

    for (size_t index = 0; index < size; index++)
        seed = bed_mix(seed, cursor[index] + index);
    return seed;
}
