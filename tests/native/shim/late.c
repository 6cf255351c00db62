/* Loads the library that is named, as NCCL does with a plugin, and says why where that fails. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "%s\n", count == 2 ? dlerror() : "needs one library");
        return 1;
    }
    return 0;
}
