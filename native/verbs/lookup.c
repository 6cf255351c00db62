/* dlsym and dlvsym, through which NCCL finds libibverbs, and a program asks what its NCCL has. Every other lookup is handed on with
 * a jump: who calls is part of the question (RTLD_NEXT, RTLD_DEFAULT), and the real function must see the caller, not us. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <string.h>

#include "shim/nccl.h"
#include "verbs/hooks.h"

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

    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_VERBS_LOOKUP);
    return found != NULL ? hook_for(name, found) : NULL;
}

static void *look_up_version(void *handle, const char *name, const char *version)
{
    void *found = next_dlvsym()(handle, name, version);

    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_VERBS_LOOKUP);
    return found != NULL ? hook_for(name, found) : NULL;
}

/* A function of ours that the program's NCCL lacks: not found, and dlerror says so. Asked from here, for what is behind us: a call
 * in the last place would be a jump, and the C library would take the program for who asks. */
static void *not_there(void *handle, const char *name)
{
    void *found = next_dlsym()(RTLD_NEXT, name);

    (void)handle;
    __asm__ volatile("" : "+r"(found));
    return found;
}

/* True when this lookup would find a function of ours that stands in for none: without us it would find nothing. */
static bool finds_only_us(lookup target, void *handle, const char *name, void *caller)
{
    if (name == NULL || strncmp(name, "nccl", 4) != 0 || nccl_is_ours(caller))
        return false;
    if (handle == RTLD_NEXT ? !next_is_us(caller, name) : !nccl_is_ours(target(handle, name)))
        return false;
    return !nccl_is_behind(handle, name, caller);
}

/* Where the jump goes. */
__attribute__((used, visibility("hidden"))) lookup forensics_dlsym_target(void *handle, const char *name, void *caller)
{
    lookup target = next_dlsym();

    if (target == NULL)
        return nothing;
    if (finds_only_us(target, handle, name, caller))
        return not_there;
    return is_verbs(name) && handle != RTLD_NEXT ? look_up : target;
}

__attribute__((used, visibility("hidden"))) lookup_version forensics_dlvsym_target(void *handle, const char *name,
                                                                                   const char *version)
{
    lookup_version target = next_dlvsym();

    shim_cover_hook(SHIM_HOOKED, SHIM_HOOK_VERBS_LOOKUP);
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
        "movq 24(%rsp),%rdx\n" /* the return address: who asks */
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
        "stp x29,x30,[sp,#-32]!\nstp x0,x1,[sp,#16]\nmov x2,x30\nbl forensics_dlsym_target\nmov x16,x0\nldp x0,x1,[sp,#16]\n"
        "ldp x29,x30,[sp],#32\nbr x16\n.size dlsym,.-dlsym\n"
        ".globl dlvsym\n.type dlvsym,%function\ndlvsym:\n"
        "stp x29,x30,[sp,#-48]!\nstp x0,x1,[sp,#16]\nstr x2,[sp,#32]\nbl forensics_dlvsym_target\nmov x16,x0\n"
        "ldp x0,x1,[sp,#16]\nldr x2,[sp,#32]\nldp x29,x30,[sp],#48\nbr x16\n.size dlvsym,.-dlvsym\n");
#endif

#endif
