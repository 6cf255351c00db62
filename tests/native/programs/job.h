/* The part of a program that is bound to NCCL: linked into it, or a library that it opens. */
#ifndef PROGRAMS_JOB_H
#define PROGRAMS_JOB_H

#include "strict.h"

struct job {
    struct api linked;       /* through this object's own table */
    struct api global, held; /* by dlsym(RTLD_DEFAULT) and by dlsym of the library's handle */
    struct strict_functions strict;
    void *(*find)(const char *name, bool everywhere);
    bool is_one_of_many;
    void (**at_close)(void); /* called by a destructor of this object */
};
SHOWN void job_open(struct job *job);

#endif
