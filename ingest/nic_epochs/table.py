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
_LARGEST = (1 << 62) - 1
# A run goes on over fewer empty epochs than this.
_GAP = 32
_WAYS = {"send": 0, "sent": 0, "tx": 0, "recv": 1, "receive": 1, "received": 1, "rx": 1}
_NUMBERS = ("rank", "generation", "port", "remote_number", "peer")
_WORDS = ("host", "nic", "gid", "remote_gid")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _End:
    """A queue pair of a NIC."""

    host: str | None
    rank: int | None
    nic: str | None
    epoch_ns: int
    clock: str | None
    number: int
    generation: int | None
    port: int | None
    gid: str | None
    remote_gid: str | None
    remote_number: int | None
    peer: int | None

    @property
    def capture(self) -> tuple[str | None, str | None, int, str | None]:
        """What tells the captures of a file apart."""
        return self.host, self.nic, self.epoch_ns, self.clock

    @property
    def name(self) -> str:
        """As in the tables: device and number, with the generation above the first one."""
        again = f".{self.generation}" if (self.generation or 1) > 1 else ""
        return f"{self.nic or 'nic'}/{self.number}{again}"


@dataclass(slots=True)
class _Cells:
    """Rows that could be read, as numbers."""

    ends: dict[_End, int] = field(default_factory=dict)
    end: array[int] = field(default_factory=lambda: array("q"))
    way: array[int] = field(default_factory=lambda: array("q"))
    epoch: array[int] = field(default_factory=lambda: array("q"))
    bytes: array[int] = field(default_factory=lambda: array("q"))

    def add(self, end: _End, way: int, epoch: int, count: int) -> None:
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
        found = _row({**said, **{n: cell for n, cell in zip(names, row, strict=False) if cell not in (None, "")}})
        if isinstance(found, str):
            bad += 1
            if bad <= _MOST_SHOWN:
                yield Problem(found, place)
            continue
        cells.add(*found)
    if bad > _MOST_SHOWN:
        yield Problem(f"{bad - _MOST_SHOWN} more rows could not be read")
    if not cells.ends:
        yield Problem("no row tells the bytes of an epoch", None, fatal=True)
        return
    yield from _tables(cells, said)


def _row(cells: Mapping[str, Any]) -> tuple[_End, int, int, int] | str:
    """The end, direction, epoch and bytes of a row, or what is wrong with it."""
    number, count = _number(cells.get("queue_pair")), _number(cells.get("bytes"))
    way, length = _WAYS.get((_word(cells.get("direction")) or "").lower()), _number(cells.get("epoch_ns"))
    if number is None or count is None or count < 0 or way is None:
        return "no number of a queue pair, direction (send or recv) or bytes"
    if length is None or not 0 < length <= _MOST_EPOCH_NS:
        return "no length of an epoch (epoch_ns): neither a column nor a line `# epoch_ns=32000` tells it"
    epoch, time = _number(cells.get("epoch")), _number(cells.get("time_ns"))
    if epoch is None and time is None:
        return "neither epoch nor time_ns is a number"
    clock = _word(cells.get("clock")) or ("realtime" if epoch is None else None)
    rank, generation, port, remote, peer = (_number(cells.get(name)) for name in _NUMBERS)
    host, nic, gid, remote_gid = (_word(cells.get(name)) for name in _WORDS)
    end = _End(host, rank, nic, length, clock, number, generation, port, gid, remote_gid, remote, peer)
    return end, way, epoch if epoch is not None else (time or 0) // length, count


def _number(value: Any) -> int | None:
    if isinstance(value, str):
        text = value.strip().strip('"')
        value = int(text) if text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 20 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST else None


def _word(value: Any) -> str | None:
    text = value.strip().strip('"')[:256] if isinstance(value, str) else ""
    return text or None


def _tables(cells: _Cells, said: Mapping[str, Any]) -> Iterator[Batch]:
    ends = list(cells.ends)
    number = {key: at for at, key in enumerate(dict.fromkeys(end.capture for end in ends))}
    of_end = np.array([number[end.capture] for end in ends], np.int64)
    end, way, epoch, count = (np.frombuffer(column, np.int64) for column in (cells.end, cells.way, cells.epoch, cells.bytes))
    yield _captures(list(number), of_end[end], epoch, said)
    names = [end.name if len({each.host for each in ends}) == 1 else f"{end.host}:{end.name}" for end in ends]
    yield _queue_pairs(ends, names)
    order = np.lexsort((count, epoch, way, end))
    end, way, epoch, count = end[order], way[order], epoch[order], count[order]
    last = np.append((np.diff(end) != 0) | (np.diff(way) != 0) | (np.diff(epoch) != 0), True)
    yield from _runs(names, of_end, end[last], way[last], epoch[last], count[last])


def _captures(keys: Sequence[tuple[Any, ...]], number: Ints, epoch: Ints, said: Mapping[str, Any]) -> Batch:
    """A capture lasts from its first row to its last, unless the file says what was captured."""
    first, last = np.full(len(keys), _LARGEST), np.full(len(keys), -_LARGEST)
    np.minimum.at(first, number, epoch)
    np.maximum.at(last, number, epoch)
    begin, epochs = _number(said.get("first_epoch")), _number(said.get("epochs"))
    told = begin is not None and epochs is not None
    columns: dict[str, Sequence[Any]] = {
        "capture_id": list(range(len(keys))),
        "host": [key[0] for key in keys],
        "nic": [key[1] for key in keys],
        "epoch_ns": [key[2] for key in keys],
        "unit": ["bytes"] * len(keys),
        "clock": [key[3] for key in keys],
        "first_epoch": [begin] * len(keys) if told else first.tolist(),
        "epochs": [epochs] * len(keys) if told else (last - first + 1).tolist(),
        "line_bytes_per_s": [_number(said.get("line_bytes_per_s"))] * len(keys),
    }
    if all(key[0] is None for key in keys):
        del columns["host"]  # that of the file
    return Batch("captures", columns)


def _queue_pairs(ends: Sequence[_End], names: Sequence[str]) -> Batch:
    columns: dict[str, Sequence[Any]] = {
        "locator": list(range(len(ends))),
        "queue_pair": names,
        "nic": [end.nic for end in ends],
        "remote_queue_pair": [None if end.remote_number is None else str(end.remote_number) for end in ends],
        "remote_nic": [end.remote_gid for end in ends],
        "gid": [end.gid for end in ends],
        "number": [end.number for end in ends],
        "generation": [end.generation for end in ends],
        "port": [end.port for end in ends],
        "peer": [end.peer for end in ends],
    }
    if any(end.host for end in ends):
        columns["host"] = [end.host for end in ends]
    if any(end.rank is not None for end in ends):
        columns["rank"] = [end.rank for end in ends]
    return Batch("queue_pairs", columns)


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
