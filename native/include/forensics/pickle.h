/* Pickles of plain data as columns: dictionaries, lists, tuples, texts and numbers, without an object for each value.
 *
 * Nothing in a pickle can run: an opcode that names a class or a function is refused. The caller keeps the bytes for as long
 * as the pickle. Read by ingest/flight_recorder/native.py; anything but FORENSICS_PICKLE_OK is left to Python's own unpickler,
 * which says what is wrong and salvages what is whole. */
#ifndef FORENSICS_PICKLE_H
#define FORENSICS_PICKLE_H

#include <stdint.h>

#include "forensics/export.h"

#define FORENSICS_PICKLE_LAYOUT 4u

enum forensics_pickle_status {
    FORENSICS_PICKLE_OK = 0,
    FORENSICS_PICKLE_CUT = 1,         /* the bytes end before the pickle does */
    FORENSICS_PICKLE_UNSUPPORTED = 2, /* an opcode that plain data does not need, an integer beyond 64 bits, a key that is no text */
    FORENSICS_PICKLE_MALFORMED = 3,   /* what no unpickler takes: no fit for stack or memo, no UTF-8, a key without a hash */
    FORENSICS_PICKLE_MEMORY = 4,      /* it would take more memory than allowed */
};

/* What a value is, in the tags of a column. */
enum forensics_pickle_tag {
    FORENSICS_PICKLE_ABSENT = 0, /* the row lacks the key */
    FORENSICS_PICKLE_NONE = 1,
    FORENSICS_PICKLE_BOOL = 2,  /* value: 0 or 1 */
    FORENSICS_PICKLE_INT = 3,   /* value: the integer */
    FORENSICS_PICKLE_FLOAT = 4, /* value: the bits of the double */
    FORENSICS_PICKLE_TEXT = 5,  /* value: number of the distinct value, as for what follows */
    FORENSICS_PICKLE_LIST = 6,
    FORENSICS_PICKLE_TUPLE = 7,
    FORENSICS_PICKLE_DICT = 8,
    FORENSICS_PICKLE_UNREADABLE = 9, /* nested too deep, or in itself */
};

struct forensics_pickle;

/* FORENSICS_PICKLE_LAYOUT of this library. */
FORENSICS_EXPORT uint32_t forensics_pickle_layout(void);

/* Reads `size` bytes, taking at most `memory` bytes. Returns null with a status that is not OK. */
FORENSICS_EXPORT struct forensics_pickle *forensics_pickle_read(const uint8_t *bytes, uint64_t size, uint64_t memory,
                                                                int *status);

FORENSICS_EXPORT void forensics_pickle_free(struct forensics_pickle *pickle);

/* Number of the distinct value under a key of the pickle's dictionary; -1 without it, -2 when it is unreadable. */
FORENSICS_EXPORT int64_t forensics_pickle_member(struct forensics_pickle *pickle, const char *key, uint32_t length);

/* Chooses the list under a key of the pickle's dictionary as the rows of `columns`. Returns how many there are, or -1 when
 * it is not a list of dictionaries, these have keys of too many kinds, or too many are one and the same. */
FORENSICS_EXPORT int64_t forensics_pickle_rows(struct forensics_pickle *pickle, const char *key, uint32_t length);

/* Writes tag and value of every row from `first` on under each of `count` keys, these rows of a key together; a value for which
 * memory does not suffice is unreadable. Nothing is written where `first` is beyond the rows. */
FORENSICS_EXPORT void forensics_pickle_columns(struct forensics_pickle *pickle, const char *const *keys, const uint32_t *lengths,
                                               uint32_t count, uint64_t first, uint8_t *tags, int64_t *values);

/* What a distinct value says once all that it refers to is written out: of a few bytes, references to references make any
 * amount. 32 for a container, 8 for any other value, and the bytes of a text. -1 when there is no such value. */
FORENSICS_EXPORT int64_t forensics_pickle_weight(const struct forensics_pickle *pickle, int64_t number);

/* Writes a distinct value as JSON and returns its length; one that is longer than `capacity` is not whole, and its length
 * not counted to the end. Returns -1 when there is no such value or it cannot be JSON. */
FORENSICS_EXPORT int64_t forensics_pickle_json(const struct forensics_pickle *pickle, int64_t number, char *text,
                                               uint64_t capacity);

#endif
