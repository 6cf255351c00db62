/* Reads every file named on the command line with the pickle reader and asks it for everything, so that a sanitizer sees it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forensics/pickle.h"

static const char *const KEYS[] = {"profiling_name", "frames", "input_sizes", "state", "record_id", "version", "pg_config"};

static void ask(struct forensics_pickle *pickle) {
    static char text[1 << 16];
    int64_t rows = forensics_pickle_rows(pickle, "entries", 7);
    size_t count = rows > 0 ? (size_t)rows : 0;
    uint8_t *tags = malloc(count + 1);
    int64_t *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        uint32_t length = (uint32_t)strlen(KEYS[i]);
        forensics_pickle_json(pickle, forensics_pickle_member(pickle, KEYS[i], length), text, sizeof text);
        if (rows < 0)
            continue;
        size_t first = count * i / 8;
        forensics_pickle_columns(pickle, KEYS + i, &length, 1, first, tags, values);
        for (size_t row = 0; row < count - first; row++)
            if (tags[row] >= FORENSICS_PICKLE_TEXT && tags[row] != FORENSICS_PICKLE_UNREADABLE)
                forensics_pickle_json(pickle, values[row], text, sizeof text);
    }
    free(tags);
    free(values);
}

int main(int argc, char **argv) {
    int read = 0;
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (file == NULL)
            return 2;
        fseek(file, 0, SEEK_END);
        long size = ftell(file);
        rewind(file);
        /* Exactly as large as the content: one byte read beyond it is an error the sanitizer sees. */
        uint8_t *bytes = malloc((size_t)size + (size == 0));
        if (fread(bytes, 1, (size_t)size, file) != (size_t)size)
            return 2;
        fclose(file);
        int status = 0;
        struct forensics_pickle *pickle = forensics_pickle_read(bytes, (uint64_t)size, 16u << 20, &status);
        if (pickle != NULL)
            ask(pickle);
        read += pickle != NULL;
        forensics_pickle_free(pickle);
        free(bytes);
    }
    printf("%d\n", read);
    return 0;
}
