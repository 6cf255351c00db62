"""Events of a trace file of any size as columns: through the native reader, or else block by block in Python."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from forensics.bundle.streams import chunks
from forensics.ingest.kineto.columns import Tally, TraceColumns
from forensics.ingest.kineto.native import read_native
from forensics.ingest.kineto.rows import UPDATES, Rows
from forensics.ingest.kineto.walk import LONGEST_EVENT, Walk

# A block stays in the cache of the core that copies and reads it.
BLOCK_BYTES = 256 << 10
HEAD_BYTES = 1 << 20
TAIL_BYTES = 1 << 16
# What the text of an event holds that is looked at; native/trace/events.c knows the same kinds.
_NEEDLES = (
    b'user_annotation"', b'"record_param_comms"', b'"autograd::engine::evaluate_function', b'"kernel"', b'"Kernel"',
    b'"gpu_mem', b'"Memcpy"', b'"Memset"', b'_runtime"', b'"cuda_driver"', b'"Runtime"',
    *(b'"' + name.encode() for name in UPDATES),
)  # fmt: skip
# Where the list of events begins, and how its events are indented. Inside a string JSON writes a line break as \\n, so that an
# indented brace only stands between events; with no line break there, events part where a brace meets a comma and a brace.
_LIST = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
_NO_DEVICE = re.compile(rb'"deviceProperties"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*\]')
_OPERATORS = (b'"cpu_op"', b'"Operator"')
_LONGEST_KEY = 64
_INDENT = re.compile(rb"\s*?(\n[ \t]*)?\{")
_BEGIN = re.compile(rb"[ \t\r\n,]*\{")
_BETWEEN = (b"},{", b"}, {", b"},\n{")
_LAST = (b"}]", b"} ]", b"}\n]")


def read_trace(stream: BinaryIO, tally: Tally) -> TraceColumns:
    """Kept events of a trace; a stream that breaks gives what came before, and `tally` says so."""
    return read_native(_blocks(stream, tally), tally) or read_slowly(_blocks(stream, tally), tally)


def read_slowly(blocks: Iterable[bytes], tally: Tally) -> TraceColumns:
    """The same in Python: needles are looked for in each block, and only an event that holds one is parsed.

    A block in which that misses anything, as events that are laid out one so and one so, is read event by event.
    """
    rows = Rows()
    walk = Walk(rows, tally)
    rest, before = b"", 0
    indent: bytes | None = None
    for chunk in blocks:
        block = rest + chunk
        found = _LIST.search(block) if indent is None else None
        if indent is None and _NO_DEVICE.search(block, 0, found.start() if found else len(block)):
            rows.has_no_device = True
        if found:
            indent = _indent(block, found.end())
            before, block = before + found.end(), block[found.end() :]
        if indent is None:
            end = max(0, len(block) - _LONGEST_KEY)
        else:
            end = _found(rows, block, indent) if not walk.is_lost else 0
            end = end or walk.read(block, before, is_last=False)
        rest, before = block[end:], before + end
        if walk.is_done:
            break
    else:
        if indent is not None:
            walk.read(rest, before, is_last=True)
    for _ in blocks:  # what is behind the list is counted, and its end looked at
        pass
    return rows.columns()


def _indent(block: bytes, first: int) -> bytes:
    """What stands before the brace of an event: a line break and blanks, or nothing."""
    found = _INDENT.match(block, first)
    indent = found[1] or b"" if found else b""
    return indent if block.find(indent + b"}", first) >= 0 else b""


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
                tally.tail = block
                yield block
                parts, size = [], 0
    except OSError as error:
        tally.problem = str(error)
    block = b"".join(parts)
    tally.tail = (tally.tail + block)[-TAIL_BYTES:]
    tally.has_end = tally.tail.rstrip().endswith(b"}") and b"]" in tally.tail
    if block:
        yield block


def _found(rows: Rows, block: bytes, indent: bytes) -> int:
    """Keep the events of a block that is laid out alike; where the last one ends, 0 (and nothing kept) when it is not."""
    end = _last_end(block, indent)
    if not end or not _BEGIN.match(block):
        return 0
    bounds = _bounds(block, end, indent)
    mark = rows.mark()
    # That the last one is whole shows that the next block begins between two events.
    is_alike = bool(bounds.begins) and _event(block[bounds.begins[-1] : end]) is not None
    needles = (*_NEEDLES, *_OPERATORS) if rows.has_no_device else _NEEDLES
    for first, last in _spans(block, end, bounds, needles) if is_alike else ():
        raw = block[first:last]
        event = _event(raw)
        if event is None:
            is_alike = False
            break
        rows.keep(event, raw)
    if not is_alike:
        rows.back(mark)
    return end if is_alike else 0


def _event(raw: bytes) -> dict[str, Any] | None:
    try:
        event = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and "ph" in event else None


def _last_end(block: bytes, indent: bytes) -> int:
    """Where the last whole event of a block ends; 0 when none does."""
    if indent:
        found = block.rfind(indent + b"}")
        return found + len(indent) + 1 if found >= 0 else 0
    return max((block.rfind(mark) + 1 for mark in _BETWEEN), default=0)


def _spans(block: bytes, end: int, bounds: _Bounds, needles: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Where the events lie whose text holds one of the needles, once each, in the order of the file."""
    spans: set[tuple[int, int]] = set()
    for needle in needles:
        reached = 0
        while (place := block.find(needle, reached, end)) >= 0:
            first, last = bounds.around(place, end)
            reached = max(last, place + len(needle))
            spans.add((first, last))
    yield from sorted(spans)


class _Bounds(NamedTuple):
    """Where events begin and end in a block, in order."""

    begins: list[int]
    ends: list[int]

    def around(self, place: int, end: int) -> tuple[int, int]:
        """The event around a place; as far as it is known when it does not begin near, or does not end."""
        before, behind = bisect_left(self.begins, place) - 1, bisect_right(self.ends, place)
        first = self.begins[before] if before >= 0 else place
        last = self.ends[behind] if behind < len(self.ends) else end
        return (first if place - first <= LONGEST_EVENT else place), min(last, end)


def _bounds(block: bytes, end: int, indent: bytes) -> _Bounds:
    """Looked for once a block: each needle searching for its event would take the square of a block on one line."""
    if indent:
        begins, ends = _places(indent + b"{", block, end), _places(indent + b"}", block, end)
        return _Bounds((begins + len(indent)).tolist(), (ends + len(indent) + 1).tolist())
    openings = [_places(mark, block, end) + len(mark) - 1 for mark in _BETWEEN]
    closings = [_places(mark, block, end) + 1 for mark in (*_BETWEEN, *_LAST)]
    # A block begins with what stands before an event.
    found = _BEGIN.match(block)
    left = np.array([found.end() - 1] if found else [], dtype=np.int64)
    return _Bounds(np.sort(np.concatenate([*openings, left])).tolist(), np.sort(np.concatenate(closings)).tolist())


def _places(mark: bytes, block: bytes, end: int) -> npt.NDArray[np.int64]:
    text = np.frombuffer(block, dtype=np.uint8, count=end)
    last = len(mark) - 1
    found = np.flatnonzero(text[last:] == mark[last])
    for place in range(last):
        found = found[text[found + place] == mark[place]]
    return found
