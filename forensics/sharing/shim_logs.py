"""A shim log without secrets and names: every field that the layout knows is written anew, the rest is zero."""

from __future__ import annotations

import io
import ipaddress
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.ingest.interface import Problem
from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.file import ShimFile, read_file
from forensics.sharing.left_out import LeftOutError
from forensics.sharing.scrub import Scrub

_ADDRESSES = ("gid", "remote_gid")
_CHECKSUM = slice(32, 36)


def redact_shim_log(content: bytes, scrub: Scrub) -> bytes:
    """The same log, of the same size. Raises LeftOutError where its head cannot be trusted."""
    log = _read(content)
    made = bytearray(len(content))
    head = _structure(log.head, scrub)
    made[: layout.HEAD_BYTES] = head.tobytes()
    _put(made, int(log.head["live_offset"]), _structure(log.live, scrub).tobytes())
    for offset, size, kind in _places(log):
        for place, entry in enumerate(_entries(log.tables[kind], kind, scrub)):
            _put(made, offset + place * size, entry.tobytes())
    order = "little" if log.order == "<" else "big"
    made[_CHECKSUM] = bytes(4)
    made[_CHECKSUM] = zlib.crc32(made[: layout.HEAD_BYTES]).to_bytes(4, order)  # type: ignore[arg-type]
    return bytes(made)


def _read(content: bytes) -> ShimFile:
    log: ShimFile | None = None
    for item in read_file(io.BytesIO(content)):
        if isinstance(item, ShimFile):
            log = item
        elif isinstance(item, Problem) and item.fatal:
            raise LeftOutError(item.message)
    if log is None:
        raise LeftOutError("no log was found in it")
    return log


def _places(log: ShimFile) -> Iterator[tuple[int, int, int]]:
    """Offset, size of an entry and kind of the sections that were read, each kind once."""
    for kind in log.tables:
        found = [one for one in log.head["sections"][:32] if int(one["kind"]) == kind]
        yield int(found[-1]["offset"]), int(found[-1]["entry_bytes"]), kind


def _put(made: bytearray, offset: int, content: bytes) -> None:
    """Write a part, as far as the file goes: it may have been cut."""
    size = max(0, min(len(content), len(made) - offset))
    made[offset : offset + size] = content[:size]


def _entries(table: npt.NDArray[Any], kind: int, scrub: Scrub) -> npt.NDArray[Any]:
    """The entries of a section with their texts replaced; records and other sections of numbers stay as they are."""
    if kind not in (layout.COMMS, layout.QUEUE_PAIRS, layout.RINGS):
        return table
    made = _structure(table, scrub)
    if kind == layout.QUEUE_PAIRS and "addresses" in scrub.pseudonyms.kinds:
        for name in _ADDRESSES:
            made[name] = [_address(bytes(raw), scrub) for raw in made[name]]
    return made


def _structure(source: Any, scrub: Scrub) -> npt.NDArray[Any]:
    """A copy of the known fields, with texts replaced; bytes between the fields are zero."""
    made = np.zeros(np.shape(source), source.dtype)  # zeros_like leaves what was in memory between the fields
    for name in made.dtype.names or ():
        field = made.dtype[name]
        if field.kind != "S" or name == "magic":
            made[name] = source[name]
        else:
            texts = np.atleast_1d(np.asarray(source[name]))
            replaced = np.array([_text(bytes(text), field.itemsize, scrub) for text in texts.ravel()], dtype=field)
            made[name] = replaced.reshape(texts.shape) if made.ndim else replaced[0]
    return made


def _text(value: bytes, size: int, scrub: Scrub) -> bytes:
    """A NUL-padded text; what stands behind its end, and half a character that does not fit, is not carried over."""
    shown = value.split(b"\0", 1)[0].decode("utf-8", "replace")
    made = scrub.text(shown).encode()[:size]
    return made.decode("utf-8", "ignore").encode()


def _address(raw: bytes, scrub: Scrub) -> list[int]:
    """A GID under its pseudonym, RoCE over IPv4 as such; one that is all zero was never set."""
    if not any(raw):
        return list(raw)
    scrub.found("addresses")
    address = ipaddress.IPv6Address(raw)
    if address.ipv4_mapped is not None:
        return list(bytes(10) + b"\xff\xff" + ipaddress.IPv4Address(scrub.pseudonyms.address(address.ipv4_mapped)).packed)
    return list(ipaddress.IPv6Address(scrub.pseudonyms.address(address)).packed)
