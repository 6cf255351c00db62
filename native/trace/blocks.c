/* Whole events out of blocks of a file: where the list begins, where an event ends, and where to go on behind a broken one. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "trace.h"

enum { LONGEST_EVENT = 1 << 20 };

static const char LIST[] = "\"traceEvents\"", DEVICES[] = "\"deviceProperties\"";

uint32_t forensics_trace_layout(void) { return FORENSICS_TRACE_LAYOUT; }

/* To the first byte behind the bracket of a list; null when it is not in the text. */
static const char *find_list(const char *at, const char *end, const char *key) {
    while ((at = memmem(at, (size_t)(end - at), key, strlen(key))) != NULL) {
        at += strlen(key);
        const char *next = past_blanks(at, end);
        if (next < end && *next == ':') {
            next = past_blanks(next + 1, end);
            if (next < end && *next == '[')
                return next + 1;
        }
    }
    return NULL;
}

/* Whether what stands before the events has an empty list of devices. */
static bool lists_no_device(const char *at, const char *end) {
    const char *list = find_list(at, end, DEVICES);
    list = list ? past_blanks(list, end) : end;
    return list < end && *list == ']';
}

/* Learns from the first event how events are laid out. In a JSON text a line break is written as \n, so that a break, blanks and a
 * brace stand nowhere but between events, or between what is in them further in. */
static void learn_layout(struct forensics_trace *trace, const char *block, const char *first, const char *after) {
    size_t blanks = 0;
    while (first - blanks > block && (first[-1 - (ptrdiff_t)blanks] == ' ' || first[-1 - (ptrdiff_t)blanks] == '\t'))
        blanks++;
    trace->is_known = true;
    if (first - blanks <= block || first[-1 - (ptrdiff_t)blanks] != '\n' || blanks + 2 > sizeof trace->lead)
        return;
    trace->indent = blanks + 1;
    memcpy(trace->lead, first - trace->indent, trace->indent);
    trace->lead[trace->indent] = '}';
    size_t size = trace->indent + 1;
    trace->is_indented = (size_t)(after - first) > size && memcmp(after - size, trace->lead, size) == 0;
}

/* Whether a text begins with the first `size` bytes of `lead`: most often three to five, fewer than a call of memcmp is worth. */
static inline bool is_lead(const struct forensics_trace *trace, const char *at, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (at[i] != trace->lead[i])
            return false;
    return true;
}

/* Behind the brace that ends an event on a line of its own; null when it is not here yet. `*is_whole` says whether the event is laid
 * out as the first one: it begins behind `lead`, and each line but its last is further in. */
static const char *indented_end(const struct forensics_trace *trace, const char *block, const char *at, const char *end,
                                bool *is_whole) {
    const char *line = at + (at < end);
    size_t size = trace->indent + 1;
    *is_whole = (size_t)(at - block) >= trace->indent && is_lead(trace, at - trace->indent, trace->indent) &&
                (line >= end || *line == '\n' || *line == '\r');
    while (*is_whole && line < end && (line = memchr(line, '\n', (size_t)(end - line))) != NULL) {
        if ((size_t)(end - line) < size)
            return NULL;
        *is_whole = is_lead(trace, line, trace->indent);
        if (*is_whole && line[trace->indent] == '}')
            return line + size;
        *is_whole = *is_whole && (line[trace->indent] == ' ' || line[trace->indent] == '\t');
        line++;
    }
    return NULL;
}

/* Behind the next brace that ends an event as the first one ends, whatever stands before it. */
static const char *next_indented_end(const struct forensics_trace *trace, const char *at, const char *end) {
    size_t size = trace->indent + 1;
    const char *found = memmem(at, (size_t)(end - at), trace->lead, size);
    return found ? found + size : NULL;
}

