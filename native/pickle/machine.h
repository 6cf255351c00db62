/* The machine that runs a pickle: its stack, and the containers it fills from it. */
#ifndef FORENSICS_PICKLE_MACHINE_H
#define FORENSICS_PICKLE_MACHINE_H

#include "pickle.h"

struct machine {
    struct forensics_pickle *pickle;
    uint64_t at;
    int status;
};

static inline bool fail(struct machine *machine, int status) {
    machine->status = status;
    return false;
}

static inline bool push(struct machine *machine, struct cell cell) {
    struct array *stack = &machine->pickle->stack;
    if (!array_reserve(machine->pickle, stack, 1, sizeof cell))
        return fail(machine, FORENSICS_PICKLE_MEMORY);
    ((struct cell *)stack->items)[stack->used++] = cell;
    return true;
}

/* The lowest cell of the stack that belongs to the innermost open mark. */
static inline uint64_t floor_of(const struct machine *machine) {
    const struct array *marks = &machine->pickle->marks;
    return marks->used ? ((uint64_t *)marks->items)[marks->used - 1] : 0;
}

static inline struct cell *top(struct machine *machine, uint64_t below) {
    struct array *stack = &machine->pickle->stack;
    if (stack->used - floor_of(machine) <= below) {
        fail(machine, FORENSICS_PICKLE_MALFORMED);
        return NULL;
    }
    return (struct cell *)stack->items + (stack->used - 1 - below);
}

/* containers.c: a new list, tuple or dictionary of the cells above `start`, on the stack instead of them. */
bool new_node(struct machine *machine, uint32_t tag, uint64_t start);

/* Puts the cells above `start` into the container under them. */
bool add_above(struct machine *machine, uint32_t tag, uint64_t start);

#endif
