/* Pointers as they are stored: as they are in a file that only its owner can read, else as a keyed hash, which is the same for the
 * same pointer within one file and tells nothing of where things lie in memory. */
#ifndef FORENSICS_RING_MASK_H
#define FORENSICS_RING_MASK_H

#include <stdbool.h>
#include <stdint.h>

#include "ring/hot.h"

#pragma GCC visibility push(hidden)

void shim_mask_choose(bool wanted);
uint64_t shim_mask_of(uint64_t pointer);

static inline uint64_t shim_masked(uint64_t pointer)
{
    return __builtin_expect(shim_hot.masks != 0, 0) ? shim_mask_of(pointer) : pointer;
}

#pragma GCC visibility pop

#endif
