/* Another preloaded object that stands in front of NCCL: tells the program of each call, and passes it on to the next object. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "abi.h"

void programs_saw(enum function function) __attribute__((weak));

#define FORWARD(name, parameters, arguments)                                                                                    \
    __attribute__((visibility("default"))) int nccl##name parameters                                                            \
    {                                                                                                                           \
        static int(*next) parameters;                                                                                           \
        void *found = dlsym(RTLD_NEXT, "nccl" #name);                                                                           \
                                                                                                                                \
        memcpy(&next, &found, sizeof found);                                                                                    \
        if (programs_saw != NULL)                                                                                               \
            programs_saw(F_##name);                                                                                                \
        return next != NULL ? next arguments : INVALID_USAGE;                                                                   \
    }
FUNCTIONS(FORWARD)
