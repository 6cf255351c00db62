/* Asks what its NCCL has, as programs do that serve several versions: one line for each way and name. `probing [LIBRARY]` */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static const char *const names[] = {"ncclAllReduce", "ncclAlltoAll", "ncclCommWindowRegister", "ncclCommRevoke", "ncclGetVersion"};

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL, *whole = dlopen(NULL, RTLD_NOW);

    for (size_t each = 0; each < sizeof names / sizeof names[0]; each++) {
        void *here = dlsym(RTLD_DEFAULT, names[each]), *all = dlsym(whole, names[each]), *own;
        const char *error;

        dlerror();
        own = library != NULL ? dlsym(library, names[each]) : NULL;
        (void)dlsym(RTLD_NEXT, names[each]);
        error = dlerror();
        printf("%s %d %d %d %d\n", names[each], here != NULL, all != NULL, own != NULL, error == NULL);
    }
    return 0;
}
