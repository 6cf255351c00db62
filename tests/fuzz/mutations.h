/* Changes of an input: bytes, pickle opcodes or JSON tokens, and pieces of another input. */
#ifndef FORENSICS_FUZZ_MUTATIONS_H
#define FORENSICS_FUZZ_MUTATIONS_H

#include "target.h"

enum { LARGEST_INPUT = 1 << 14 };

struct input {
    uint8_t bytes[LARGEST_INPUT];
    size_t size;
};

struct dice {
    uint64_t state;
};

uint64_t roll(struct dice *dice, uint64_t sides);

/* Changes an input in a few places, with pieces of `other`. */
void mutate(struct input *input, const uint8_t *other, size_t other_size, struct dice *dice);

#endif
