/* One event: the members that are needed, and of which kind it is. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "trace.h"

static struct piece unquoted(const char *at, const char *after) {
    return *at == '"' ? (struct piece){at + 1, (size_t)(after - at - 2)} : (struct piece){at, (size_t)(after - at)};
}

/* Reads the value of a member and keeps what of it is needed. Returns where it ends, or null as past_value does; `*is_enough` where no
 * more of the object is needed. */
typedef const char *read_value(struct event *event, struct piece key, const char *at, const char *end, enum found *found,
                               bool *is_enough);

static const char *read_argument(struct event *event, struct piece key, const char *at, const char *end, enum found *found,
                                 bool *is_enough) {
    (void)is_enough;
    const char *after = past_value(at, end, found);
    if (after == NULL)
        return NULL;
    if (is_text(key, "External id") || is_text(key, "external id"))
        event->external = unquoted(at, after);
    else if (is_text(key, "correlation"))
        event->correlation = unquoted(at, after);
    else if (is_text(key, "Collective name"))
        event->has_collective = true;
    return after;
}

/* The members of an object, from its brace; stops early where `read` says that no more is needed. */
static inline const char *read_members(const char *at, const char *end, struct event *event, read_value *read,
                                       enum found *found, bool *is_enough) {
    at = past_blanks(at + 1, end);
    while (at < end && *at != '}') {
        *found = BROKEN;
        if (*at != '"')
            return NULL;
        const char *quote = past_text(at + 1, end, found);
        if (quote == NULL)
            return NULL;
        struct piece key = unquoted(at, quote + 1);
        at = past_blanks(quote + 1, end);
        if (at < end && *at != ':') {
            *found = BROKEN;
            return NULL;
        }
        at = past_blanks(at + (at < end), end);
        const char *after = read(event, key, at, end, found, is_enough);
        if (after == NULL || *is_enough)
            return after;
        at = past_blanks(after, end);
        if (at < end && *at == ',')
            at = past_blanks(at + 1, end);
        else if (at < end && *at != '}') {
            *found = BROKEN;
            return NULL;
        }
    }
    *found = CUT;
    return at < end ? at + 1 : NULL;
}

static bool is_launch(struct piece name) {
    static const char *const verbs[] = {"Launch", "Memcpy", "Memset"};
    if (!starts_with(name, "cu") && !starts_with(name, "hip"))
        return false;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (memmem(name.at, name.length, verbs[i], strlen(verbs[i])) != NULL)
            return true;
    return false;
}

static bool is_update(struct piece name) {
    static const char *const names[] = {"aten::_fused_ad", "aten::_fused_sgd", "aten::_foreach_addcdiv", "aten::addcdiv"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (starts_with(name, names[i]))
            return true;
    return false;
}

static int kind_of(const struct event *event) {
    struct piece category = event->category;
    if (!is_text(event->phase, "X"))
        return 0;
    if (is_text(category, "cpu_op") || is_text(category, "Operator")) {
        if (is_text(event->name, "record_param_comms"))
            return FORENSICS_TRACE_CALL;
        if (is_update(event->name))
            return FORENSICS_TRACE_UPDATE;
        if (starts_with(event->name, "autograd::engine::evaluate_function"))
            return FORENSICS_TRACE_GRADIENT;
        return event->keeps_operators ? FORENSICS_TRACE_OPERATOR : 0;
    }
    if (is_text(category, "cuda_runtime") || is_text(category, "cuda_driver") || is_text(category, "Runtime"))
        return is_launch(event->name) ? FORENSICS_TRACE_LAUNCH : 0;
    if (is_text(category, "kernel") || is_text(category, "Kernel"))
        return FORENSICS_TRACE_KERNEL;
    if (is_text(category, "user_annotation"))
        return FORENSICS_TRACE_ANNOTATION;
    if (is_text(category, "gpu_user_annotation"))
        return FORENSICS_TRACE_DEVICE_ANNOTATION;
    if (is_text(category, "gpu_memcpy") || is_text(category, "gpu_memset") || is_text(category, "Memcpy") ||
        is_text(category, "Memset"))
        return FORENSICS_TRACE_COPY;
    return 0;
}

/* What the members of an event say; true once it is plain that nobody wants the event. */
static bool take_key(struct event *event, struct piece key, const char *at, const char *after) {
    struct piece value = unquoted(at, after), none = {"", 0};
    bool is_quoted = *at == '"';
    if (is_text(key, "ph"))
        event->phase = is_quoted ? value : none;
    else if (is_text(key, "ts"))
        event->ts = is_quoted ? none : value;
    else if (is_text(key, "cat"))
        event->category = is_quoted ? value : none;
    else if (is_text(key, "name"))
        event->name = is_quoted ? value : none;
    else if (is_text(key, "pid"))
        event->pid = value;
    else if (is_text(key, "tid"))
        event->tid = value;
    else if (is_text(key, "dur"))
        event->dur = is_quoted ? none : value;
    if (event->kind != 0 || !event->phase.length || !event->category.length || !event->name.length)
        return false;
    event->kind = kind_of(event);
    return event->kind == 0;
}

static const char *read_key(struct event *event, struct piece key, const char *at, const char *end, enum found *found,
                            bool *is_enough) {
    if (at < end && *at == '{' && is_text(key, "args")) {
        bool is_read = false;
        const char *after = read_members(at, end, event, read_argument, found, &is_read);
        if (after != NULL)
            return after;
        event->dur = (struct piece){0}; /* not used: arguments that are no JSON */
        return past_value(at, end, found);
    }
    const char *after = past_value(at, end, found);
    if (after != NULL)
        *is_enough = take_key(event, key, at, after);
    return after;
}

const char *read_event(const char *at, const char *end, bool is_whole, bool keeps_operators, struct event *event,
                       enum found *found) {
    const char *first = at;
    bool is_enough = false;
    *event = (struct event){.keeps_operators = keeps_operators};
    const char *after = read_members(at, end, event, read_key, found, &is_enough);
    if (after == NULL)
        return NULL;
    if (is_enough && is_whole)
        after = end;
    else if (is_enough)
        after = past_value(first, end, found);
    if (after != NULL)
        *found = FOUND;
    return after;
}
