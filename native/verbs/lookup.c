/* dlsym and dlvsym, through which NCCL finds libibverbs. Every other lookup is handed on with a jump: who calls is part of the
 * question (RTLD_NEXT, RTLD_DEFAULT), and the real function must see the caller, not us. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <string.h>

#include "verbs/door.h"

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

static void *nothing(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

static void *nothing_of_version(void *handle, const char *name, const char *version)
{
    (void)version;
    return nothing(handle, name);
}

static bool is_verbs(const char *name)
{
    return name != NULL && strncmp(name, "ibv_", 4) == 0;
}

static void *look_up(void *handle, const char *name)
{
    void *found = next_dlsym()(handle, name);

    shim_cover_door(SHIM_CALLED, SHIM_DOOR_VERBS_LOOKUP);
    return found != NULL ? hook_for(name, found) : NULL;
}

static void *look_up_version(void *handle, const char *name, const char *version)
{
    void *found = next_dlvsym()(handle, name, version);

    shim_cover_door(SHIM_CALLED, SHIM_DOOR_VERBS_LOOKUP);
    return found != NULL ? hook_for(name, found) : NULL;
}

/* Where the jump goes. */
__attribute__((used, visibility("hidden"))) lookup forensics_dlsym_target(void *handle, const char *name)
{
    lookup target = next_dlsym();

    if (target == NULL)
        return nothing;
    return is_verbs(name) && handle != RTLD_NEXT ? look_up : target;
}

__attribute__((used, visibility("hidden"))) lookup_version forensics_dlvsym_target(void *handle, const char *name,
                                                                                   const char *version)
{
    lookup_version target = next_dlvsym();

    shim_cover_door(SHIM_HOOKED, SHIM_DOOR_VERBS_LOOKUP);
    if (target == NULL)
        return nothing_of_version;
    if (!is_verbs(name) || handle == RTLD_NEXT || version == NULL || strcmp(version, VERBS_VERSION) != 0)
        return target;
    return look_up_version;
}

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n.type dlsym,@function\ndlsym:\n.cfi_startproc\n"
        "pushq %rdi\n.cfi_adjust_cfa_offset 8\npushq %rsi\n.cfi_adjust_cfa_offset 8\nsubq $8,%rsp\n.cfi_adjust_cfa_offset 8\n"
        "call forensics_dlsym_target\n"
        "addq $8,%rsp\n.cfi_adjust_cfa_offset -8\npopq %rsi\n.cfi_adjust_cfa_offset -8\npopq %rdi\n.cfi_adjust_cfa_offset -8\n"
        "jmp *%rax\n.cfi_endproc\n.size dlsym,.-dlsym\n"
        ".globl dlvsym\n.type dlvsym,@function\ndlvsym:\n.cfi_startproc\n"
        "pushq %rdi\n.cfi_adjust_cfa_offset 8\npushq %rsi\n.cfi_adjust_cfa_offset 8\npushq %rdx\n.cfi_adjust_cfa_offset 8\n"
        "call forensics_dlvsym_target\n"
        "popq %rdx\n.cfi_adjust_cfa_offset -8\npopq %rsi\n.cfi_adjust_cfa_offset -8\npopq %rdi\n.cfi_adjust_cfa_offset -8\n"
        "jmp *%rax\n.cfi_endproc\n.size dlvsym,.-dlvsym\n");
#else
__asm__(".text\n"
        ".globl dlsym\n.type dlsym,%function\ndlsym:\n"
        "stp x29,x30,[sp,#-32]!\nstp x0,x1,[sp,#16]\nbl forensics_dlsym_target\nmov x16,x0\nldp x0,x1,[sp,#16]\n"
        "ldp x29,x30,[sp],#32\nbr x16\n.size dlsym,.-dlsym\n"
        ".globl dlvsym\n.type dlvsym,%function\ndlvsym:\n"
        "stp x29,x30,[sp,#-48]!\nstp x0,x1,[sp,#16]\nstr x2,[sp,#32]\nbl forensics_dlvsym_target\nmov x16,x0\n"
        "ldp x0,x1,[sp,#16]\nldr x2,[sp,#32]\nldp x29,x30,[sp],#48\nbr x16\n.size dlvsym,.-dlvsym\n");
#endif

#endif
