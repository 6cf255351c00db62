/* Distinct values: equal texts, numbers and containers get one number, so that a column of a million is a few and codes. */
#include <string.h>

#include "pickle.h"

enum { LONG_TEXT = 48 };
static const uint32_t MOST_WEIGHT = UINT32_MAX;

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
    struct hash_state state = hash_begin(pickle->key);
    hash_word(&state, cell.tag);
    if (cell.tag == FORENSICS_PICKLE_TEXT)
        hash_bytes(&state, pickle->bytes + cell.as.at, cell.size);
    else
        hash_word(&state, (uint64_t)cell.as.integer);
    return number_of(pickle, &(struct distinct){.cell = cell, .hash = hash_end(&state)});
}

static struct known_text *place_of(const struct forensics_pickle *pickle, uint64_t at) {
    struct known_text *texts = pickle->texts.items;
    struct hash_state state = hash_begin(pickle->key);
    hash_word(&state, at);
    uint64_t mask = pickle->texts.used - 1;
    uint64_t place = hash_end(&state) & mask;
    while (texts[place].number && texts[place].at != at)
        place = (place + 1) & mask;
    return texts + place;
}

/* Keeps the table of long texts at most half full. */
static bool grow_texts(struct forensics_pickle *pickle) {
    struct array before = pickle->texts, larger = {0};
    if (before.used > 2 * (pickle->texts_known + 1))
        return true;
    uint64_t size = before.used ? 2 * before.used : 64;
    if (!array_reserve(pickle, &larger, size, sizeof(struct known_text)))
        return false;
    memset(larger.items, 0, size * sizeof(struct known_text));
    larger.used = size;
    pickle->texts = larger;
    for (uint64_t i = 0; i < before.used; i++) {
        const struct known_text *text = (struct known_text *)before.items + i;
        if (text->number)
            *place_of(pickle, text->at) = *text;
    }
    array_release(pickle, &before, sizeof(struct known_text));
    return true;
}

static int64_t long_text(struct forensics_pickle *pickle, struct cell cell) {
    if (!grow_texts(pickle))
        return UNREADABLE;
    struct known_text *text = place_of(pickle, cell.as.at);
    if (text->number)
        return (int64_t)text->number - 1;
    int64_t number = leaf(pickle, cell);
    if (number < 0)
        return number;
    *text = (struct known_text){cell.as.at, (uint64_t)number + 1};
    pickle->texts_known++;
    return number;
}

uint32_t weight_of(const struct forensics_pickle *pickle, struct cell cell) {
    if (is_container(cell.tag))
        return value_at(pickle, (uint64_t)node_at(pickle, cell.as.at)->distinct)->weight;
    uint64_t weight = LEAF_WEIGHT + (cell.tag == FORENSICS_PICKLE_TEXT ? (uint64_t)cell.size : 0);
    return weight < MOST_WEIGHT ? (uint32_t)weight : MOST_WEIGHT;
}

/* Adds what a readable item brings to the container that holds it; false when that is nested too deep. */
static bool note_item(const struct forensics_pickle *pickle, struct node *node, uint32_t *weight, struct cell item) {
    uint32_t more = weight_of(pickle, item);
    *weight = more > MOST_WEIGHT - *weight ? MOST_WEIGHT : *weight + more;
    if (!is_container(item.tag))
        return true;
    uint16_t inner = node_at(pickle, item.as.at)->height;
    node->height = inner >= node->height ? (uint16_t)(inner + 1) : node->height;
    return node->height < MAX_HEIGHT;
}

static int64_t item_number(struct forensics_pickle *pickle, struct cell item) {
    return is_container(item.tag) ? node_at(pickle, item.as.at)->distinct : distinct_of(pickle, item);
}

/* The number of a container in which all containers have theirs. */
static int64_t container(struct forensics_pickle *pickle, struct cell cell) {
    struct node *node = node_at(pickle, cell.as.at);
    struct hash_state state = hash_begin(pickle->key);
    uint64_t first = pickle->children.used;
    uint32_t weight = CONTAINER_WEIGHT;
    hash_word(&state, cell.tag);
    for (uint64_t i = 0; i < node->count; i++) {
        struct cell item = *cell_at(pickle, node->first + i);
        int64_t number = item_number(pickle, item);
        if (number < 0 || !note_item(pickle, node, &weight, item) || !array_reserve(pickle, &pickle->children, 1, sizeof(uint32_t))) {
            pickle->children.used = first;
            return UNREADABLE;
        }
        ((uint32_t *)pickle->children.items)[pickle->children.used++] = (uint32_t)number;
        hash_word(&state, (uint64_t)number);
    }
    return number_of(pickle, &(struct distinct){cell, hash_end(&state), first, node->count, weight});
}

