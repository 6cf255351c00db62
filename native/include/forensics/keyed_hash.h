/* SipHash-1-3 under a key that every reader draws anew: whoever wrote a file cannot choose texts or numbers that collide.
 *
 * J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF" (2012), with one round a word and three at the end. */
#ifndef FORENSICS_KEYED_HASH_H
#define FORENSICS_KEYED_HASH_H

#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct hash_key {
    uint64_t low, high;
};

struct hash_state {
    uint64_t v0, v1, v2, v3;
};

/* Where the system gives no random bytes, the place of the stack and the time have to do. */
static inline struct hash_key new_hash_key(void) {
    struct hash_key key;
    if (getrandom(&key, sizeof key, GRND_NONBLOCK) != (ssize_t)sizeof key) {
        struct timespec now = {0};
        timespec_get(&now, TIME_UTC);
        key.low = (uint64_t)(uintptr_t)&key ^ (uint64_t)now.tv_nsec << 32;
        key.high = (uint64_t)now.tv_sec * 0x9e3779b97f4a7c15u + (uint64_t)now.tv_nsec;
    }
    return key;
}

static inline struct hash_state hash_begin(struct hash_key key) {
    return (struct hash_state){key.low ^ 0x736f6d6570736575u, key.high ^ 0x646f72616e646f6du, key.low ^ 0x6c7967656e657261u,
                               key.high ^ 0x7465646279746573u};
}

static inline uint64_t hash_turned(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static inline void hash_round(struct hash_state *s) {
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = hash_turned(s->v1, 13) ^ s->v0;
    s->v3 = hash_turned(s->v3, 16) ^ s->v2;
    s->v0 = hash_turned(s->v0, 32) + s->v3;
    s->v2 += s->v1;
    s->v3 = hash_turned(s->v3, 21) ^ s->v0;
    s->v1 = hash_turned(s->v1, 17) ^ s->v2;
    s->v2 = hash_turned(s->v2, 32);
}

static inline void hash_word(struct hash_state *s, uint64_t word) {
    s->v3 ^= word;
    hash_round(s);
    s->v0 ^= word;
}

/* The last word carries the length, so that one text is never the beginning of another. */
static inline void hash_bytes(struct hash_state *s, const void *bytes, uint64_t size) {
    const uint8_t *at = bytes;
    uint64_t word = 0, rest = size;
    for (; rest >= 8; rest -= 8, at += 8) {
        memcpy(&word, at, 8);
        hash_word(s, word);
    }
    word = size << 56;
    for (uint64_t i = 0; i < rest; i++)
        word |= (uint64_t)at[i] << (8 * i);
    hash_word(s, word);
}

static inline uint64_t hash_end(struct hash_state *s) {
    s->v2 ^= 0xff;
    hash_round(s);
    hash_round(s);
    hash_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
