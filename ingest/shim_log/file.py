"""The frame of a shim log: head, live page, sections; what of it can be trusted (docs/formats/shim-log.md)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from forensics.ingest.interface import Problem
from forensics.ingest.shim_log import layout

Table = npt.NDArray[Any]
Order = Literal["<", ">"]
MOST_BYTES = 1 << 29
"""A log never has more: the writer's largest is half of it."""

_ENTRIES = {
    layout.CLOCKS: layout.CLOCK,
    layout.COMMS: layout.COMM,
    layout.PROXY_OPS: layout.PROXY_OP,
    layout.QUEUE_PAIRS: layout.QUEUE_PAIR,
    layout.EPOCHS: layout.EPOCH_BIN,
    layout.RINGS: layout.RING,
    layout.RECORDS: layout.RECORD,
}
_CHECKSUM = slice(32, 36)


@dataclass(frozen=True, slots=True, eq=False)
class ShimFile:
    """A log whose head is sound; `tables` has an array for each known kind of section, cut where the file is."""

    order: Order
    head: Any
    live: Any
    tables: Mapping[int, Table]

    def typed(self, records: Table, kind: np.dtype[Any]) -> Table:
        """Records of one kind as what they are."""
        return np.ascontiguousarray(records).view(kind.newbyteorder(self.order))

    @property
    def host(self) -> str | None:
        """Host that wrote it."""
        return text(self.head["host"]) or None

    @property
    def rank(self) -> int | None:
        """Rank by the environment of the process."""
        rank = int(self.head["rank"])
        return rank if rank >= 0 else None


def text(value: bytes) -> str:
    """A NUL-padded field."""
    return bytes(value).split(b"\0", 1)[0].decode("utf-8", "replace")


def read_file(stream: BinaryIO) -> Iterator[ShimFile | Problem]:
    """The log, and problems; a fatal one instead of the log when nothing can be trusted."""
    content = stream.read(MOST_BYTES + 1)
    if len(content) < layout.HEAD_BYTES:
        yield Problem(f"cut inside its head: {len(content)} of {layout.HEAD_BYTES} bytes", f"byte={len(content)}", fatal=True)
        return
    order = _byte_order(content)
    refusal = _refusal(content, order)
    if refusal is not None or order is None:
        yield Problem(refusal or "no byte order", "byte=0", fatal=True)
        return
    head = np.frombuffer(content, layout.HEAD.newbyteorder(order), 1)[0]
    yield from _length(content, int(head["file_bytes"]))
    tables: dict[int, Table] = {}
    for item in _sections(content, head, order):
        if isinstance(item, Problem):
            yield item
        else:
            tables[item[0]] = item[1]
    yield ShimFile(order, head, _live(content, head, order), tables)


def _byte_order(content: bytes) -> Order | None:
    """Order of the host that wrote it; None when the mark is not there."""
    if int.from_bytes(content[8:12], "little") == layout.BYTE_ORDER:
        return "<"
    return ">" if int.from_bytes(content[8:12], "big") == layout.BYTE_ORDER else None


def _refusal(content: bytes, order: Order | None) -> str | None:
    """Why nothing of this file can be trusted."""
    if not any(content[: layout.HEAD_BYTES]):
        return "its head was never written: the process died while it made the file"
    if not content.startswith(layout.MAGIC) or order is None:
        return "its head was overwritten: no magic or byte order"
    major = int.from_bytes(content[12:14], "little" if order == "<" else "big")
    if major != layout.MAJOR:
        return f"layout {major} is not known; this reader knows {layout.MAJOR}"
    cleared = bytearray(content[: layout.HEAD_BYTES])
    cleared[_CHECKSUM] = bytes(4)
    stored = int.from_bytes(content[_CHECKSUM], "little" if order == "<" else "big")
    return None if zlib.crc32(cleared) == stored else "its head was overwritten: the checksum does not match"


def _length(content: bytes, expected: int) -> Iterator[Problem]:
    if len(content) > MOST_BYTES:
        yield Problem(f"larger than {MOST_BYTES} bytes; the rest is left out", f"byte={MOST_BYTES}")
    elif len(content) < expected:
        yield Problem(f"cut: {len(content)} of {expected} bytes; read up to the cut", f"byte={len(content)}")


def _live(content: bytes, head: Any, order: Order) -> Any:
    """The live page; all zero when it was cut off."""
    kind = layout.LIVE.newbyteorder(order)
    begin = int(head["live_offset"])
    page = content[begin : begin + kind.itemsize]
    return np.frombuffer(page.ljust(kind.itemsize, b"\0"), kind, 1)[0]


def _sections(content: bytes, head: Any, order: Order) -> Iterator[tuple[int, Table] | Problem]:
    for section in head["sections"][: min(int(head["section_count"]), 32)]:
        kind = int(section["kind"])
        known = _ENTRIES.get(kind)
        if known is None:
            continue
        begin, count, size = int(section["offset"]), int(section["count"]), int(section["entry_bytes"])
        if size < known.itemsize or begin < 2 * layout.HEAD_BYTES or begin + count * size > int(head["file_bytes"]):
            yield Problem(f"section {kind} does not lie in the file", f"byte={begin}")
            continue
        count = max(0, min(count, (len(content) - begin) // size))
        yield kind, _entries(content, known.newbyteorder(order), begin, count, size)


def _entries(content: bytes, kind: np.dtype[Any], begin: int, count: int, size: int) -> Table:
    """Entries of a section; a later minor version may have made them longer."""
    if count == 0:
        return np.zeros(0, kind)
    if size == kind.itemsize:
        return np.frombuffer(content, kind, count, begin)
    raw = np.frombuffer(content, np.uint8, count * size, begin).reshape(count, size)
    return np.ascontiguousarray(raw[:, : kind.itemsize]).view(kind).reshape(count)
