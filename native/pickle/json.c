/* Distinct values as JSON, and the texts they may hold. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pickle.h"

/* Counts on behind the end of `text`, so that the caller learns that it is too short; gives up soon after. */
struct sink {
    const struct forensics_pickle *pickle;
    char *text;
    uint64_t capacity;
    uint64_t length;
    bool failed;
};

static void add(struct sink *sink, const char *bytes, uint64_t size) {
    if (sink->length + size <= sink->capacity)
        memcpy(sink->text + sink->length, bytes, size);
    sink->length += size;
}

/* Length of the UTF-8 sequence that starts here, lone surrogates included; 0 when it is none. */
static int sequence_length(const uint8_t *bytes, uint64_t left) {
    int length = bytes[0] < 0x80 ? 1 : bytes[0] < 0xc2 ? 0 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : bytes[0] < 0xf5 ? 4 : 0;
    if (length == 0 || (uint64_t)length > left)
        return 0;
    for (int i = 1; i < length; i++)
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
    bool is_overlong = (bytes[0] == 0xe0 && bytes[1] < 0xa0) || (bytes[0] == 0xf0 && bytes[1] < 0x90);
    bool is_beyond = bytes[0] == 0xf4 && bytes[1] >= 0x90;
    return is_overlong || is_beyond ? 0 : length;
}

bool is_text(const uint8_t *bytes, uint64_t size) {
    for (uint64_t at = 0; at < size;) {
        uint64_t word = 0;
        if (size - at >= sizeof word) {
            memcpy(&word, bytes + at, sizeof word);
            if (!(word & 0x8080808080808080u)) { /* eight letters of ASCII */
                at += sizeof word;
                continue;
            }
        }
        int length = sequence_length(bytes + at, size - at);
        if (length == 0)
            return false;
        at += (uint64_t)length;
    }
    return true;
}

static void add_escaped(struct sink *sink, unsigned code) {
    char escape[8];
    add(sink, escape, (uint64_t)snprintf(escape, sizeof escape, "\\u%04x", code));
}

/* How many of these bytes stand in JSON as they are. */
static uint64_t plain_length(const uint8_t *bytes, uint64_t size) {
    uint64_t at = 0;
    while (at < size && bytes[at] >= 0x20 && bytes[at] < 0x80 && bytes[at] != '"' && bytes[at] != '\\')
        at++;
    return at;
}

static void add_text(struct sink *sink, const uint8_t *bytes, uint64_t size) {
    add(sink, "\"", 1);
    for (uint64_t at = 0; at < size && sink->length <= sink->capacity;) {
        uint64_t plain = plain_length(bytes + at, size - at);
        add(sink, (const char *)bytes + at, plain);
        at += plain;
        if (at == size)
            break;
        int length = sequence_length(bytes + at, size - at);
        bool is_surrogate = bytes[at] == 0xed && bytes[at + 1] >= 0xa0;
        if (is_surrogate)
            add_escaped(sink, 0xd000u | (bytes[at + 1] & 0x3fu) << 6 | (bytes[at + 2] & 0x3fu));
        else if (bytes[at] < 0x20 || bytes[at] == '"' || bytes[at] == '\\')
            add_escaped(sink, bytes[at]);
        else
            add(sink, (const char *)bytes + at, (uint64_t)length);
        at += (uint64_t)length;
    }
    add(sink, "\"", 1);
}

static void add_real(struct sink *sink, double real) {
    char number[32];
    if (isfinite(real)) {
        int length = snprintf(number, sizeof number, "%.17g", real);
        add(sink, number, (uint64_t)length);
        if (memchr(number, '.', (size_t)length) == NULL && memchr(number, 'e', (size_t)length) == NULL)
            add(sink, ".0", 2);
    } else {
        add(sink, isnan(real) ? "NaN" : real > 0 ? "Infinity" : "-Infinity", isnan(real) ? 3 : real > 0 ? 8 : 9);
    }
}

static void add_cell(struct sink *sink, struct cell cell);

static void add_items(struct sink *sink, const struct node *node) {
    add(sink, "[", 1);
    for (uint64_t i = 0; i < node->count && sink->length <= sink->capacity; i++) {
        if (i)
            add(sink, ",", 1);
        add_cell(sink, *cell_at(sink->pickle, node->first + i));
    }
    add(sink, "]", 1);
}

static void add_pairs(struct sink *sink, const struct node *node) {
    add(sink, "{", 1);
    for (uint64_t i = 0; i < node->count && sink->length <= sink->capacity; i += 2) {
        struct cell key = *cell_at(sink->pickle, node->first + i);
        sink->failed |= key.tag != FORENSICS_PICKLE_TEXT;
        if (i)
            add(sink, ",", 1);
        add_cell(sink, key);
        add(sink, ":", 1);
        add_cell(sink, *cell_at(sink->pickle, node->first + i + 1));
    }
    add(sink, "}", 1);
}

static void add_cell(struct sink *sink, struct cell cell) {
    char number[24];
    switch (cell.tag) {
    case FORENSICS_PICKLE_NONE: add(sink, "null", 4); break;
    case FORENSICS_PICKLE_BOOL: add(sink, cell.as.integer ? "true" : "false", cell.as.integer ? 4 : 5); break;
    case FORENSICS_PICKLE_INT:
        add(sink, number, (uint64_t)snprintf(number, sizeof number, "%lld", (long long)cell.as.integer));
        break;
    case FORENSICS_PICKLE_FLOAT: add_real(sink, cell.as.real); break;
    case FORENSICS_PICKLE_TEXT: add_text(sink, sink->pickle->bytes + cell.as.at, cell.size); break;
    case FORENSICS_PICKLE_DICT: add_pairs(sink, node_at(sink->pickle, cell.as.at)); break;
    default: add_items(sink, node_at(sink->pickle, cell.as.at)); break;
    }
}

int64_t forensics_pickle_weight(const struct forensics_pickle *pickle, int64_t number) {
    if (number < 0 || (uint64_t)number >= pickle->values.used)
        return -1;
    return (int64_t)weight_of(pickle, value_at(pickle, (uint64_t)number)->cell);
}

int64_t forensics_pickle_json(const struct forensics_pickle *pickle, int64_t number, char *text, uint64_t capacity) {
    if (number < 0 || (uint64_t)number >= pickle->values.used || capacity > INT64_MAX)
        return -1;
    struct sink sink = {.pickle = pickle, .text = text, .capacity = capacity};
    add_cell(&sink, value_at(pickle, (uint64_t)number)->cell);
    return sink.failed ? -1 : (int64_t)sink.length;
}
