/* The opcodes that plain data needs, protocols 2 to 5 (CPython Lib/pickletools.py). Whatever else occurs is refused. */
#include <string.h>

#include "machine.h"

static inline const uint8_t *take(struct machine *machine, uint64_t size) {
    if (size > machine->pickle->size - machine->at) {
        fail(machine, FORENSICS_PICKLE_CUT);
        return NULL;
    }
    const uint8_t *bytes = machine->pickle->bytes + machine->at;
    machine->at += size;
    return bytes;
}

static inline bool take_number(struct machine *machine, int width, uint64_t *number) {
    const uint8_t *bytes = take(machine, (uint64_t)width);
    if (bytes == NULL)
        return false;
    *number = 0;
    for (int i = 0; i < width; i++)
        *number |= (uint64_t)bytes[i] << (8 * i);
    return true;
}

static bool push_plain(struct machine *machine, uint32_t tag, int64_t integer) {
    return push(machine, (struct cell){.tag = tag, .as.integer = integer});
}

static bool mark(struct machine *machine) {
    struct array *marks = &machine->pickle->marks;
    if (!array_reserve(machine->pickle, marks, 1, sizeof(uint64_t)))
        return fail(machine, FORENSICS_PICKLE_MEMORY);
    ((uint64_t *)marks->items)[marks->used++] = machine->pickle->stack.used;
    return true;
}

static bool close_mark(struct machine *machine, uint64_t *start) {
    struct array *marks = &machine->pickle->marks;
    if (!marks->used)
        return fail(machine, FORENSICS_PICKLE_MALFORMED);
    *start = ((uint64_t *)marks->items)[--marks->used];
    return true;
}

static bool new_from_mark(struct machine *machine, uint32_t tag) {
    uint64_t start = 0;
    return close_mark(machine, &start) && new_node(machine, tag, start);
}

static bool new_tuple(struct machine *machine, uint64_t count) {
    if (count && top(machine, count - 1) == NULL)
        return false;
    return new_node(machine, FORENSICS_PICKLE_TUPLE, machine->pickle->stack.used - count);
}

static bool add_from_mark(struct machine *machine, uint32_t tag) {
    uint64_t start = 0;
    return close_mark(machine, &start) && add_above(machine, tag, start);
}

static bool add_last(struct machine *machine, uint32_t tag, uint64_t count) {
    return top(machine, count) != NULL && add_above(machine, tag, machine->pickle->stack.used - count);
}

static bool push_text(struct machine *machine, int width) {
    uint64_t size = 0;
    if (!take_number(machine, width, &size))
        return false;
    uint64_t at = machine->at;
    const uint8_t *bytes = take(machine, size);
    if (bytes == NULL)
        return false;
    if (size > UINT32_MAX || !is_text(bytes, size))
        return fail(machine, FORENSICS_PICKLE_MALFORMED);
    return push(machine, (struct cell){.tag = FORENSICS_PICKLE_TEXT, .size = (uint32_t)size, .as.at = at});
}

static bool push_long(struct machine *machine, int width) {
    uint64_t size = 0;
    uint64_t number = 0;
    if (!take_number(machine, width, &size))
        return false;
    if (size > 8)
        return fail(machine, FORENSICS_PICKLE_UNSUPPORTED);
    if (!take_number(machine, (int)size, &number))
        return false;
    if (size && size < 8 && number >> (8 * size - 1))
        number |= UINT64_MAX << (8 * size);
    return push_plain(machine, FORENSICS_PICKLE_INT, (int64_t)number);
}

static bool push_unsigned(struct machine *machine, int width) {
    uint64_t number = 0;
    return take_number(machine, width, &number) && push_plain(machine, FORENSICS_PICKLE_INT, (int64_t)number);
}

static bool push_signed32(struct machine *machine) {
    uint64_t number = 0;
    return take_number(machine, 4, &number) && push_plain(machine, FORENSICS_PICKLE_INT, (int32_t)(uint32_t)number);
}

static bool push_real(struct machine *machine) {
    const uint8_t *bytes = take(machine, 8);
    if (bytes == NULL)
        return false;
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | bytes[i];
    return push_plain(machine, FORENSICS_PICKLE_FLOAT, (int64_t)bits);
}

static bool widen_memo(struct machine *machine, uint64_t number) {
    struct array *memo = &machine->pickle->memo;
    uint64_t more = number + 1 - memo->used;
    if (!array_reserve(machine->pickle, memo, more, sizeof(struct cell)))
        return fail(machine, FORENSICS_PICKLE_MEMORY);
    memset((struct cell *)memo->items + memo->used, 0, more * sizeof(struct cell));
    memo->used = number + 1;
    return true;
}

