"""Events of a trace file of any size: needles are looked for in blocks, and only an event that holds one is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from forensics.bundle.streams import chunks

BLOCK_BYTES = 4 << 20
HEAD_BYTES = 1 << 20
TAIL_BYTES = 1 << 16
_LONGEST_EVENT = 1 << 20
# Where the list of events begins, and how its events are indented. Inside a string JSON writes a line break as \\n, so that an
# indented brace only stands between events; with no line break there, events part where a brace meets a comma and a brace.
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[\s*?(\n[ \t]*)?\{')
_KINETO = b"\n  "


@dataclass(slots=True)
class Tally:
    """What was met on the way: bytes, events parsed, events that are no JSON, and how the content ended."""

    read: int = 0
    parsed: int = 0
    broken: int = 0
    first_broken: int | None = None
    head: bytes = b""
    tail: bytes = b""
    problem: str | None = None
    has_end: bool = False


def events(stream: BinaryIO, needles: Sequence[bytes], tally: Tally) -> Iterator[dict[str, Any]]:
    """Every event whose text holds one of the needles, once each; a stream that breaks gives what came before."""
    rest, before = b"", 0
    indent: bytes | None = None
    for chunk in _blocks(stream, tally):
        block = rest + chunk
        indent = _indent(block) if indent is None else indent
        end = _last_end(block, indent)
        yield from _of_block(block, end, needles, indent, before, tally)
        rest, before = block[end:], before + end
        if len(rest) > 8 * BLOCK_BYTES:
            rest, before = b"", before + len(rest)
    if rest:
        yield from _of_block(rest + b"\n", len(rest) + 1, needles, indent or b"", before, tally)


def _indent(block: bytes) -> bytes:
    """What stands before the brace of an event: a line break and spaces, or nothing."""
    found = _LIST.search(block)
    if found:
        return found[1] or b""
    return _KINETO if _KINETO + b"{" in block else b""


def _blocks(stream: BinaryIO, tally: Tally) -> Iterator[bytes]:
    """Blocks of some size from chunks of any size, with head and tail kept."""
    parts: list[bytes] = []
    size = 0
    try:
        for chunk in chunks(stream, BLOCK_BYTES):
            tally.read += len(chunk)
            if len(tally.head) < HEAD_BYTES:
                tally.head += chunk[: HEAD_BYTES - len(tally.head)]
            parts.append(chunk)
            size += len(chunk)
            if size >= BLOCK_BYTES:
                block = b"".join(parts)
                tally.tail = block[-TAIL_BYTES:]
                yield block
                parts, size = [], 0
    except OSError as error:
        tally.problem = str(error)
    block = b"".join(parts)
    tally.tail = (tally.tail + block)[-TAIL_BYTES:]
    tally.has_end = tally.tail.rstrip().endswith(b"}") and b"]" in tally.tail
    if block:
        yield block


def _last_end(block: bytes, indent: bytes) -> int:
    """Where the last whole event of a block ends; 0 when none does."""
    if indent:
        found = block.rfind(indent + b"}")
        return found + len(indent) + 1 if found >= 0 else 0
    found = max(block.rfind(b"},{"), block.rfind(b"}, {"))
    return found + 1 if found >= 0 else 0


def _of_block(
    block: bytes, end: int, needles: Sequence[bytes], indent: bytes, before: int, tally: Tally
) -> Iterator[dict[str, Any]]:
    spans: set[tuple[int, int]] = set()
    for needle in needles:
        reached = 0
        while (place := block.find(needle, reached, end)) >= 0:
            first, last = _around(block, place, end, indent)
            reached = max(last, place + len(needle))
            spans.add((first, last))
    for first, last in sorted(spans):
        try:
            event = orjson.loads(block[first:last])
        except orjson.JSONDecodeError:
            # What is no event at all may hold a needle too, such as the head of the file.
            if b'"ph"' in block[first : min(last, first + _LONGEST_EVENT)]:
                tally.broken += 1
                tally.first_broken = before + first if tally.first_broken is None else tally.first_broken
            continue
        if isinstance(event, dict):
            tally.parsed += 1
            yield event


def _around(block: bytes, place: int, end: int, indent: bytes) -> tuple[int, int]:
    """The event around a place."""
    if indent:
        first = block.rfind(indent + b"{", max(0, place - _LONGEST_EVENT), place)
        last = block.find(indent + b"}", place, end)
        size = len(indent)
        return (first + size if first >= 0 else place), (last + size + 1 if last >= 0 else end)
    low = max(0, place - _LONGEST_EVENT)
    starts = [
        block.rfind(mark, low, place) + len(mark) - 1
        for mark in (b"},{", b"}, {", b"[{", b"[ {")
        if block.rfind(mark, low, place) >= 0
    ]
    ends = [found + 1 for mark in (b"},{", b"}, {", b"}]", b"} ]") if (found := block.find(mark, place, end)) >= 0]
    return max(starts, default=place), min(ends, default=end)
