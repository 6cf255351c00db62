/* Gives every file named on the command line to the trace reader, in blocks of some sizes, so that a sanitizer sees it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forensics/trace.h"

/* Each block is a copy of its own, exactly as large as it is: one byte read beyond it is an error the sanitizer sees. */
static uint64_t read_whole(const char *bytes, size_t size, size_t block) {
    struct forensics_trace *trace = forensics_trace_open(1u << 22);
    struct forensics_trace_tally tally;
    size_t done = 0, wanted = block;
    while (done < size) {
        size_t length = wanted < size - done ? wanted : size - done;
        char *copy = malloc(length);
        memcpy(copy, bytes + done, length);
        int is_last = done + length == size;
        int64_t used = forensics_trace_feed(trace, copy, length, is_last);
        free(copy);
        if (used < 0 || is_last)
            break;
        wanted = used ? block : wanted + block;
        done += (size_t)used;
    }
    uint64_t sum = 0;
    for (uint32_t column = 0; column <= FORENSICS_TRACE_COLUMNS; column++) {
        uint64_t length;
        const uint8_t *at = forensics_trace_column(trace, column, &length);
        for (uint64_t i = 0; i < length; i++)
            sum += at[i];
    }
    forensics_trace_tallied(trace, &tally);
    forensics_trace_close(trace);
    return tally.kept + (sum == 1);
}

int main(int argc, char **argv) {
    static const size_t blocks[] = {7, 333, 1u << 20};
    uint64_t kept = 0;
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (file == NULL)
            return 2;
        fseek(file, 0, SEEK_END);
        long size = ftell(file);
        rewind(file);
        char *bytes = malloc((size_t)size + 1);
        if (fread(bytes, 1, (size_t)size, file) != (size_t)size)
            return 2;
        fclose(file);
        for (size_t place = 0; place < sizeof blocks / sizeof *blocks; place++)
            kept += read_whole(bytes, (size_t)size, blocks[place]);
        free(bytes);
    }
    printf("%llu\n", (unsigned long long)kept);
    return 0;
}
