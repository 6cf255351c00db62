/* The record of a program, a tape for each thread, in memory that outlives whoever crashes. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "program.h"

struct tapes {
    uint32_t lengths[SLOTS];
    int complaints;
    char text[SLOTS][TAPE_BYTES];
};

static struct tapes *tapes;
_Thread_local struct worker *worker;

void tape_open(void)
{
    tapes = mmap(NULL, sizeof *tapes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (tapes == MAP_FAILED)
        exit(99);
}

void tape_clear(void)
{
    memset(tapes->lengths, 0, sizeof tapes->lengths);
    tapes->complaints = 0;
}

/* A call of the collector's own thread is on the tape of the main thread. */
void tape(const char *format, ...)
{
    int slot = worker != NULL ? worker->slot : 0, length;
    char line[256];
    uint32_t at;
    va_list arguments;

    va_start(arguments, format);
    length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (strncmp(line, "STRICT", 6) == 0)
        tapes->complaints++;
    if (length >= (int)sizeof line)
        length = sizeof line - 1;
    at = __atomic_fetch_add(&tapes->lengths[slot], (uint32_t)length, __ATOMIC_RELAXED);
    if (at + (uint32_t)length <= TAPE_BYTES)
        memcpy(&tapes->text[slot][at], line, (size_t)length);
}

static uint32_t length_of(int slot)
{
    return tapes->lengths[slot] < TAPE_BYTES ? tapes->lengths[slot] : TAPE_BYTES;
}

uint64_t tape_hash(uint64_t hash)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        hash = mix(hash ^ tapes->lengths[slot]);
        for (uint32_t at = 0; at < length_of(slot); at++)
            hash = (hash ^ (unsigned char)tapes->text[slot][at]) * 0x100000001b3ull;
    }
    return hash;
}

void tape_print(void)
{
    for (int slot = 0; slot < SLOTS; slot++)
        if (tapes->lengths[slot] > 0)
            printf("== thread %d\n%.*s", slot, (int)length_of(slot), tapes->text[slot]);
}

int tape_complaints(void)
{
    return tapes->complaints;
}

/* Another preloaded object tells what it forwards. Questions that the collector asks on its own account are not the program's. */
__attribute__((visibility("default"))) void programs_saw(enum function function);
void programs_saw(enum function function)
{
    bool is_question = function == F_GetVersion || function == F_CommUserRank || function == F_CommCount || function == F_CommCuDevice;

    if (worker != NULL && (!is_question || worker->current == function))
        tape("  saw %s\n", function_names[function]);
}