/* Numbers of the memo may have gaps; what a number far beyond the last takes is held against the memory allowed. */
static bool remember(struct machine *machine, uint64_t number) {
    const struct cell *value = top(machine, 0);
    if (value == NULL || (number >= machine->pickle->memo.used && !widen_memo(machine, number)))
        return false;
    struct cell *place = (struct cell *)machine->pickle->memo.items + number;
    machine->pickle->remembered += place->tag == FORENSICS_PICKLE_ABSENT;
    *place = *value;
    return true;
}

static bool put(struct machine *machine, int width) {
    uint64_t number = 0;
    return take_number(machine, width, &number) && remember(machine, number);
}

static bool get(struct machine *machine, int width) {
    uint64_t number = 0;
    const struct array *memo = &machine->pickle->memo;
    if (!take_number(machine, width, &number))
        return false;
    if (number >= memo->used || ((struct cell *)memo->items)[number].tag == FORENSICS_PICKLE_ABSENT)
        return fail(machine, FORENSICS_PICKLE_MALFORMED);
    return push(machine, ((struct cell *)memo->items)[number]);
}

/* A frame only says how many bytes follow at least. */
static bool frame(struct machine *machine) {
    uint64_t size = 0;
    if (!take_number(machine, 8, &size))
        return false;
    return size <= machine->pickle->size - machine->at || fail(machine, FORENSICS_PICKLE_CUT);
}

/* Runs one opcode; false at the end and on failure. */
static bool step(struct machine *machine, uint8_t opcode) {
    uint64_t ignored = 0;
    switch (opcode) {
    case 'h': return get(machine, 1);
    case 'j': return get(machine, 4);
    case 'q': return put(machine, 1);
    case 'r': return put(machine, 4);
    case 0x94: return remember(machine, machine->pickle->remembered); /* as many as are taken, whatever gaps there are */
    case 'X': return push_text(machine, 4);
    case 0x8c: return push_text(machine, 1);
    case 0x8d: return push_text(machine, 8);
    case 'K': return push_unsigned(machine, 1);
    case 'M': return push_unsigned(machine, 2);
    case 'J': return push_signed32(machine);
    case 0x8a: return push_long(machine, 1);
    case 0x8b: return push_long(machine, 4);
    case 'G': return push_real(machine);
    case 'N': return push_plain(machine, FORENSICS_PICKLE_NONE, 0);
    case 0x88: return push_plain(machine, FORENSICS_PICKLE_BOOL, 1);
    case 0x89: return push_plain(machine, FORENSICS_PICKLE_BOOL, 0);
    case '(': return mark(machine);
    case ']': return new_node(machine, FORENSICS_PICKLE_LIST, machine->pickle->stack.used);
    case '}': return new_node(machine, FORENSICS_PICKLE_DICT, machine->pickle->stack.used);
    case ')': return new_tuple(machine, 0);
    case 0x85: return new_tuple(machine, 1);
    case 0x86: return new_tuple(machine, 2);
    case 0x87: return new_tuple(machine, 3);
    case 't': return new_from_mark(machine, FORENSICS_PICKLE_TUPLE);
    case 'a': return add_last(machine, FORENSICS_PICKLE_LIST, 1);
    case 'e': return add_from_mark(machine, FORENSICS_PICKLE_LIST);
    case 's': return add_last(machine, FORENSICS_PICKLE_DICT, 2);
    case 'u': return add_from_mark(machine, FORENSICS_PICKLE_DICT);
    case 0x80: return take_number(machine, 1, &ignored) && (ignored <= 5 || fail(machine, FORENSICS_PICKLE_UNSUPPORTED));
    case 0x95: return frame(machine);
    case '.': return false;
    default: return fail(machine, FORENSICS_PICKLE_UNSUPPORTED);
    }
}

int run_opcodes(struct forensics_pickle *pickle) {
    struct machine machine = {.pickle = pickle};
    const uint8_t *opcode = NULL;
    while ((opcode = take(&machine, 1)) != NULL && step(&machine, *opcode)) {
    }
    if (machine.status)
        return machine.status;
    const struct cell *result = top(&machine, 0);
    if (result == NULL || pickle->stack.used != 1) /* Python gives the last of several values */
        return result == NULL ? FORENSICS_PICKLE_MALFORMED : FORENSICS_PICKLE_UNSUPPORTED;
    pickle->root = *result;
    return FORENSICS_PICKLE_OK;
}
