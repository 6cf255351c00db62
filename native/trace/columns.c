/* Kept events as columns, and the distinct texts among them. */
#include <stdlib.h>
#include <string.h>

#include "trace.h"

enum { LONGEST_NAME = 1 << 16, LONGEST_DETAIL = 1 << 20, FEWEST_PLACES = 1 << 10 };

struct forensics_trace *forensics_trace_open(uint64_t memory) {
    struct forensics_trace *trace = calloc(1, sizeof *trace);
    if (trace == NULL)
        return NULL;
    trace->memory_left = memory;
    trace->key = new_hash_key();
    return trace;
}

void forensics_trace_close(struct forensics_trace *trace) {
    if (trace == NULL)
        return;
    for (size_t i = 0; i < FORENSICS_TRACE_COLUMNS; i++)
        free(trace->columns[i].items);
    free(trace->names.places);
    free(trace->names.hashes);
    free(trace->tracks.places);
    free(trace->tracks.hashes);
    free(trace);
}

const void *forensics_trace_column(const struct forensics_trace *trace, uint32_t column, uint64_t *bytes) {
    if (column >= FORENSICS_TRACE_COLUMNS) {
        *bytes = 0;
        return NULL;
    }
    *bytes = trace->columns[column].used;
    return trace->columns[column].items;
}

void forensics_trace_tallied(const struct forensics_trace *trace, struct forensics_trace_tally *tally) {
    *tally = trace->tally;
}

static bool make_room(struct forensics_trace *trace, struct column *column, uint64_t more) {
    if (column->capacity - column->used >= more)
        return true;
    uint64_t capacity = column->used + more > 2 * column->capacity ? column->used + more : 2 * column->capacity;
    capacity = capacity < 4096 ? 4096 : capacity;
    uint64_t added = capacity - column->capacity;
    char *items = added <= trace->memory_left ? realloc(column->items, capacity) : NULL;
    if (items == NULL)
        return false;
    trace->memory_left -= added;
    column->items = items;
    column->capacity = capacity;
    return true;
}

static bool append(struct forensics_trace *trace, int which, const void *bytes, uint64_t size) {
    struct column *column = &trace->columns[which];
    if (!make_room(trace, column, size))
        return false;
    if (size > 0)
        memcpy(column->items + column->used, bytes, size);
    column->used += size;
    return true;
}

/* Of a text alone or of two: the length of each is in what is hashed, so that no two ways to part a text are alike. */
static uint32_t hash_of(struct hash_key key, struct piece first, struct piece second) {
    struct hash_state state = hash_begin(key);
    hash_bytes(&state, first.at, first.length);
    hash_bytes(&state, second.at, second.length);
    return (uint32_t)hash_end(&state);
}

/* Twice the places; numbers keep. */
static bool grow(struct forensics_trace *trace, struct distinct *distinct) {
    uint64_t size = distinct->size ? 2 * distinct->size : FEWEST_PLACES;
    uint64_t added = (size - distinct->size) * (sizeof *distinct->places + sizeof *distinct->hashes);
    if (added > trace->memory_left)
        return false;
    uint32_t *hashes = realloc(distinct->hashes, size * sizeof *hashes);
    if (hashes == NULL)
        return false;
    distinct->hashes = hashes;
    uint32_t *places = calloc(size, sizeof *places);
    if (places == NULL)
        return false;
    for (uint32_t number = 0; number < distinct->count; number++) {
        uint64_t place = hashes[number] & (size - 1);
        while (places[place])
            place = (place + 1) & (size - 1);
        places[place] = number + 1;
    }
    free(distinct->places);
    trace->memory_left -= added;
    distinct->places = places;
    distinct->size = size;
    return true;
}

static struct piece text_of(const struct forensics_trace *trace, int bytes, uint32_t number) {
    const uint64_t *ends = (const uint64_t *)(const void *)trace->columns[bytes + 1].items;
    uint64_t begin = number ? ends[number - 1] : 0;
    return (struct piece){trace->columns[bytes].items + begin, ends[number] - begin};
}

/* An event may lack a member: its piece then has no place, which memcmp must not be given. */
static bool is_same(const char *at, struct piece piece) {
    return piece.length == 0 || memcmp(at, piece.at, piece.length) == 0;
}

