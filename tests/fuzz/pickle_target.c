/* The pickle reader as a fuzz target: every row, member and value of what it reads is asked for. */
#include <stdlib.h>
#include <string.h>

#include "forensics/pickle.h"
#include "target.h"

static const char *const KEYS[] = {"profiling_name", "frames", "input_sizes", "process_group", "state", "version", "pg_config"};

const char *const fuzz_words[] = {"entries", "profiling_name", "frames", "input_sizes", "process_group", "pg_config", "version", NULL};
const enum fuzz_format fuzz_format = FUZZ_PICKLE;

static void ask_json(struct forensics_pickle *pickle, int64_t number) {
    static char text[1 << 16];
    if (number >= 0 && forensics_pickle_weight(pickle, number) <= (int64_t)sizeof text)
        forensics_pickle_json(pickle, number, text, sizeof text);
}

enum { KEY_COUNT = sizeof KEYS / sizeof *KEYS };

static void ask_columns(struct forensics_pickle *pickle, size_t all_rows, size_t first) {
    size_t rows = all_rows - first;
    uint8_t *tags = malloc(KEY_COUNT * rows + 1);
    int64_t *values = malloc((KEY_COUNT * rows + 1) * sizeof *values);
    uint32_t lengths[KEY_COUNT];
    for (size_t i = 0; i < KEY_COUNT; i++)
        lengths[i] = (uint32_t)strlen(KEYS[i]);
    forensics_pickle_columns(pickle, KEYS, lengths, KEY_COUNT, first, tags, values);
    for (size_t i = 0; i < KEY_COUNT * rows; i++)
        if (tags[i] >= FORENSICS_PICKLE_TEXT && tags[i] != FORENSICS_PICKLE_UNREADABLE)
            ask_json(pickle, values[i]);
    free(tags);
    free(values);
}

static void ask(struct forensics_pickle *pickle) {
    int64_t rows = forensics_pickle_rows(pickle, "entries", 7);
    for (size_t i = 0; i < KEY_COUNT; i++)
        ask_json(pickle, forensics_pickle_member(pickle, KEYS[i], (uint32_t)strlen(KEYS[i])));
    if (rows >= 0)
        ask_columns(pickle, (size_t)rows, (size_t)rows / 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    int status = 0;
    /* Exactly as large as the content: one byte read beyond it is an error the sanitizer sees. */
    uint8_t *copy = malloc(size + (size == 0));
    if (size)
        memcpy(copy, bytes, size);
    struct forensics_pickle *pickle = forensics_pickle_read(copy, size, (12u << 20) + 24 * size, &status);
    if (pickle != NULL)
        ask(pickle);
    else if (status == FORENSICS_PICKLE_OK)
        abort();
    forensics_pickle_free(pickle);
    free(copy);
    return 0;
}
