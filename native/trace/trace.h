/* What the parts of the trace reader share. */
#ifndef FORENSICS_TRACE_INTERNAL_H
#define FORENSICS_TRACE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "forensics/keyed_hash.h"
#include "forensics/trace.h"

struct column {
    char *items;
    uint64_t used, capacity; /* bytes */
};

/* Distinct texts: open addressing over the numbers of the texts, 0 for an empty place, else number + 1. */
struct distinct {
    uint32_t *places;
    uint32_t *hashes; /* of each text */
    uint64_t size;    /* a power of two */
    uint32_t count;
};

enum progress { BEFORE_LIST, IN_LIST, AFTER_LIST };

struct forensics_trace {
    struct column columns[FORENSICS_TRACE_COLUMNS];
    struct distinct names, tracks;
    struct hash_key key;
    uint64_t memory_left;
    uint64_t before; /* bytes of the file that were done with in earlier blocks */
    struct forensics_trace_tally tally;
    enum progress progress;
    bool is_indented;  /* events stand on lines of their own, behind `indent` */
    bool is_unsure;    /* behind a broken event, where a bracket may end a list in it */
    bool is_known;     /* whether it is known if they do */
    bool has_no_device;
    size_t indent;     /* length of what stands before the brace of an event: a line break and blanks */
    char lead[64];     /* that, with the brace that ends an event behind it */
};

/* A piece of the block: a text without its quotes, or a number. */
struct piece {
    const char *at;
    size_t length;
};

/* An event as far as it is needed. */
struct event {
    struct piece phase, category, name, pid, tid, ts, dur, external, correlation;
    bool has_collective, keeps_operators;
    int kind; /* 0 for what nobody wants, once phase, category and name are known */
};

enum found { FOUND, CUT, BROKEN };

/* json.c: each returns where it ends, or null when the text ends first (`*found` CUT) or is no JSON (BROKEN). */
const char *past_escapes(const char *at, const char *end, enum found *found);
const char *past_value(const char *at, const char *end, enum found *found);
/* Microseconds with decimals as whole nanoseconds; false for what is no time. */
bool nanoseconds(struct piece number, int64_t *ns);
int64_t whole_number(struct piece number);

/* The next quote, or null. Most texts have a dozen bytes, fewer than a call of memchr is worth: those are looked through first,
 * eight at once (a byte of `other` is zero where the quote is; the borrow of the subtraction reaches only bytes behind it). */
static inline const char *next_quote(const char *at, const char *end) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (int word = 0; word < 4 && end - at >= 8; word++, at += 8) {
        uint64_t bytes;
        memcpy(&bytes, at, sizeof bytes);
        uint64_t other = bytes ^ (0x0101010101010101 * '"');
        uint64_t zero = (other - 0x0101010101010101) & ~other & 0x8080808080808080;
        if (zero)
            return at + __builtin_ctzll(zero) / 8;
    }
#endif
    return memchr(at, '"', (size_t)(end - at));
}

/* From behind the opening quote to the closing one. */
static inline const char *past_text(const char *at, const char *end, enum found *found) {
    const char *quote = next_quote(at, end);
    return quote != NULL && quote[-1] != '\\' ? quote : past_escapes(at, end, found);
}

static inline const char *past_blanks(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* Inline, so that the length of a literal is a constant. */
static inline bool starts_with(struct piece piece, const char *text) {
    return piece.length >= strlen(text) && memcmp(piece.at, text, strlen(text)) == 0;
}

static inline bool is_text(struct piece piece, const char *text) {
    return piece.length == strlen(text) && memcmp(piece.at, text, strlen(text)) == 0;
}

/* events.c: reads an object from its brace on. An event that nobody wants is stepped over unread when `end` is its own end. */
const char *read_event(const char *at, const char *end, bool is_whole, bool keeps_operators, struct event *event,
                       enum found *found);

/* columns.c: false for want of memory. */
bool keep_event(struct forensics_trace *trace, const struct event *event, struct piece whole);

#endif