static bool is_joined(struct piece whole, struct piece first, struct piece second, bool has_second) {
    if (whole.length != first.length + (has_second ? second.length + 1 : 0) || !is_same(whole.at, first))
        return false;
    return !has_second || (whole.at[first.length] == '/' && is_same(whole.at + first.length + 1, second));
}

static bool add_text(struct forensics_trace *trace, int bytes, struct piece first, struct piece second, bool has_second) {
    if (!append(trace, bytes, first.at, first.length))
        return false;
    if (has_second && (!append(trace, bytes, "/", 1) || !append(trace, bytes, second.at, second.length)))
        return false;
    uint64_t end = trace->columns[bytes].used;
    return append(trace, bytes + 1, &end, sizeof end);
}

/* The number of a text, or of two with a slash between them; -1 for want of memory. */
static int32_t number_of(struct forensics_trace *trace, struct distinct *distinct, int bytes, struct piece first,
                         struct piece second, bool has_second) {
    if (2 * (uint64_t)distinct->count >= distinct->size && !grow(trace, distinct))
        return -1;
    uint32_t hash = hash_of(trace->key, first, second);
    uint64_t place = hash & (distinct->size - 1);
    for (; distinct->places[place]; place = (place + 1) & (distinct->size - 1)) {
        uint32_t number = distinct->places[place] - 1;
        if (distinct->hashes[number] == hash && is_joined(text_of(trace, bytes, number), first, second, has_second))
            return (int32_t)number;
    }
    if (distinct->count >= INT32_MAX / 4 || !add_text(trace, bytes, first, second, has_second))
        return -1;
    distinct->hashes[distinct->count] = hash;
    distinct->places[place] = distinct->count + 1;
    return (int32_t)distinct->count++;
}

static struct piece bounded(struct piece piece, size_t longest) {
    return piece.length <= longest ? piece : (struct piece){piece.at, longest};
}

/* The number of the event's own text, -1 when it has nothing to add, -2 for want of memory. */
static int32_t detail_of(struct forensics_trace *trace, const struct event *event, struct piece whole) {
    if (!event->has_collective || whole.length > LONGEST_DETAIL)
        return -1;
    uint64_t number = trace->columns[FORENSICS_TRACE_DETAIL_ENDS].used / sizeof(uint64_t);
    if (number > INT32_MAX || !add_text(trace, FORENSICS_TRACE_DETAIL_BYTES, whole, whole, false))
        return -2;
    return (int32_t)number;
}

bool keep_event(struct forensics_trace *trace, const struct event *event, struct piece whole) {
    int64_t begin, duration, external = whole_number(event->external), correlation = whole_number(event->correlation);
    if (!nanoseconds(event->ts, &begin) || !nanoseconds(event->dur, &duration) || duration < 0)
        return true; /* no event with a begin and an end */
    uint8_t byte = (uint8_t)event->kind;
    struct piece name = bounded(event->name, LONGEST_NAME), none = {"", 0};
    int32_t named = number_of(trace, &trace->names, FORENSICS_TRACE_NAME_BYTES, name, none, false);
    int32_t track = number_of(trace, &trace->tracks, FORENSICS_TRACE_TRACK_BYTES, bounded(event->pid, LONGEST_NAME),
                              bounded(event->tid, LONGEST_NAME), true);
    int32_t detail = detail_of(trace, event, whole);
    if (named < 0 || track < 0 || detail == -2)
        return false;
    /* Kinds last: their number is the number of events, whatever memory there was for the rest. */
    if (!append(trace, FORENSICS_TRACE_NAMES, &named, sizeof named) || !append(trace, FORENSICS_TRACE_TRACKS, &track, sizeof track) ||
        !append(trace, FORENSICS_TRACE_BEGINS, &begin, sizeof begin) ||
        !append(trace, FORENSICS_TRACE_DURATIONS, &duration, sizeof duration) ||
        !append(trace, FORENSICS_TRACE_EXTERNALS, &external, sizeof external) ||
        !append(trace, FORENSICS_TRACE_CORRELATIONS, &correlation, sizeof correlation) ||
        !append(trace, FORENSICS_TRACE_DETAILS, &detail, sizeof detail) || !append(trace, FORENSICS_TRACE_KINDS, &byte, sizeof byte))
        return false;
    trace->tally.kept++;
    return true;
}
