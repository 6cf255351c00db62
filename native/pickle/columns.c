/* A pickle's members and rows, as the caller sees them. */
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>

#include "pickle.h"

bool array_grow(struct forensics_pickle *pickle, struct array *array, uint64_t more, size_t width) {
    uint64_t wanted = array->used + more;
    uint64_t capacity = wanted > 2 * array->capacity ? wanted : 2 * array->capacity;
    uint64_t added = (capacity - array->capacity) * width;
    if (wanted > UINT64_MAX / width / 2 || added > pickle->memory_left)
        return false;
    void *items = realloc(array->items, capacity * width);
    if (items == NULL)
        return false;
    pickle->memory_left -= added;
    array->items = items;
    array->capacity = capacity;
    return true;
}

void array_release(struct forensics_pickle *pickle, struct array *array, size_t width) {
    pickle->memory_left += array->capacity * width;
    free(array->items);
    *array = (struct array){0};
}

uint32_t forensics_pickle_layout(void) { return FORENSICS_PICKLE_LAYOUT; }

struct forensics_pickle *forensics_pickle_read(const uint8_t *bytes, uint64_t size, uint64_t memory, int *status) {
    struct forensics_pickle *pickle = calloc(1, sizeof *pickle);
    if (pickle == NULL) {
        *status = FORENSICS_PICKLE_MEMORY;
        return NULL;
    }
    pickle->bytes = bytes;
    pickle->size = size;
    pickle->memory_left = memory;
    pickle->key = new_hash_key();
    *status = run_opcodes(pickle);
    if (*status == FORENSICS_PICKLE_OK)
        return pickle;
    forensics_pickle_free(pickle);
#ifdef __GLIBC__
    malloc_trim(0); /* Python reads the file next, and may take as much */
#endif
    return NULL;
}

void forensics_pickle_free(struct forensics_pickle *pickle) {
    if (pickle == NULL)
        return;
    struct array *arrays[] = {&pickle->cells,    &pickle->nodes, &pickle->stack, &pickle->marks, &pickle->memo,      &pickle->values,
                              &pickle->children, &pickle->table, &pickle->texts, &pickle->path,  &pickle->row_shapes};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]->items);
    free(pickle);
}

/* The cell under a key of the pickle's dictionary, or null. */
static const struct cell *member_cell(const struct forensics_pickle *pickle, const char *key, uint32_t length) {
    if (pickle->root.tag != FORENSICS_PICKLE_DICT)
        return NULL;
    const struct node *node = node_at(pickle, pickle->root.as.at);
    int64_t at = key_position(pickle, node, key, length);
    return at < 0 ? NULL : cell_at(pickle, node->first + (uint64_t)at + 1);
}

int64_t forensics_pickle_member(struct forensics_pickle *pickle, const char *key, uint32_t length) {
    const struct cell *cell = member_cell(pickle, key, length);
    if (cell == NULL)
        return -1;
    int64_t number = distinct_of(pickle, *cell);
    return number < 0 ? -2 : number;
}

/* Texts are shared through the memo, so keys of alike rows are the same bytes; others make a shape of their own. */
static bool same_keys(const struct forensics_pickle *pickle, const struct node *one, const struct node *other) {
    if (one->count != other->count)
        return false;
    for (uint64_t i = 0; i < one->count; i += 2) {
        const struct cell *key = cell_at(pickle, one->first + i);
        const struct cell *other_key = cell_at(pickle, other->first + i);
        if (key->tag != other_key->tag || key->size != other_key->size || key->as.integer != other_key->as.integer)
            return false;
    }
    return true;
}

/* The place of a row's shape, looked for once a dictionary; -1 when there are too many, or too many rows are this one. */
static int shape_of(struct forensics_pickle *pickle, uint64_t number) {
    struct node *node = node_at(pickle, number);
    if (node->shape != NOT_YET)
        return ++pickle->repeats <= MAX_REPEATS ? node->shape : -1;
    for (uint32_t i = 0; i < pickle->shape_count && node->shape == NOT_YET; i++)
        if (same_keys(pickle, node_at(pickle, pickle->shapes[i]), node))
            node->shape = (int8_t)i;
    if (node->shape != NOT_YET)
        return node->shape;
    if (pickle->shape_count == MAX_SHAPES)
        return -1;
    pickle->shapes[pickle->shape_count] = number;
    node->shape = (int8_t)pickle->shape_count;
    return (int)pickle->shape_count++;
}

