/* A small open-addressed table from 64-bit keys to slots. Reads take no lock; writes are under shim_lock. */
#ifndef FORENSICS_RING_TABLE_H
#define FORENSICS_RING_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define SHIM_TABLE_SIZE 4096u
#define SHIM_NOT_FOUND 0xFFFFFFFFu

struct shim_table {
    struct {
        uint64_t key; /* 0: never used; 1: removed */
        uint32_t value;
    } places[SHIM_TABLE_SIZE];
};

bool shim_table_put(struct shim_table *table, uint64_t key, uint32_t value);
void shim_table_remove(struct shim_table *table, uint64_t key);
void shim_table_clear(struct shim_table *table); /* nobody else may use it meanwhile */

static inline uint32_t shim_table_place(uint64_t key)
{
    return (uint32_t)((key * 0x9E3779B97F4A7C15ull) >> 52) % SHIM_TABLE_SIZE;
}

/* A key of 0 or 1 is never found. */
static inline uint32_t shim_table_find(const struct shim_table *table, uint64_t key)
{
    uint32_t at = shim_table_place(key);

    for (uint32_t step = 0; step < SHIM_TABLE_SIZE; step++, at = (at + 1) % SHIM_TABLE_SIZE) {
        uint64_t found = __atomic_load_n(&table->places[at].key, __ATOMIC_ACQUIRE);

        if (found == key && key > 1)
            return __atomic_load_n(&table->places[at].value, __ATOMIC_RELAXED);
        if (found == 0)
            return SHIM_NOT_FOUND;
    }
    return SHIM_NOT_FOUND;
}

#pragma GCC visibility pop

#endif
