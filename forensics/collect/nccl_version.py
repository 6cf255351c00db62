"""The version of the NCCL that a process really runs: from the file that is mapped, not from a package beside it.

NCCL puts `NCCL version 2.29.2+cuda13.0` into its read-only data so that it can be found there (src/init.cc). A file that was
replaced or deleted since is read through /proc/PID/map_files, which root may; a package's folder would tell the new version.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from forensics.collect.processes import MappedFile, ProcFs
from forensics.collect.target import visible_path

Version = tuple[int, int, int]

_NCCL = re.compile(r"/libnccl\.so[\w.]*$")
_WITH_NCCL_INSIDE = re.compile(r"/lib(?:torch(?:_cuda)?|rccl)\.so[\w.]*$")
_NAMED = re.compile(r"/libnccl\.so\.(\d+)\.(\d+)\.(\d+)$")
_TEXT = re.compile(rb"NCCL version (\d{1,3})\.(\d{1,3})\.(\d{1,3})(?!\d)")
_DELETED = " (deleted)"
_CHUNK = 1 << 20
_OVERLAP = 64
_MOST_BYTES = 1 << 30
_MOST_SECTIONS = 4096


@dataclass(frozen=True, slots=True)
class MappedNccl:
    """An NCCL that a process has mapped: the file it is in, and its version, None where it cannot be known."""

    name: str
    version: Version | None


def mapped_nccl(procfs: ProcFs, pid: int) -> MappedNccl | None:
    """The NCCL of a process, the oldest where it has several; None when it has none. Raises OSError."""
    files = list(procfs.mappings(pid))
    own = [file for file in files if _NCCL.search(file.name.removesuffix(_DELETED))]
    inside = [file for file in files if _WITH_NCCL_INSIDE.search(file.name.removesuffix(_DELETED))]
    found = [MappedNccl(file.name, _version(procfs, pid, file)) for file in own]
    if not found:  # an NCCL that is linked statically
        found = [one for file in inside if (one := MappedNccl(file.name, _version(procfs, pid, file))).version]
        found = found or [MappedNccl(file.name, None) for file in inside if not file.name.endswith(("/libtorch.so",))]
    return min(found, key=lambda one: one.version or (0, 0, 0), default=None)


def describe(version: Version) -> str:
    """A version as people write it."""
    return ".".join(map(str, version))


def _version(procfs: ProcFs, pid: int, file: MappedFile) -> Version | None:
    try:
        descriptor = _open(procfs, pid, file)
    except OSError:
        return _of_name(file.name)
    try:
        return min(_versions(descriptor), default=None) or _of_name(file.name)
    except (OSError, struct.error):
        return None
    finally:
        os.close(descriptor)


def _of_name(name: str) -> Version | None:
    match = _NAMED.search(name)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _open(procfs: ProcFs, pid: int, file: MappedFile) -> int:
    """The file that is mapped, or its path where that still leads to it. Raises OSError."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(procfs.path(pid, f"map_files/{file.addresses}"), flags)
    except OSError:
        pass
    descriptor = os.open(visible_path(procfs, pid, file.name), flags)
    # The device is not compared: below an overlay the memory map shows that of the layer.
    if os.fstat(descriptor).st_ino != file.inode:
        os.close(descriptor)
        raise FileNotFoundError(2, "replaced since it was mapped", file.name)
    return descriptor


def _versions(descriptor: int) -> Iterator[Version]:
    """All versions of NCCL that the read-only data of a library names."""
    for offset, size in _read_only_data(descriptor):
        for text in _chunks(descriptor, offset, min(size, _MOST_BYTES)):
            for match in _TEXT.finditer(text):
                yield int(match[1]), int(match[2]), int(match[3])


def _chunks(descriptor: int, offset: int, size: int) -> Iterable[bytes]:
    """A stretch of a file in pieces that overlap by more than the text looked for."""
    end = offset + size
    while offset < end:
        yield os.pread(descriptor, min(_CHUNK + _OVERLAP, end - offset), offset)
        offset += _CHUNK


def _read_only_data(descriptor: int) -> list[tuple[int, int]]:
    """Offset and size of the sections .rodata of a 64-bit little-endian ELF file. Raises struct.error for what is none."""
    head = os.pread(descriptor, 64, 0)
    if head[:6] != b"\x7fELF\x02\x01":
        return []
    (table,) = struct.unpack_from("<Q", head, 40)
    entry, count, names = struct.unpack_from("<HHH", head, 58)
    rows = os.pread(descriptor, entry * min(count, _MOST_SECTIONS), table)
    sections = [struct.unpack_from("<IIQQQQ", rows, place) for place in range(0, len(rows) - entry + 1, entry or 64)]
    if names >= len(sections):
        return []
    strings = os.pread(descriptor, min(sections[names][5], 1 << 20), sections[names][4])
    found = ((strings[name : strings.find(b"\0", name)], offset, size) for name, _, _, _, offset, size in sections)
    return [(offset, size) for name, offset, size in found if name.startswith(b".rodata")]
