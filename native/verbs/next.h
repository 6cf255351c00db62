/* What comes behind the collector in the order in which the linker searches. */
#ifndef FORENSICS_VERBS_NEXT_H
#define FORENSICS_VERBS_NEXT_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/* The C library's dlsym and dlvsym, behind ours; NULL when there is none. */
typedef void *(*lookup)(void *handle, const char *name);
typedef void *(*lookup_version)(void *handle, const char *name, const char *version);
lookup next_dlsym(void);
lookup_version next_dlvsym(void);
int (*next_dlclose(void))(void *handle);

/* Whether RTLD_NEXT leads a caller at this address to us: no object between it and us defines the function. */
bool next_is_us(const void *caller, const char *name);

#pragma GCC visibility pop

#endif