/* Where the next event begins behind a broken one: a brace, a comma and a brace. */
static const char *next_event(const struct forensics_trace *trace, const char *at, const char *end) {
    if (trace->is_indented)
        return next_indented_end(trace, at, end);
    while ((at = memchr(at, '}', (size_t)(end - at))) != NULL) {
        const char *comma = past_blanks(at + 1, end);
        const char *brace = comma < end && *comma == ',' ? past_blanks(comma + 1, end) : end;
        if (brace < end && *brace == '{')
            return at + 1;
        at++;
    }
    return NULL;
}

static void note_broken(struct forensics_trace *trace, const char *block, const char *at) {
    trace->is_unsure = true;
    if (trace->tally.broken++ == 0)
        trace->tally.first_broken = trace->before + (uint64_t)(at - block);
}

/* One event from its brace on. Returns where to go on; null when the rest of it is not here yet, or (`*is_full`) when memory is out. */
static const char *take_event(struct forensics_trace *trace, const char *block, const char *at, const char *end,
                              bool *is_full) {
    struct event event;
    enum found found = FOUND;
    bool is_whole = false;
    const char *own_end = trace->is_indented ? indented_end(trace, block, at, end, &is_whole) : NULL;
    if (is_whole && own_end == NULL)
        return NULL;
    const char *after = read_event(at, own_end ? own_end : end, own_end != NULL, trace->has_no_device, &event, &found);
    /* An odd quote makes all that follows look like one event. */
    if (after == NULL && found == CUT && own_end == NULL && end - at < LONGEST_EVENT)
        return NULL;
    if (after == NULL || (own_end != NULL && after != own_end)) {
        note_broken(trace, block, at);
        return own_end ? own_end : next_event(trace, at + 1, end);
    }
    if (!trace->is_known)
        learn_layout(trace, block, at, after);
    trace->is_unsure = trace->is_unsure && event.phase.length == 0;
    *is_full = event.kind != 0 && !keep_event(trace, &event, (struct piece){at, (size_t)(after - at)});
    return *is_full ? NULL : after;
}

static const char *take_events(struct forensics_trace *trace, const char *block, const char *at, const char *end,
                               bool *is_full) {
    for (;;) {
        const char *next = at;
        while (next < end && (*next == ' ' || *next == '\n' || *next == '\r' || *next == '\t' || *next == ','))
            next++;
        if (next == end)
            return at; /* with what stands before the next brace, of which the layout may be learnt */
        const char *after;
        if (*next == ']') {
            after = trace->is_unsure ? next_event(trace, next, end) : NULL;
            if (after == NULL) {
                trace->progress = AFTER_LIST;
                return end;
            }
        } else if (*next == '{') {
            after = take_event(trace, block, next, end, is_full);
        } else {
            note_broken(trace, block, next);
            after = next_event(trace, next, end);
        }
        if (after == NULL)
            return at;
        at = after;
    }
}

/* What is left where no more comes: an event without its end, of which nothing is kept. */
static void note_cut(struct forensics_trace *trace, const char *block, const char *at, const char *end) {
    while (at < end && *at != '{')
        at++;
    if (at < end)
        note_broken(trace, block, at);
}

int64_t forensics_trace_feed(struct forensics_trace *trace, const char *block, uint64_t size, int is_last) {
    const char *at = block, *end = block + size;
    bool is_full = false;
    if (trace->progress == BEFORE_LIST) {
        const char *list = find_list(block, end, LIST);
        trace->has_no_device = trace->has_no_device || lists_no_device(block, list ? list : end);
        trace->progress = list ? IN_LIST : BEFORE_LIST;
        /* The key may be cut by the end of the block, and blanks may follow it. */
        at = list ? list : size > 64 ? end - 64 : block;
    }
    if (trace->progress == IN_LIST)
        at = take_events(trace, block, at, end, &is_full);
    if (is_full)
        return -1;
    if (trace->progress == IN_LIST && is_last)
        note_cut(trace, block, at, end);
    if (trace->progress == AFTER_LIST || is_last)
        at = end;
    trace->before += (uint64_t)(at - block);
    return at - block;
}
