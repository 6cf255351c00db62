/* Distinct values: equal texts, numbers and containers get one number, so that a column of a million is a few and codes. */
#include <string.h>

#include "pickle.h"

static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_bytes(uint64_t hash, const uint8_t *bytes, uint64_t size) {
    uint64_t word = 0;
    for (; size >= 8; size -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        hash = mixed(hash, word);
    }
    word = size;
    for (uint64_t i = 0; i < size; i++)
        word = word << 8 | bytes[i];
    return mixed(hash, word);
}

static bool same_leaf(const struct forensics_pickle *pickle, struct cell one, struct cell other) {
    if (one.tag != other.tag || one.size != other.size)
        return false;
    if (one.tag == FORENSICS_PICKLE_TEXT)
        return one.as.at == other.as.at || memcmp(pickle->bytes + one.as.at, pickle->bytes + other.as.at, one.size) == 0;
    return one.as.integer == other.as.integer;
}

static bool same_value(const struct forensics_pickle *pickle, const struct distinct *known, const struct distinct *value) {
    if (known->hash != value->hash || known->cell.tag != value->cell.tag || known->children != value->children)
        return false;
    if (!is_container(value->cell.tag))
        return same_leaf(pickle, known->cell, value->cell);
    const uint32_t *children = pickle->children.items;
    return value->children == 0 ||
           memcmp(children + known->first_child, children + value->first_child, value->children * sizeof *children) == 0;
}

static uint32_t *slot_of(const struct forensics_pickle *pickle, const struct distinct *value) {
    uint32_t *slots = pickle->table.items;
    uint64_t mask = pickle->table.used - 1;
    uint64_t at = value->hash & mask;
    while (slots[at] && !same_value(pickle, value_at(pickle, slots[at] - 1), value))
        at = (at + 1) & mask;
    return slots + at;
}

/* Keeps the table at most half full. */
static bool grow_table(struct forensics_pickle *pickle) {
    struct array *table = &pickle->table;
    if (table->used > 2 * (pickle->values.used + 1))
        return true;
    struct array larger = {0};
    uint64_t size = table->used ? 2 * table->used : 1024;
    if (!array_reserve(pickle, &larger, size, sizeof(uint32_t)))
        return false;
    memset(larger.items, 0, size * sizeof(uint32_t));
    larger.used = size;
    array_release(pickle, table, sizeof(uint32_t));
    *table = larger;
    for (uint64_t i = 0; i < pickle->values.used; i++)
        *slot_of(pickle, value_at(pickle, i)) = (uint32_t)(i + 1);
    return true;
}

/* The number of a value; a new one keeps its children, the children of a known one are dropped. */
static int64_t number_of(struct forensics_pickle *pickle, const struct distinct *value) {
    if (pickle->values.used >= INT32_MAX || !grow_table(pickle) ||
        !array_reserve(pickle, &pickle->values, 1, sizeof(struct distinct)))
        return UNREADABLE;
    uint32_t *slot = slot_of(pickle, value);
    if (*slot) {
        pickle->children.used -= value->children;
        return *slot - 1;
    }
    *value_at(pickle, pickle->values.used) = *value;
    *slot = (uint32_t)++pickle->values.used;
    return *slot - 1;
}

static int64_t leaf(struct forensics_pickle *pickle, struct cell cell) {
    uint64_t hash = cell.tag == FORENSICS_PICKLE_TEXT ? hash_bytes(cell.tag, pickle->bytes + cell.as.at, cell.size)
                                                      : mixed(cell.tag, (uint64_t)cell.as.integer);
    return number_of(pickle, &(struct distinct){.cell = cell, .hash = hash});
}

/* Gives the containers in a container their numbers, so that what it holds can be written one after the other. */
static bool inner_containers(struct forensics_pickle *pickle, struct node *node, int depth) {
    for (uint64_t i = 0; i < node->count; i++) {
        struct cell item = *cell_at(pickle, node->first + i);
        if (!is_container(item.tag))
            continue;
        if (distinct_of(pickle, item, depth + 1) < 0)
            return false;
        uint32_t height = node_at(pickle, item.as.at)->height + 1;
        node->height = height > node->height ? height : node->height;
    }
    return node->height < MAX_HEIGHT;
}

static int64_t container(struct forensics_pickle *pickle, struct cell cell, int depth) {
    struct node *node = node_at(pickle, cell.as.at);
    uint64_t count = node->count;
    if (!inner_containers(pickle, node, depth))
        return UNREADABLE;
    uint64_t hash = mixed(cell.tag, count);
    uint64_t first = pickle->children.used;
    for (uint64_t i = 0; i < count; i++) {
        struct cell item = *cell_at(pickle, node->first + i);
        int64_t number = is_container(item.tag) ? node_at(pickle, item.as.at)->distinct : leaf(pickle, item);
        if (number < 0 || !array_reserve(pickle, &pickle->children, 1, sizeof(uint32_t))) {
            pickle->children.used = first;
            return UNREADABLE;
        }
        ((uint32_t *)pickle->children.items)[pickle->children.used++] = (uint32_t)number;
        hash = mixed(hash, (uint64_t)number);
    }
    return number_of(pickle, &(struct distinct){cell, hash, first, (uint32_t)count});
}

int64_t distinct_of(struct forensics_pickle *pickle, struct cell cell, int depth) {
    if (!is_container(cell.tag))
        return leaf(pickle, cell);
    struct node *node = node_at(pickle, cell.as.at);
    if (node->distinct != NOT_YET)
        return node->distinct;
    if (depth >= MAX_HEIGHT)
        return UNREADABLE;
    node->distinct = IN_PROGRESS;
    int64_t number = container(pickle, cell, depth);
    node->distinct = number < 0 ? UNREADABLE : (int32_t)number;
    return node->distinct;
}

int64_t key_position(const struct forensics_pickle *pickle, const struct node *node, const char *key, uint32_t length) {
    for (int64_t at = (int64_t)node->count - 2; at >= 0; at -= 2) {
        const struct cell *cell = cell_at(pickle, node->first + (uint64_t)at);
        if (cell->tag == FORENSICS_PICKLE_TEXT && cell->size == length && memcmp(pickle->bytes + cell->as.at, key, length) == 0)
            return at;
    }
    return -1;
}
