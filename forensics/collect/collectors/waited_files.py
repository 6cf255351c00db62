"""What the system call of a sleeping thread is about: the file behind its descriptor, or the files that its epoll watches.

Numbers of system calls: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of the kernel.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass

from forensics.collect.processes import ProcFs


@dataclass(frozen=True, slots=True)
class _Calls:
    """Numbers of the calls that wait on one descriptor (for its `lock`), on what an epoll watches, on a set, on a list."""

    on_one: frozenset[int]
    epoll: frozenset[int]
    select: frozenset[int]
    poll: frozenset[int]
    lock: frozenset[int]


# read, write, pread64, readv, writev, accept, sendto, recvfrom, sendmsg, recvmsg, fcntl, flock, fsync, fdatasync, accept4;
# epoll_wait, epoll_pwait, epoll_pwait2; select, pselect6; poll, ppoll; fcntl, flock.
_BY_MACHINE = {
    "x86_64": _Calls(
        frozenset({0, 1, 17, 19, 20, 43, 44, 45, 46, 47, 72, 73, 74, 75, 288}),
        frozenset({232, 281, 441}),
        frozenset({23, 270}),
        frozenset({7, 271}),
        frozenset({72, 73}),
    ),
    "aarch64": _Calls(
        frozenset({63, 64, 67, 65, 66, 202, 206, 207, 211, 212, 25, 32, 82, 83, 242}),
        frozenset({22, 441}),
        frozenset({72}),
        frozenset({73}),
        frozenset({25, 32}),
    ),
}
_WATCHED = re.compile(r"^tfd:\s*(\d+)", re.MULTILINE)
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_MOST_WATCHED = 32
# struct pollfd of include/uapi/asm-generic/poll.h: descriptor, events that are waited for, events that came.
_POLLED = struct.Struct("=ihh")


def waited_files(procfs: ProcFs, pid: int, machine: str, syscall: str | None) -> list[str] | None:
    """Files that a thread in this line of `/proc/PID/syscall` waits on, each `FD -> FILE`; None where that is not known.

    A socket is named by its protocol, and by whom it is connected to or where it listens; behind a file that another process
    has locked stands ` locked by pid N`. Raises OSError and ValueError.
    """
    calls, words = _BY_MACHINE.get(machine), (syscall or "").split()
    if calls is None or len(words) < 2 or not words[0].isdecimal():
        return None
    number, first = int(words[0]), int(words[1], 16)
    if number in calls.on_one or (number in calls.select and first == 1):
        waited = [first if number in calls.on_one else 0]
    elif number in calls.epoll:
        waited = [int(found) for found in _WATCHED.findall(procfs.text(pid, f"fdinfo/{first}"))][:_MOST_WATCHED]
    elif number in calls.poll:
        waited = _polled(procfs, pid, first, int(words[2], 16))
    else:
        return None
    files = {fd: procfs.link(pid, f"fd/{fd}") for fd in waited}
    locked = _locked(procfs, pid) if number in calls.lock else ""
    sockets = _sockets(procfs, pid) if any(_SOCKET.fullmatch(file) for file in files.values()) else {}
    return [
        f"{fd} -> {_SOCKET.sub(lambda found: sockets.get(int(found[1]), found[0]), file)}{locked}" for fd, file in files.items()
    ]


def _locked(procfs: ProcFs, pid: int) -> str:
    """Who holds the lock that a process waits for: it stands in a row of its own below that of the holder (fs/locks.c)."""
    holder = 0
    for row in (line.split() for line in procfs.locks()):
        if row[1] != "->":
            holder = int(row[4])
        elif int(row[5]) == pid and holder > 0:
            return f" locked by pid {holder}"
    return ""


def _polled(procfs: ProcFs, pid: int, address: int, count: int) -> list[int]:
    """The descriptors of a list in the memory of a process; negative ones are left out by the kernel too."""
    content = procfs.memory(pid, address, _POLLED.size * min(count, _MOST_WATCHED))
    whole = content[: len(content) // _POLLED.size * _POLLED.size]
    return [fd for fd, _, _ in _POLLED.iter_unpack(whole) if fd >= 0]


def _sockets(procfs: ProcFs, pid: int) -> dict[int, str]:
    """TCP and UNIX sockets in the network namespace of a process, by inode."""
    found = {}
    for row in procfs.tcp(pid):
        where = f"listening {_address(row[1])}" if row[3] == "0A" else f"to {_address(row[2])}"
        found[int(row[9])] = f"tcp {where}"
    unix = procfs.unix_sockets(pid)
    return found | {inode: f"unix {'listening' if listens else 'to'} {path}".strip() for inode, (listens, path) in unix.items()}


def _address(text: str) -> str:
    """An address of /proc/net/tcp: 32-bit words in the byte order of the host, and the port."""
    host, _, port = text.partition(":")
    words = bytes.fromhex(host)
    packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address):
        return f"{address.ipv4_mapped or f'[{address}]'}:{int(port, 16)}"
    return f"{address}:{int(port, 16)}"
