/* What a fuzz target gives a driver. The entry has libFuzzer's name and form, so that libFuzzer or AFL++ can drive it too. */
#ifndef FORENSICS_FUZZ_TARGET_H
#define FORENSICS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

enum fuzz_format { FUZZ_PICKLE, FUZZ_JSON };

extern const char *const fuzz_words[]; /* texts that mean something to the reader, ended by null */
extern const enum fuzz_format fuzz_format;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#endif