int64_t forensics_pickle_rows(struct forensics_pickle *pickle, const char *key, uint32_t length) {
    const struct cell *list = member_cell(pickle, key, length);
    if (pickle->shape_count) /* what nodes remember of shapes is of the rows chosen first */
        return -1;
    pickle->rows = 0;
    if (list == NULL || list->tag != FORENSICS_PICKLE_LIST)
        return -1;
    const struct node *node = node_at(pickle, list->as.at);
    if (!array_reserve(pickle, &pickle->row_shapes, node->count, sizeof(uint8_t)))
        return -1;
    for (uint64_t i = 0; i < node->count; i++) {
        const struct cell *row = cell_at(pickle, node->first + i);
        int shape = row->tag == FORENSICS_PICKLE_DICT ? shape_of(pickle, row->as.at) : -1;
        if (shape < 0)
            return -1;
        ((uint8_t *)pickle->row_shapes.items)[i] = (uint8_t)shape;
    }
    pickle->rows_node = list->as.at;
    pickle->rows = node->count;
    return (int64_t)pickle->rows;
}

/* Numbers of the texts of a column met last, each in the place of its position in the bytes: rows refer to few. */
enum { RECENT_TEXTS = 16, MOST_AT_ONCE = 32 };

struct recent_text {
    struct cell cell;
    int64_t number;
};

/* Columns in work: where each shape has their keys, -1 where it lacks one, and where their tags and values go. */
struct columns {
    uint32_t count;
    uint64_t first;
    uint8_t *tags;
    int64_t *values;
    int64_t positions[MAX_SHAPES][MOST_AT_ONCE];
    struct recent_text recent[MOST_AT_ONCE][RECENT_TEXTS];
};

static int64_t number_in_column(struct forensics_pickle *pickle, struct recent_text *recent, struct cell cell) {
    if (cell.tag != FORENSICS_PICKLE_TEXT)
        return distinct_of(pickle, cell);
    struct recent_text *last = recent + cell.as.at % RECENT_TEXTS;
    if (last->cell.tag != cell.tag || last->cell.as.at != cell.as.at || last->cell.size != cell.size)
        *last = (struct recent_text){cell, distinct_of(pickle, cell)};
    return last->number;
}

static void place(struct forensics_pickle *pickle, struct recent_text *recent, struct cell cell, uint8_t *tag, int64_t *value) {
    bool is_plain = !is_container(cell.tag) && cell.tag != FORENSICS_PICKLE_TEXT;
    int64_t number = is_plain ? cell.as.integer : number_in_column(pickle, recent, cell);
    bool is_unreadable = !is_plain && number < 0;
    *tag = is_unreadable ? FORENSICS_PICKLE_UNREADABLE : (uint8_t)cell.tag;
    *value = is_unreadable ? 0 : number;
}

static void place_row(struct forensics_pickle *pickle, struct columns *columns, uint64_t row) {
    uint8_t shape = ((uint8_t *)pickle->row_shapes.items)[row];
    uint64_t number = cell_at(pickle, node_at(pickle, pickle->rows_node)->first + row)->as.at;
    const struct cell *cells = cell_at(pickle, node_at(pickle, number)->first);
    for (uint32_t i = 0; i < columns->count; i++) {
        int64_t position = columns->positions[shape][i];
        uint64_t at = i * (pickle->rows - columns->first) + (row - columns->first);
        if (position < 0) {
            columns->tags[at] = FORENSICS_PICKLE_ABSENT;
            columns->values[at] = 0;
        } else {
            place(pickle, columns->recent[i], cells[position + 1], columns->tags + at, columns->values + at);
        }
    }
}

/* Row by row: the cells of a row lie together, and those of all rows do not fit into the cache nearest to the processor. */
void forensics_pickle_columns(struct forensics_pickle *pickle, const char *const *keys, const uint32_t *lengths, uint32_t count,
                              uint64_t first, uint8_t *tags, int64_t *values) {
    uint64_t rows = first < pickle->rows ? pickle->rows - first : 0;
    for (uint32_t begin = 0; rows && begin < count; begin += MOST_AT_ONCE) {
        struct columns columns = {.count = count - begin < MOST_AT_ONCE ? count - begin : MOST_AT_ONCE,
                                  .first = first,
                                  .tags = tags + begin * rows,
                                  .values = values + begin * rows};
        for (uint32_t shape = 0; shape < pickle->shape_count; shape++)
            for (uint32_t i = 0; i < columns.count; i++)
                columns.positions[shape][i] =
                    key_position(pickle, node_at(pickle, pickle->shapes[shape]), keys[begin + i], lengths[begin + i]);
        for (uint64_t row = first; row < pickle->rows; row++)
            place_row(pickle, &columns, row);
    }
}
