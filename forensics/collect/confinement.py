"""What a program that the collector starts cannot do: outlive it, stop another process, or signal one.

The second is kept by the kernel and not by trust: a tracer that is killed between PTRACE_ATTACH and the stop it asked for
leaves its target stopped for ever. Under a system call filter it never attaches, whatever its version and options are.
System call numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of the kernel.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import stat as stat_module
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_RET|K
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_X32 = 0x40000000  # the other table of system calls on x86_64

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class _Machine:
    """The audit number of an architecture, and its calls that stop, signal or write into another process.

    ptrace, kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, process_vm_writev, pidfd_send_signal.
    """

    audit: int
    calls: tuple[int, ...]


_MACHINES = {
    "x86_64": _Machine(0xC000003E, (101, 62, 200, 234, 129, 297, 311, 424)),
    "aarch64": _Machine(0xC00000B7, (117, 129, 130, 131, 138, 240, 271, 424)),
}


class _Program(ctypes.Structure):
    """`struct sock_fprog` of include/uapi/linux/filter.h."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def end_with(parent: int) -> None:
    """Let this process be killed when `parent`, which has just forked it, ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(70)


def forbid_intrusion() -> None:
    """Take from this process, and from what it executes, every call that stops or signals a process. Raises OSError."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise OSError(errno.ENOSYS, "no system call filter for this architecture")
    code = _filter(machine)
    program = ctypes.byref(_Program(len(code) // 8, code))
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0) == 0:
        return
    # Without CAP_SYS_ADMIN the kernel wants the promise first that no later program gains privileges.
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel refuses a system call filter")


def before_exec(forbid: bool) -> Callable[[], None]:
    """What a program's process does between fork and exec: end with this process, and give up what is forbidden."""
    parent = os.getpid()

    def prepare() -> None:
        end_with(parent)
        if forbid:
            forbid_intrusion()

    return prepare


def why_unconfined(program: str) -> str | None:
    """Why a program cannot be kept from ptrace and signals; None when it can."""
    if os.geteuid() != 0 and _is_privileged(program):
        return "it has privileges of its own, which a system call filter would take"
    child = os.fork()
    if child == 0:
        try:
            forbid_intrusion()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return None if os.waitpid(child, 0)[1] == 0 else "the kernel has no system call filter for it"


def _is_privileged(program: str) -> bool:
    """Whether a file gives privileges to whoever executes it: set-user-id, set-group-id or file capabilities."""
    try:
        if Path(program).stat().st_mode & (stat_module.S_ISUID | stat_module.S_ISGID):
            return True
        return bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False


def _filter(machine: _Machine) -> bytes:
    """A classic BPF program over `struct seccomp_data`; foreign tables of system calls are refused as a whole."""
    calls = machine.calls
    steps: list[Sequence[int]] = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 0, len(calls) + 3, machine.audit),
        (_LOAD, 0, 0, 0),  # the number of the call
        (_AT_LEAST, len(calls) + 1, 0, _X32),
        *((_EQUAL, len(calls) - place, 0, call) for place, call in enumerate(calls)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
