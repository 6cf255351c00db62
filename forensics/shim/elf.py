"""The libraries that an ELF file asks for by name, read without loading it (System V ABI, 64-bit little-endian)."""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path

_DYNAMIC, _LOAD = 2, 1
_NEEDED, _STRTAB, _NULL = 1, 5, 0
_MOST_ENTRIES = 4096
_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")


def needed(path: Path) -> tuple[str, ...]:
    """Names in DT_NEEDED; empty for a file that is no such ELF file or is damaged. Raises OSError."""
    with path.open("rb") as stream:
        try:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _needed(content)
        except (struct.error, ValueError, IndexError, OverflowError, StopIteration):
            return ()


def _needed(content: mmap.mmap) -> tuple[str, ...]:
    if content[:6] != b"\x7fELF\x02\x01":
        return ()
    table, size, count = *struct.unpack_from("<Q", content, 32), *struct.unpack_from("<HH", content, 54)
    headers = [struct.unpack_from("<IIQQQQ", content, table + number * size) for number in range(min(count, 256))]
    loads = [(address, address + length, offset) for kind, _, offset, address, _, length in headers if kind == _LOAD]
    dynamic = next((offset for kind, _, offset, _, _, _ in headers if kind == _DYNAMIC), None)
    if dynamic is None:
        return ()
    entries = []
    for number in range(_MOST_ENTRIES):
        tag, value = struct.unpack_from("<QQ", content, dynamic + 16 * number)
        if tag == _NULL:
            break
        entries.append((tag, value))
    strings = next(value for tag, value in entries if tag == _STRTAB)
    base = next(offset + strings - first for first, last, offset in loads if first <= strings < last)
    return tuple(_text(content, base + value) for tag, value in entries if tag == _NEEDED)


def _text(content: mmap.mmap, at: int) -> str:
    end = content.find(b"\0", at, at + 1024)
    return content[at : end if end >= 0 else at].decode("utf-8", "replace")


def nccl_version(path: Path) -> str | None:
    """The version that a library with NCCL inside carries as text; None when there is none. Raises OSError."""
    with path.open("rb") as stream:
        try:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                found = _VERSION.search(content)
                return found[1].decode() if found else None
        except ValueError:  # an empty file
            return None
