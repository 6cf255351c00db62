/* SipHash-2-4 of one pointer, with a key that only this process has. */
#define _GNU_SOURCE

#include <sys/random.h>

#include "ring/internal.h"

static uint64_t key[2];

/* Without a key nothing may be stored that it would hide: the masked value is then 0. */
void shim_mask_choose(bool wanted)
{
    shim_hot.masks = wanted;
    if (!wanted || getrandom(key, sizeof key, GRND_NONBLOCK) == (ssize_t)sizeof key)
        return;
    key[0] = key[1] = 0;
}

static uint64_t turned(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}

static void mix(uint64_t *v)
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = turned(v[1], 13) ^ v[0];
    v[3] = turned(v[3], 16) ^ v[2];
    v[0] = turned(v[0], 32) + v[3];
    v[2] += v[1];
    v[1] = turned(v[1], 17) ^ v[2];
    v[3] = turned(v[3], 21) ^ v[0];
    v[2] = turned(v[2], 32);
}

static void absorb(uint64_t *v, uint64_t word)
{
    v[3] ^= word;
    mix(v);
    mix(v);
    v[0] ^= word;
}

uint64_t shim_mask_of(uint64_t pointer)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull, key[0] ^ 0x6c7967656e657261ull,
                     key[1] ^ 0x7465646279746573ull};

    if (pointer == 0 || (key[0] | key[1]) == 0)
        return 0;
    absorb(v, pointer);
    absorb(v, 8ull << 56);
    v[2] ^= 0xFF;
    for (int round = 0; round < 4; round++)
        mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
