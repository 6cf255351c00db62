/* A small open-addressed table. A removed key leaves a mark, so that a reader never misses a key behind it. */
#include "ring/internal.h"

#define REMOVED 1u /* no pointer and no queue pair has this key */

bool shim_table_put(struct shim_table *table, uint64_t key, uint32_t value)
{
    uint32_t at = shim_table_place(key);

    if (key <= REMOVED)
        return false;
    shim_table_remove(table, key);
    for (uint32_t step = 0; step < SHIM_TABLE_SIZE; step++, at = (at + 1) % SHIM_TABLE_SIZE) {
        if (table->places[at].key > REMOVED)
            continue;
        SHIM_STORE(table->places[at].value, value);
        __atomic_store_n(&table->places[at].key, key, __ATOMIC_RELEASE);
        return true;
    }
    return false;
}

/* Marks at the end of a run stop nobody: they become free again, or years of churn would make every miss a full walk. */
static void trim(struct shim_table *table, uint32_t at)
{
    if (table->places[(at + 1) % SHIM_TABLE_SIZE].key != 0)
        return;
    for (uint32_t step = 0; step < SHIM_TABLE_SIZE && table->places[at].key == REMOVED; step++) {
        __atomic_store_n(&table->places[at].key, 0, __ATOMIC_RELEASE);
        at = (at + SHIM_TABLE_SIZE - 1) % SHIM_TABLE_SIZE;
    }
}

void shim_table_remove(struct shim_table *table, uint64_t key)
{
    uint32_t at = shim_table_place(key);

    for (uint32_t step = 0; step < SHIM_TABLE_SIZE && table->places[at].key != 0; step++, at = (at + 1) % SHIM_TABLE_SIZE) {
        if (table->places[at].key != key)
            continue;
        __atomic_store_n(&table->places[at].key, REMOVED, __ATOMIC_RELEASE);
        trim(table, at);
        return;
    }
}

/* Pages without a key stay as they are: in a forked child each page that is written is copied first. */
void shim_table_clear(struct shim_table *table)
{
    for (uint32_t at = 0; at < SHIM_TABLE_SIZE; at++)
        if (table->places[at].key != 0)
            SHIM_STORE(table->places[at].key, 0u);
}
