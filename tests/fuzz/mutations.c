#include "mutations.h"

#include <string.h>

uint64_t roll(struct dice *dice, uint64_t sides) {
    dice->state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t mixed = dice->state;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return (mixed ^ mixed >> 31) % (sides ? sides : 1);
}

static void insert(struct input *input, size_t at, const void *bytes, size_t size) {
    if (input->size + size > LARGEST_INPUT || at > input->size)
        return;
    memmove(input->bytes + at + size, input->bytes + at, input->size - at);
    memcpy(input->bytes + at, bytes, size);
    input->size += size;
}

static void erase(struct input *input, size_t at, size_t size) {
    if (at >= input->size)
        return;
    size = size < input->size - at ? size : input->size - at;
    memmove(input->bytes + at, input->bytes + at + size, input->size - at - size);
    input->size -= size;
}

static void insert_opcode(struct input *input, size_t at, struct dice *dice) {
    static const char codes[] = "()0a]e}suth\x85\x86\x87\x88\x89NtKMJjqrXGqh\x94\x8a\x8b\x8c\x8d\x95.\x80";
    uint8_t opcode = (uint8_t)codes[roll(dice, sizeof codes - 1)];
    uint8_t bytes[16] = {opcode};
    size_t operand = strchr("hqK", opcode) ? 1 : opcode == 'M' ? 2 : strchr("jrJ", opcode) ? 4 : opcode == 'G' || opcode == 0x95 ? 8 : 0;
    if (opcode == 0x8a)
        bytes[1] = (uint8_t)roll(dice, 10), operand = 1u + bytes[1];
    else
        for (size_t i = 0; i < operand; i++)
            bytes[1 + i] = roll(dice, 3) && i ? 0 : (uint8_t)roll(dice, roll(dice, 2) ? 8 : 256);
    insert(input, at, bytes, 1 + (operand < 15 ? operand : 15));
}

static void insert_word(struct input *input, size_t at, struct dice *dice) {
    size_t count = 0;
    while (fuzz_words[count])
        count++;
    const char *word = fuzz_words[roll(dice, count)];
    size_t length = strlen(word);
    insert(input, at, word, length);
    if (fuzz_format == FUZZ_PICKLE) {
        uint8_t head[5] = {'X', (uint8_t)length};
        insert(input, at, head, sizeof head);
    }
}

static void insert_token(struct input *input, size_t at, struct dice *dice) {
    static const char *const tokens[] = {"{", "}", "[", "]", ",", ":", "\"", "\\", "\\\"", "\n", "\n  ", " ", "0", "-", ".", "1e9", "null",
                                         "true", "-Infinity", "},{", "}, {", "\n  },\n  {", "\\u0041", "9999999999999999999", "{}", "[]"};
    const char *token = tokens[roll(dice, sizeof tokens / sizeof *tokens)];
    insert(input, at, token, strlen(token));
}

static void repeat_piece(struct input *input, size_t at, struct dice *dice) {
    uint8_t piece[64];
    size_t size = 1 + roll(dice, sizeof piece);
    if (at + size > input->size)
        return;
    memcpy(piece, input->bytes + at, size);
    for (uint64_t times = 1 + roll(dice, roll(dice, 8) ? 4 : 200); times > 0; times--)
        insert(input, at, piece, size);
}

static void change_once(struct input *input, const uint8_t *other, size_t other_size, struct dice *dice) {
    size_t at = roll(dice, input->size + 1);
    size_t from = roll(dice, other_size);
    uint8_t byte = (uint8_t)roll(dice, 256);
    switch (roll(dice, 9)) {
    case 0:
        if (at < input->size)
            input->bytes[at] ^= (uint8_t)(1u << roll(dice, 8));
        break;
    case 1:
        if (at < input->size)
            input->bytes[at] = byte;
        break;
    case 2: insert(input, at, &byte, 1); break;
    case 3: erase(input, at, 1 + roll(dice, roll(dice, 4) ? 8 : 200)); break;
    case 4: insert_word(input, at, dice); break;
    case 5: repeat_piece(input, at, dice); break;
    case 6: insert(input, at, other + from, roll(dice, other_size - from + 1)); break;
    default: fuzz_format == FUZZ_PICKLE ? insert_opcode(input, at, dice) : insert_token(input, at, dice);
    }
}

void mutate(struct input *input, const uint8_t *other, size_t other_size, struct dice *dice) {
    for (uint64_t changes = 1 + roll(dice, 6); changes > 0; changes--)
        change_once(input, other, other_size, dice);
}