static uint32_t *recent_place(struct forensics_pickle *pickle, const struct node *node) {
    uint64_t mixed = node->tag + node->count;
    for (uint64_t i = 0; i < node->count; i++)
        mixed = (mixed ^ (uint64_t)cell_at(pickle, node->first + i)->as.integer) * 0x9e3779b97f4a7c15u;
    return pickle->recent + (mixed >> 56) % RECENT_CONTAINERS;
}

/* The number of a container whose cells are those of one met lately, NOT_YET without one: of calls from one line, all share
 * texts and frames through the memo. */
static int32_t number_alike(const struct forensics_pickle *pickle, struct node *node, uint32_t recent) {
    if (!recent)
        return NOT_YET;
    struct cell known = value_at(pickle, recent - 1)->cell;
    const struct node *other = node_at(pickle, known.as.at);
    size_t size = node->count * sizeof(struct cell);
    if (other->tag != node->tag || other->count != node->count ||
        (size && memcmp(cell_at(pickle, other->first), cell_at(pickle, node->first), size)))
        return NOT_YET;
    node->height = other->height;
    return node->distinct = (int32_t)recent - 1;
}

static bool enter(struct forensics_pickle *pickle, uint64_t number) {
    if (!array_reserve(pickle, &pickle->path, 1, sizeof(struct visit)))
        return false;
    node_at(pickle, number)->distinct = IN_PROGRESS;
    ((struct visit *)pickle->path.items)[pickle->path.used++] = (struct visit){.node = number};
    return true;
}

/* The next container in one that has no number yet, or null; what is in itself or cannot be read ends the search. */
static const struct cell *next_unnumbered(const struct forensics_pickle *pickle, struct visit *visit) {
    const struct node *node = node_at(pickle, visit->node);
    while (visit->next < node->count) {
        const struct cell *item = cell_at(pickle, node->first + visit->next++);
        if (!is_container(item->tag))
            continue;
        int32_t distinct = node_at(pickle, item->as.at)->distinct;
        if (distinct == NOT_YET)
            return item;
        if (distinct < 0)
            visit->next = node->count;
    }
    return NULL;
}

/* Numbers the innermost containers first. Not by calls in calls: the depth of a file is not the depth of a stack. */
static int64_t number_nested(struct forensics_pickle *pickle, struct cell cell) {
    struct array *path = &pickle->path;
    bool is_full = !enter(pickle, cell.as.at);
    while (path->used) {
        struct visit *visit = (struct visit *)path->items + (path->used - 1);
        const struct cell *inner = is_full ? NULL : next_unnumbered(pickle, visit);
        if (inner != NULL) {
            is_full = !enter(pickle, inner->as.at);
            continue;
        }
        struct node *node = node_at(pickle, visit->node);
        int64_t number = is_full ? UNREADABLE : container(pickle, (struct cell){.tag = node->tag, .as.at = visit->node});
        node->distinct = number < 0 ? UNREADABLE : (int32_t)number;
        path->used--;
    }
    return node_at(pickle, cell.as.at)->distinct;
}

int64_t distinct_of(struct forensics_pickle *pickle, struct cell cell) {
    if (!is_container(cell.tag))
        return cell.tag == FORENSICS_PICKLE_TEXT && cell.size > LONG_TEXT ? long_text(pickle, cell) : leaf(pickle, cell);
    struct node *node = node_at(pickle, cell.as.at);
    if (node->distinct != NOT_YET)
        return node->distinct;
    uint32_t *recent = recent_place(pickle, node);
    if (number_alike(pickle, node, *recent) != NOT_YET)
        return node->distinct;
    int64_t number = number_nested(pickle, cell);
    if (number >= 0)
        *recent = (uint32_t)number + 1;
    return number;
}

int64_t key_position(const struct forensics_pickle *pickle, const struct node *node, const char *key, uint32_t length) {
    for (int64_t at = (int64_t)node->count - 2; at >= 0; at -= 2) {
        const struct cell *cell = cell_at(pickle, node->first + (uint64_t)at);
        if (cell->tag == FORENSICS_PICKLE_TEXT && cell->size == length && memcmp(pickle->bytes + cell->as.at, key, length) == 0)
            return at;
    }
    return -1;
}
