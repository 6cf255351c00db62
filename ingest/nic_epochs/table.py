"""Epochs as a table, CSV or Parquet: one row for each queue pair, direction and epoch that had bytes, in any order.

Rows are taken one by one into four columns of numbers, so that a file takes 32 bytes of memory a row.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from forensics.ingest._shared.packed import Packed, coded_column, number_column
from forensics.ingest.interface import Batch, Item, Problem
from forensics.ingest.nic_epochs.ends import LARGEST, End, end_of, names_of, queue_pairs, whole, word
from forensics.ingest.nic_epochs.layout import DIRECTIONS

NEEDED = frozenset({"queue_pair", "direction", "bytes"})
TIMED = frozenset({"epoch", "time_ns"})
"""One of these has to be there too."""
SETTINGS = ("host", "rank", "nic", "epoch_ns", "clock", "first_epoch", "epochs", "line_bytes_per_s")
"""What lines `# name=value` may say for all rows."""
MOST_ROWS = 1 << 25
_MOST_SHOWN = 20
_MOST_EPOCH_NS = 60_000_000_000
_BATCH_VALUES = 1 << 20
_OF_CAPTURE = frozenset({"first_epoch", "epochs", "line_bytes_per_s"})
# A run goes on over fewer empty epochs than this.
_GAP = 32
_WAYS = {"send": 0, "sent": 0, "tx": 0, "recv": 1, "receive": 1, "received": 1, "rx": 1}

Ints = npt.NDArray[np.int64]
Stated = tuple[int | None, int | None, int | None]
"""What rows say of a capture: its first epoch, the one behind its last, and bytes per second of the line."""


@dataclass(slots=True)
class _Cells:
    """Rows that could be read, as numbers."""

    ends: dict[End, int] = field(default_factory=dict)
    end: array[int] = field(default_factory=lambda: array("q"))
    way: array[int] = field(default_factory=lambda: array("q"))
    epoch: array[int] = field(default_factory=lambda: array("q"))
    bytes: array[int] = field(default_factory=lambda: array("q"))
    stated: dict[tuple[Any, ...], Stated] = field(default_factory=dict)

    def cover(self, end: End, row: Mapping[str, Any]) -> None:
        """Take what a row says of the whole capture; parts that rows tell apart are one."""
        first, epochs, line = (whole(row.get(name)) for name in ("first_epoch", "epochs", "line_bytes_per_s"))
        begin, stop, rate = self.stated.get(end.capture, (None, None, None))
        if first is not None and epochs is not None:
            begin = first if begin is None else min(begin, first)
            stop = first + epochs if stop is None else max(stop, first + epochs)
        self.stated[end.capture] = (begin, stop, rate if line is None else max(line, rate or line))

    def add(self, end: End, way: int, epoch: int, count: int) -> None:
        """Take one row."""
        self.end.append(self.ends.setdefault(end, len(self.ends)))
        self.way.append(way)
        self.epoch.append(epoch)
        self.bytes.append(count)


def is_table(names: Sequence[str]) -> bool:
    """Whether columns with these names are epochs."""
    return set(names) >= NEEDED and not TIMED.isdisjoint(names)


def items(names: Sequence[str], rows: Iterable[tuple[str, Sequence[Any]]], said: Mapping[str, Any]) -> Iterator[Item]:
    """Captures, queue pairs and runs of rows of cells, each with its place; `said` holds what the file says of all of them."""
    cells, bad = _Cells(), 0
    for place, row in rows:
        if len(cells.end) == MOST_ROWS:
            yield Problem(f"more than {MOST_ROWS} rows; the rest was left out", place)
            break
        values = {**said, **{n: cell for n, cell in zip(names, row, strict=False) if cell not in (None, "")}}
        found = _row(values)
        if isinstance(found, str):
            bad += 1
            if bad <= _MOST_SHOWN:
                yield Problem(found, place)
            continue
        cells.add(*found)
        if not values.keys().isdisjoint(_OF_CAPTURE):
            cells.cover(found[0], values)
    if bad > _MOST_SHOWN:
        yield Problem(f"{bad - _MOST_SHOWN} more rows could not be read")
    if not cells.ends:
        yield Problem("no row has the bytes of an epoch", None, fatal=True)
        return
    yield from _tables(cells)


def _row(cells: Mapping[str, Any]) -> tuple[End, int, int, int] | str:
    """The end, direction, epoch and bytes of a row, or what is wrong with it."""
    number, count = whole(cells.get("queue_pair")), whole(cells.get("bytes"))
    way, length = _WAYS.get((word(cells.get("direction")) or "").lower()), whole(cells.get("epoch_ns"))
    if number is None or count is None or count < 0 or way is None:
        return "no number of a queue pair, direction (send or recv) or bytes"
    if length is None or not 0 < length <= _MOST_EPOCH_NS:
        return "no length of an epoch (epoch_ns): neither a column nor a line `# epoch_ns=32000` states it"
    epoch, time = whole(cells.get("epoch")), whole(cells.get("time_ns"))
    if epoch is None and time is None:
        return "neither epoch nor time_ns is a number"
    clock = word(cells.get("clock")) or ("realtime" if epoch is None else None)
    return end_of(cells, number, length, clock), way, epoch if epoch is not None else (time or 0) // length, count


def _tables(cells: _Cells) -> Iterator[Batch]:
    ends = list(cells.ends)
    number = {key: at for at, key in enumerate(dict.fromkeys(end.capture for end in ends))}
    of_end = np.array([number[end.capture] for end in ends], np.int64)
    end, way, epoch, count = (np.frombuffer(column, np.int64) for column in (cells.end, cells.way, cells.epoch, cells.bytes))
    yield _captures(list(number), [cells.stated.get(key, (None, None, None)) for key in number], of_end[end], epoch)
    names = names_of(ends)
    yield queue_pairs(ends, names)
    order = np.lexsort((count, epoch, way, end))
    end, way, epoch, count = end[order], way[order], epoch[order], count[order]
    last = np.append((np.diff(end) != 0) | (np.diff(way) != 0) | (np.diff(epoch) != 0), True)
    yield from _runs(names, of_end, end[last], way[last], epoch[last], count[last])


def _captures(keys: Sequence[tuple[Any, ...]], stated: Sequence[Stated], number: Ints, epoch: Ints) -> Batch:
    """A capture lasts from its first row to its last, unless the file says what was captured; `number` is that of each row."""
    first, last = np.full(len(keys), LARGEST), np.full(len(keys), -LARGEST)
    np.minimum.at(first, number, epoch)
    np.maximum.at(last, number, epoch)
    spans = [
        (at, end - at + 1) if begin is None or stop is None else (begin, min(stop - begin, LARGEST))
        for (begin, stop, _), at, end in zip(stated, first.tolist(), last.tolist(), strict=True)
    ]
    columns: dict[str, Sequence[Any]] = {
        "capture_id": list(range(len(keys))),
        "host": [key[0] for key in keys],
        "nic": [key[1] for key in keys],
        "epoch_ns": [key[2] for key in keys],
        "unit": ["bytes"] * len(keys),
        "clock": [key[3] for key in keys],
        "first_epoch": [begin for begin, _ in spans],
        "epochs": [epochs for _, epochs in spans],
        "line_bytes_per_s": [line for *_, line in stated],
    }
    if all(key[0] is None for key in keys):
        del columns["host"]  # that of the file
    return Batch("captures", columns)


def _runs(names: Sequence[str], of_end: Ints, end: Ints, way: Ints, epoch: Ints, count: Ints) -> Iterator[Batch]:
    """Runs of neighbouring epochs of sorted rows."""
    breaks = (np.diff(end) != 0) | (np.diff(way) != 0) | (np.diff(epoch) > _GAP)
    starts = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    stops = np.append(starts[1:], len(end))
    batch, size = list[int](), 0
    for at in range(len(starts)):
        batch.append(at)
        size += int(epoch[stops[at] - 1] - epoch[starts[at]]) + 1
        if size >= _BATCH_VALUES or at == len(starts) - 1:
            begins, texts = starts[batch], [_dense(epoch[starts[n] : stops[n]], count[starts[n] : stops[n]]) for n in batch]
            yield _batch(names, of_end, end[begins], way[begins], epoch[begins], texts)
            batch, size = [], 0


def _dense(epoch: Ints, count: Ints) -> str:
    """The bytes of every epoch of a run, as the text of a list."""
    values = np.zeros(int(epoch[-1] - epoch[0]) + 1, np.int64)
    values[epoch - epoch[0]] = count
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _batch(names: Sequence[str], of_end: Ints, end: Ints, way: Ints, epoch: Ints, texts: Sequence[str]) -> Batch:
    none = np.zeros(len(end), np.bool_)
    columns = {
        "capture_id": number_column(of_end[end], none),
        "queue_pair": coded_column(end, names),
        "direction": coded_column(way, DIRECTIONS),
        "first_epoch": number_column(epoch, none),
        "values": Packed(len(end), np.arange(len(end), dtype=np.int32), None, tuple(texts)),
    }
    return Batch("nic_epochs", columns)
