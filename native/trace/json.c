/* Pieces of JSON text: where a value ends, and what a number says. */
#include <string.h>

#include "trace.h"

enum { DEEPEST = 64, MOST_DIGITS = 19 };

enum { BRACKET = 1, QUOTE = 2, OF_NUMBER = 4 };

/* What a byte may be; most of a text are none of these. */
static const uint8_t class_of[256] = {
    ['"'] = QUOTE,     ['{'] = BRACKET,   ['['] = BRACKET,   ['}'] = BRACKET,   [']'] = BRACKET,
    ['-'] = OF_NUMBER, ['+'] = OF_NUMBER, ['.'] = OF_NUMBER, ['e'] = OF_NUMBER, ['E'] = OF_NUMBER,
    ['0'] = OF_NUMBER, ['1'] = OF_NUMBER, ['2'] = OF_NUMBER, ['3'] = OF_NUMBER, ['4'] = OF_NUMBER,
    ['5'] = OF_NUMBER, ['6'] = OF_NUMBER, ['7'] = OF_NUMBER, ['8'] = OF_NUMBER, ['9'] = OF_NUMBER,
};

static const int64_t LATEST = 4000000000000000000; /* ns: with the base of the file it stays within 64 bits */

/* As past_text, for a text that may hold escaped quotes or not end. */
const char *past_escapes(const char *at, const char *end, enum found *found) {
    while (at < end) {
        const char *quote = next_quote(at, end);
        if (quote == NULL)
            break;
        const char *slash = quote;
        while (slash > at && slash[-1] == '\\')
            slash--;
        at = quote + 1;
        if ((quote - slash) % 2 == 0)
            return quote;
    }
    *found = CUT;
    return NULL;
}

static const char *past_word(const char *at, const char *end, enum found *found) {
    const char *first = at;
    while (at < end && ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z'))) /* true, false, null, NaN, Infinity */
        at++;
    *found = at == end ? CUT : BROKEN;
    return at > first && at < end ? at : NULL;
}

/* An object or a list, from its opening bracket: brackets are counted outside of texts. */
static const char *past_brackets(const char *at, const char *end, enum found *found) {
    int depth = 0;
    for (; at < end; at++) {
        if (!(class_of[(uint8_t)*at] & (BRACKET | QUOTE)))
            continue;
        if (*at == '"') {
            at = past_text(at + 1, end, found);
            if (at == NULL)
                return NULL;
        } else if (*at == '{' || *at == '[') {
            if (++depth > DEEPEST) {
                *found = BROKEN;
                return NULL;
            }
        } else if (--depth == 0) {
            return at + 1;
        }
    }
    *found = CUT;
    return NULL;
}

const char *past_value(const char *at, const char *end, enum found *found) {
    if (at == end) {
        *found = CUT;
        return NULL;
    }
    if (*at == '"') {
        const char *quote = past_text(at + 1, end, found);
        return quote == NULL ? NULL : quote + 1;
    }
    if (*at == '{' || *at == '[')
        return past_brackets(at, end, found);
    const char *after = at;
    while (after < end && class_of[(uint8_t)*after] & OF_NUMBER)
        after++;
    if (after == end) {
        *found = CUT;
        return NULL;
    }
    if (after > at && (*after | 0x20) != 'i') /* -Infinity */
        return after;
    return past_word(after, end, found);
}

int64_t whole_number(struct piece number) {
    int64_t value = 0;
    if (number.length == 0 || number.length >= MOST_DIGITS)
        return -1;
    for (size_t i = 0; i < number.length; i++) {
        if (number.at[i] < '0' || number.at[i] > '9')
            return -1;
        value = value * 10 + (number.at[i] - '0');
    }
    return value;
}

/* Digits are read as they stand: a double has no room for nanoseconds since 1970. */
bool nanoseconds(struct piece number, int64_t *ns) {
    const char *at = number.at, *end = at + number.length;
    bool is_negative = at < end && *at == '-';
    int64_t value = 0;
    int decimals = -1, digits = 0;
    for (at += is_negative; at < end && decimals < 4; at++) {
        if (*at == '.' && decimals < 0) {
            decimals = 0;
        } else if (*at >= '0' && *at <= '9') {
            if (decimals == 3) { /* rounded */
                value += *at >= '5';
                decimals = 4;
                break;
            }
            if (digits++ >= MOST_DIGITS || value > (INT64_MAX - 9) / 10)
                return false;
            value = value * 10 + (*at - '0');
            decimals += decimals >= 0;
        } else {
            return false;
        }
    }
    for (int place = decimals < 0 ? 0 : decimals; place < 3; place++) {
        if (value > INT64_MAX / 10)
            return false;
        value *= 10;
    }
    while (at < end && ((*at >= '0' && *at <= '9')))
        at++;
    *ns = is_negative ? -value : value;
    return digits > 0 && at == end && value < LATEST;
}
