/* Lists, tuples and dictionaries: made from what lies on the stack, and added to. */
#include <string.h>

#include "machine.h"

/* Adds cells of the stack to a node: in place where it is the last one or has room, else moved to twice the room. */
static bool extend(struct machine *machine, uint64_t number, uint64_t start, uint64_t count) {
    struct forensics_pickle *pickle = machine->pickle;
    struct node *node = node_at(pickle, number);
    if (count > UINT32_MAX - node->count)
        return fail(machine, FORENSICS_PICKLE_MEMORY);
    uint32_t wanted = node->count + (uint32_t)count;
    bool is_last = node->first + node->capacity == pickle->cells.used;
    if (wanted > node->capacity) {
        uint64_t room = is_last ? wanted - node->capacity : node->count ? 2 * (uint64_t)wanted : wanted;
        if (room > UINT32_MAX || !array_reserve(pickle, &pickle->cells, room, sizeof(struct cell)))
            return fail(machine, FORENSICS_PICKLE_MEMORY);
        if (!is_last) {
            if (node->count)
                memcpy(cell_at(pickle, pickle->cells.used), cell_at(pickle, node->first), node->count * sizeof(struct cell));
            node->first = pickle->cells.used;
            node->capacity = 0;
        }
        node->capacity += (uint32_t)room;
        pickle->cells.used += room;
    }
    if (count)
        memcpy(cell_at(pickle, node->first + node->count), (struct cell *)pickle->stack.items + start,
               count * sizeof(struct cell));
    node->count = wanted;
    return true;
}

bool new_node(struct machine *machine, uint32_t tag, uint64_t start) {
    struct forensics_pickle *pickle = machine->pickle;
    struct array *nodes = &pickle->nodes;
    if (!array_reserve(pickle, nodes, 1, sizeof(struct node)))
        return fail(machine, FORENSICS_PICKLE_MEMORY);
    uint64_t number = nodes->used++;
    *node_at(pickle, number) = (struct node){
        .first = pickle->cells.used, .tag = (uint8_t)tag, .distinct = NOT_YET, .shape = NOT_YET};
    uint64_t count = pickle->stack.used - start;
    if (count && !extend(machine, number, start, count))
        return false;
    pickle->stack.used = start;
    return push(machine, (struct cell){.tag = tag, .as.at = number});
}

/* Keys are texts. A list or a dictionary has no hash, so that no unpickler takes it; any other key is left to Python. */
static bool are_keys(struct machine *machine, uint64_t start) {
    const struct array *stack = &machine->pickle->stack;
    for (uint64_t i = start; i < stack->used; i += 2) {
        uint32_t tag = ((struct cell *)stack->items + i)->tag;
        if (tag == FORENSICS_PICKLE_LIST || tag == FORENSICS_PICKLE_DICT)
            return fail(machine, FORENSICS_PICKLE_MALFORMED);
        if (tag != FORENSICS_PICKLE_TEXT)
            return fail(machine, FORENSICS_PICKLE_UNSUPPORTED);
    }
    return true;
}

/* Python takes a few odd things: nothing added to anything, and items of a list set by their place. */
bool add_above(struct machine *machine, uint32_t tag, uint64_t start) {
    struct array *stack = &machine->pickle->stack;
    uint64_t count = stack->used - start;
    if (start <= floor_of(machine))
        return fail(machine, FORENSICS_PICKLE_MALFORMED);
    const struct cell *target = (struct cell *)stack->items + (start - 1);
    if (target->tag != tag && (count == 0 || target->tag == FORENSICS_PICKLE_LIST))
        return fail(machine, FORENSICS_PICKLE_UNSUPPORTED);
    if (target->tag != tag || (tag == FORENSICS_PICKLE_DICT && count % 2))
        return fail(machine, FORENSICS_PICKLE_MALFORMED);
    if ((tag == FORENSICS_PICKLE_DICT && !are_keys(machine, start)) || !extend(machine, target->as.at, start, count))
        return false;
    stack->used = start;
    return true;
}
