/* The trace reader as a fuzz target: whole, and in blocks of a size that the content chooses, which must keep the same. */
#include <stdlib.h>
#include <string.h>

#include "forensics/trace.h"
#include "target.h"

const char *const fuzz_words[] = {
    "\"traceEvents\":[", "\"ph\":\"X\"", "\"cat\":\"kernel\"", "\"name\":\"", "\"ts\":1.5", "\"dur\":2", "\"args\":{", "\"correlation\":7",
    "\"Collective name\":\"", "\"External id\":3", "\"tid\":", "user_annotation", "cuda_runtime", "cudaLaunchKernel", "},\n  {", NULL};
const enum fuzz_format fuzz_format = FUZZ_JSON;

/* Each block is a copy of its own, exactly as large as it is: one byte read beyond it is an error the sanitizer sees. */
static int64_t feed(struct forensics_trace *trace, const uint8_t *bytes, size_t length, int is_last) {
    char *copy = malloc(length + (length == 0));
    if (length)
        memcpy(copy, bytes, length);
    int64_t used = forensics_trace_feed(trace, copy, length, is_last);
    free(copy);
    if (used > (int64_t)length)
        abort();
    return used;
}

static uint64_t kept(const uint8_t *bytes, size_t size, size_t block) {
    struct forensics_trace *trace = forensics_trace_open((1u << 20) + 64 * size);
    struct forensics_trace_tally tally;
    size_t done = 0, wanted = block;
    for (int is_last = 0; !is_last;) {
        size_t length = wanted < size - done ? wanted : size - done;
        is_last = done + length == size;
        int64_t used = feed(trace, bytes + done, length, is_last);
        if (used < 0)
            break;
        wanted = used ? block : wanted + block;
        done += (size_t)used;
    }
    volatile uint64_t sum = 0;
    for (uint32_t column = 0; column <= FORENSICS_TRACE_COLUMNS; column++) {
        uint64_t length;
        const uint8_t *at = forensics_trace_column(trace, column, &length);
        for (uint64_t i = 0; i < length; i++)
            sum += at[i];
    }
    forensics_trace_tallied(trace, &tally);
    forensics_trace_close(trace);
    if (tally.broken && tally.first_broken >= size)
        abort();
    return tally.kept;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    kept(bytes, size, size + 1);
    kept(bytes, size, size ? 16 + size / 16 + bytes[size / 2] : 1);
    return 0;
}
