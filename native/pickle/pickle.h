/* What the parts of the pickle reader share: values as cells of 16 bytes, containers as slices of one array of cells. */
#ifndef FORENSICS_PICKLE_INTERNAL_H
#define FORENSICS_PICKLE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "forensics/keyed_hash.h"
#include "forensics/pickle.h"

/* `at` is a position in the bytes for a text (of `size` bytes), a number of a node for a container. */
struct cell {
    uint32_t tag; /* enum forensics_pickle_tag */
    uint32_t size;
    union {
        int64_t integer;
        double real;
        uint64_t at;
    } as;
};

/* A list, tuple or dictionary (key, value, key, value...): `count` cells from `first` on, with room for `capacity`. */
struct node {
    uint64_t first;
    uint32_t count;
    uint32_t capacity;
    int32_t distinct; /* number of its distinct value, or one of the marks below */
    uint16_t height;  /* containers nested in it, known with `distinct` */
    uint8_t tag;
    int8_t shape; /* place among the shapes of rows, or NOT_YET */
};

enum { NOT_YET = -1, IN_PROGRESS = -2, UNREADABLE = -3 };

/* Of the weight: what a container and what any other value counts, texts with their bytes on top. ingest/_shared/weights.py counts alike. */
enum { CONTAINER_WEIGHT = 32, LEAF_WEIGHT = 8 };

/* A growing array; `items` is null while it is empty. */
struct array {
    void *items;
    uint64_t used;
    uint64_t capacity;
};

/* A distinct value: one cell that has it, the hash, and for containers the numbers of what it holds. */
struct distinct {
    struct cell cell;
    uint64_t hash;
    uint64_t first_child;
    uint32_t children;
    uint32_t weight; /* what it says once all that it refers to is written out; MOST_WEIGHT and more is the same */
};

/* A long text by its place: it is hashed once, however often it is referred to. */
struct known_text {
    uint64_t at;
    uint64_t number; /* of the distinct value plus one, 0 in an empty place */
};

/* A container whose items are being looked at, up to `next`. */
struct visit {
    uint64_t node;
    uint64_t next;
};

#define MAX_SHAPES 64
#define MAX_REPEATS 4096 /* rows that are one and the same dictionary as another: a recorder makes none */
#define MAX_HEIGHT 64
#define RECENT_CONTAINERS 256

struct forensics_pickle {
    const uint8_t *bytes;
    uint64_t size;
    uint64_t memory_left;
    struct hash_key key;
    uint64_t remembered; /* numbers of the memo that are taken: some may be left out */
    struct array cells;    /* struct cell */
    struct array nodes;    /* struct node */
    struct array stack;    /* struct cell */
    struct array marks;    /* uint64_t: height of the stack at each open mark */
    struct array memo;     /* struct cell */
    struct array values;   /* struct distinct */
    struct array children; /* uint32_t */
    struct array table;    /* uint32_t: open addressing, number of the value plus one */
    struct array texts;    /* struct known_text: open addressing */
    uint64_t texts_known;
    struct array path; /* struct visit: from the container asked for to the one in work */
    struct array row_shapes; /* uint8_t */
    struct cell root;
    uint64_t rows_node;
    uint64_t rows;
    uint64_t shapes[MAX_SHAPES]; /* rows with the same keys: the node of the first such row stands for all */
    uint32_t shape_count;
    uint32_t repeats; /* rows that are the same dictionary as a row before */
    uint32_t recent[RECENT_CONTAINERS]; /* number plus one of a container met lately, in the place of what its cells come to */
};

static inline struct cell *cell_at(const struct forensics_pickle *pickle, uint64_t index) {
    return (struct cell *)pickle->cells.items + index;
}

static inline struct node *node_at(const struct forensics_pickle *pickle, uint64_t index) {
    return (struct node *)pickle->nodes.items + index;
}

static inline struct distinct *value_at(const struct forensics_pickle *pickle, uint64_t index) {
    return (struct distinct *)pickle->values.items + index;
}

static inline bool is_container(uint32_t tag) {
    return tag == FORENSICS_PICKLE_LIST || tag == FORENSICS_PICKLE_TUPLE || tag == FORENSICS_PICKLE_DICT;
}

/* Makes room for `more` items of `width` bytes; false when the memory allowed for the pickle does not suffice. */
bool array_grow(struct forensics_pickle *pickle, struct array *array, uint64_t more, size_t width);

static inline bool array_reserve(struct forensics_pickle *pickle, struct array *array, uint64_t more, size_t width) {
    return array->capacity - array->used >= more || array_grow(pickle, array, more, width);
}

/* Gives the array's memory back. */
void array_release(struct forensics_pickle *pickle, struct array *array, size_t width);

/* Runs the opcodes; returns an enum forensics_pickle_status. */
int run_opcodes(struct forensics_pickle *pickle);

/* Whether a text is UTF-8, lone surrogates included, as Python's unpickler takes it. */
bool is_text(const uint8_t *bytes, uint64_t size);

/* Number of the distinct value of a cell; a mark below zero when it is unreadable or memory is out. */
int64_t distinct_of(struct forensics_pickle *pickle, struct cell cell);

/* The weight of a value: of a container once it has its number. */
uint32_t weight_of(const struct forensics_pickle *pickle, struct cell cell);

/* Position of a key among the pairs of a dictionary, the last one when it is there twice; -1 without it. */
int64_t key_position(const struct forensics_pickle *pickle, const struct node *node, const char *key, uint32_t length);

#endif
