/* Drives a fuzz target: keeps what reaches new code, changes it, and stops at an input that is too slow or takes too much.
 *
 *   driver seconds seed finding [corpus file...]   until the time is up
 *   driver replay file...                          each file once
 *
 * Each input is written to `finding` before it runs while a crash is possible, so that the one that crashed stays there; an
 * input that is slow or large stays too. Exit: 0 nothing, 1 a finding (a sanitizer ends with another code). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mutations.h"

enum { EDGES = 1 << 16, LARGEST_CORPUS = 1 << 15, SLOW_NS = 2000000000 };

struct kept {
    uint8_t *bytes;
    size_t size;
};

static uint8_t hits[EDGES], seen[EDGES];
static uintptr_t before;
static struct kept corpus[LARGEST_CORPUS];
static size_t corpus_size;
static uint8_t *finding; /* shared pages of the file: size, then bytes */

/* gcc's -fsanitize-coverage=trace-pc calls it in every basic block; the pair of blocks is the edge. */
__attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void) {
    uintptr_t here = (uintptr_t)__builtin_return_address(0);
    here -= (uintptr_t)&LLVMFuzzerTestOneInput; /* the same in every run, wherever the program lies */
    uint32_t edge = (uint32_t)((here ^ before << 1) * 0x9e3779b1u) >> 16;
    hits[edge] += hits[edge] < 255;
    before = here;
}

static uint64_t processor_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* New edges, and old ones that were passed in another order of magnitude. */
static int has_news(void) {
    int news = 0;
    for (size_t i = 0; i < EDGES; i++) {
        if (!hits[i])
            continue;
        uint8_t bucket = (uint8_t)(1u << (hits[i] < 4 ? hits[i] - 1 : hits[i] < 8 ? 3 : hits[i] < 16 ? 4 : hits[i] < 32 ? 5 : hits[i] < 128 ? 6 : 7));
        news |= (seen[i] & bucket) == 0;
        seen[i] |= bucket;
    }
    return news;
}

static void keep(const uint8_t *bytes, size_t size) {
    if (corpus_size == LARGEST_CORPUS)
        return;
    struct kept *place = &corpus[corpus_size++];
    place->bytes = malloc(size + 1);
    memcpy(place->bytes, bytes, size);
    place->size = size;
}

static int run(const uint8_t *bytes, size_t size) {
    memcpy(finding, &size, sizeof size);
    memcpy(finding + sizeof size, bytes, size);
    memset(hits, 0, sizeof hits);
    before = 0;
    uint64_t start = processor_ns();
    LLVMFuzzerTestOneInput(bytes, size);
    if (processor_ns() - start > SLOW_NS) {
        fprintf(stderr, "slow: %.1f s for %zu bytes\n", (double)(processor_ns() - start) / 1e9, size);
        return 1;
    }
    return 0;
}

static size_t read_file(const char *path, uint8_t **bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END))
        exit(2);
    size_t size = (size_t)ftell(file);
    rewind(file);
    *bytes = malloc(size + 1);
    if (fread(*bytes, 1, size, file) != size)
        exit(2);
    fclose(file);
    return size;
}

static int replay(int count, char **paths) {
    for (int i = 0; i < count; i++) {
        uint8_t *bytes;
        size_t size = read_file(paths[i], &bytes);
        uint64_t start = processor_ns();
        LLVMFuzzerTestOneInput(bytes, size);
        if (processor_ns() - start > 4 * (uint64_t)SLOW_NS) {
            fprintf(stderr, "slow: %s\n", paths[i]);
            return 1;
        }
        free(bytes);
    }
    return 0;
}

static void open_finding(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    size_t size = sizeof(size_t) + LARGEST_INPUT;
    if (file < 0 || ftruncate(file, (off_t)size))
        exit(2);
    finding = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (finding == MAP_FAILED)
        exit(2);
    close(file);
}

static int fuzz(double seconds, uint64_t seed) {
    static struct input input;
    struct dice dice = {seed};
    time_t end = time(NULL) + (time_t)seconds;
    uint64_t runs = 0;
    for (; runs % 256 || time(NULL) < end; runs++) {
        const struct kept *base = &corpus[roll(&dice, 4) ? roll(&dice, corpus_size) : corpus_size - 1 - roll(&dice, corpus_size / 8 + 1)];
        const struct kept *other = &corpus[roll(&dice, corpus_size)];
        memcpy(input.bytes, base->bytes, base->size);
        input.size = base->size;
        mutate(&input, other->bytes, other->size, &dice);
        if (run(input.bytes, input.size))
            return 1;
        if (has_news())
            keep(input.bytes, input.size);
    }
    size_t edges = 0;
    for (size_t i = 0; i < EDGES; i++)
        edges += seen[i] != 0;
    printf("%llu runs, %zu inputs kept, %zu edges\n", (unsigned long long)runs, corpus_size, edges);
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 3 && strcmp(argv[1], "replay") == 0)
        return replay(argc - 2, argv + 2);
    if (argc < 4)
        return 2;
    open_finding(argv[3]);
    for (int i = 4; i < argc; i++) {
        uint8_t *bytes;
        size_t size = read_file(argv[i], &bytes);
        if (size <= LARGEST_INPUT) {
            if (run(bytes, size))
                return 1;
            has_news();
            keep(bytes, size);
        }
        free(bytes);
    }
    keep((const uint8_t *)"", 0);
    int code = fuzz(atof(argv[1]), strtoull(argv[2], NULL, 10));
    for (size_t i = 0; i < corpus_size; i++)
        free(corpus[i].bytes);
    if (code == 0)
        unlink(argv[3]);
    return code;
}
