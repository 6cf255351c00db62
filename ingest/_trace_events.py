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
from forensics.ingest import _trace_columns as columns
from forensics.ingest._trace_columns import Tally, TraceColumns
from forensics.ingest._trace_native import read_native
from forensics.ingest._trace_times import nanoseconds

BLOCK_BYTES = 4 << 20
HEAD_BYTES = 1 << 20
TAIL_BYTES = 1 << 16
_LONGEST_EVENT = 1 << 20
_MOST_DIGITS = 19
# What the text of an event holds that is looked at; native/trace/events.c knows the same kinds.
_NEEDLES = (
    b'user_annotation"', b'"record_param_comms"', b'"autograd::engine::evaluate_function', b'"kernel"', b'"Kernel"',
    b'"gpu_mem', b'"Memcpy"', b'"Memset"', b'_runtime"', b'"cuda_driver"', b'"Runtime"',
)  # fmt: skip
_CATEGORIES = {
    "user_annotation": columns.ANNOTATION, "gpu_user_annotation": columns.DEVICE_ANNOTATION, "kernel": columns.KERNEL,
    "Kernel": columns.KERNEL, "gpu_memcpy": columns.COPY, "gpu_memset": columns.COPY, "Memcpy": columns.COPY,
    "Memset": columns.COPY,
}  # fmt: skip
_LAUNCHES = re.compile(r"(?:cu|hip).*(?:Launch|Memcpy|Memset)", re.DOTALL)
# Where the list of events begins, and how its events are indented. Inside a string JSON writes a line break as \\n, so that an
# indented brace only stands between events; with no line break there, events part where a brace meets a comma and a brace.
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[\s*?(\n[ \t]*)?\{')
_KINETO = b"\n  "
_BETWEEN = (b"},{", b"}, {", b"},\n{")
_FIRST, _LAST = (b"[{", b"[ {", b"[\n{"), (b"}]", b"} ]", b"}\n]")


def read_trace(stream: BinaryIO, tally: Tally) -> TraceColumns:
    """Kept events of a trace; a stream that breaks gives what came before, and `tally` says so."""
    return read_native(_blocks(stream, tally), tally) or read_slowly(_blocks(stream, tally), tally)


def read_slowly(blocks: Iterable[bytes], tally: Tally) -> TraceColumns:
    """The same in Python: needles are looked for in each block, and only an event that holds one is parsed."""
    found = _Rows()
    rest, before = b"", 0
    indent: bytes | None = None
    for chunk in blocks:
        block = rest + chunk
        indent = _indent(block) if indent is None else indent
        end = _last_end(block, indent)
        found.add(block, _spans(block, end, indent), before, tally)
        rest, before = block[end:], before + end
        if len(rest) > 8 * BLOCK_BYTES:
            rest, before = b"", before + len(rest)
    if rest:
        found.add(rest, _spans(rest + b"\n", len(rest) + 1, indent or b""), before, tally)
    return found.columns()


def _indent(block: bytes) -> bytes:
    """What stands before the brace of an event: a line break and spaces, or nothing."""
    found = _LIST.search(block)
    if found:
        indent = found[1] or b""
        return indent if indent and indent + b"}" in block else b""
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
    return max((block.rfind(mark) + 1 for mark in _BETWEEN), default=0)


def _spans(block: bytes, end: int, indent: bytes) -> list[tuple[int, int]]:
    """Where the events lie whose text holds one of the needles, once each."""
    bounds = _bounds(block, end, indent)
    spans: set[tuple[int, int]] = set()
    for needle in _NEEDLES:
        reached = 0
        while (place := block.find(needle, reached, end)) >= 0:
            first, last = bounds.around(place, end)
            reached = max(last, place + len(needle))
            spans.add((first, last))
    return sorted(spans)


class _Bounds(NamedTuple):
    """Where events begin and end in a block, in order."""

    begins: list[int]
    ends: list[int]

    def around(self, place: int, end: int) -> tuple[int, int]:
        """The event around a place; as far as it is known when it does not begin near, or does not end."""
        before, behind = bisect_left(self.begins, place) - 1, bisect_right(self.ends, place)
        first = self.begins[before] if before >= 0 else place
        last = self.ends[behind] if behind < len(self.ends) else end
        return (first if place - first <= _LONGEST_EVENT else place), min(last, end)


def _bounds(block: bytes, end: int, indent: bytes) -> _Bounds:
    """Looked for once a block: each needle searching for its event would take the square of a block on one line."""
    if indent:
        begins, ends = _places(indent + b"{", block, end), _places(indent + b"}", block, end)
        return _Bounds((begins + len(indent)).tolist(), (ends + len(indent) + 1).tolist())
    openings = [_places(mark, block, end) + len(mark) - 1 for mark in (*_BETWEEN, *_FIRST)]
    closings = [_places(mark, block, end) + 1 for mark in (*_BETWEEN, *_LAST)]
    # What is left of the block before begins with the comma behind its last event.
    left = np.array([brace] if (brace := block.find(b"{", 0, 4)) >= 0 else [], dtype=np.int64)
    return _Bounds(np.sort(np.concatenate([*openings, left])).tolist(), np.sort(np.concatenate(closings)).tolist())


def _places(mark: bytes, block: bytes, end: int) -> npt.NDArray[np.int64]:
    text = np.frombuffer(block, dtype=np.uint8, count=end)
    last = len(mark) - 1
    found = np.flatnonzero(text[last:] == mark[last])
    for place in range(last):
        found = found[text[found + place] == mark[place]]
    return found


class _Rows:
    """Kept events one by one, with their distinct texts."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, int, int, int, int]] = []
        self._names: dict[str, int] = {}
        self._tracks: dict[str, int] = {}
        self._details: list[bytes] = []

    def add(self, block: bytes, spans: list[tuple[int, int]], before: int, tally: Tally) -> None:
        """Keep what is an event of a known kind with a begin and an end."""
        for first, last in spans:
            raw = block[first:last]
            try:
                event = orjson.loads(raw)
            except orjson.JSONDecodeError:
                # What is no event at all may hold a needle too, such as the head of the file.
                if b'"ph"' in raw[:_LONGEST_EVENT]:
                    tally.broken += 1
                    tally.first_broken = before + first if tally.first_broken is None else tally.first_broken
                continue
            if isinstance(event, dict) and (kind := _kind(event)):
                self._keep(event, kind, raw)

    def _keep(self, event: dict[str, Any], kind: int, raw: bytes) -> None:
        begin, duration = nanoseconds(event, raw, "ts"), nanoseconds(event, raw, "dur")
        if begin is None or duration is None or duration < 0:
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        detail = len(self._details) if "Collective name" in args else -1
        if detail >= 0:
            self._details.append(raw)
        name = self._names.setdefault(event["name"], len(self._names))
        track = self._tracks.setdefault(f"{event.get('pid', '')}/{event.get('tid', '')}", len(self._tracks))
        external = _number(args.get("External id", args.get("external id")))
        self._rows.append((kind, name, track, begin, duration, external, _number(args.get("correlation")), detail))

    def columns(self) -> TraceColumns:
        """Everything that was kept."""
        table = np.array(self._rows, dtype=np.int64).reshape(-1, 8).T
        kinds, names, tracks, begins, durations, externals, correlations, details = table
        return TraceColumns(
            kinds.astype(np.uint8), names.astype(np.int32), tracks.astype(np.int32), begins, durations, externals,
            correlations, details.astype(np.int32), list(self._names), list(self._tracks), self._details,
        )  # fmt: skip


def _kind(event: dict[str, Any]) -> int:
    """Which kind an event is; 0 for all that is not kept."""
    name, category = event.get("name"), event.get("cat")
    if event.get("ph") != "X" or not isinstance(name, str) or not isinstance(category, str):
        return 0
    if category in ("cpu_op", "Operator"):
        if name == "record_param_comms":
            return columns.CALL
        return columns.GRADIENT if name.startswith("autograd::engine::evaluate_function") else 0
    if category in ("cuda_runtime", "cuda_driver", "Runtime"):
        return columns.LAUNCH if _LAUNCHES.match(name) else 0
    return _CATEGORIES.get(category, 0)


def _number(value: Any) -> int:
    """Digits, with or without quotes, as the native reader takes them; -1 for anything else."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < _MOST_DIGITS else -1
    return value if type(value) is int and 0 <= value < 10 ** (_MOST_DIGITS - 1) else -1
