"""Bytes of each queue pair of a NIC, epoch by epoch, as an agent on NIC or host counts them (docs/formats/nic-epochs.md).

A format of this project, layout 1: its values are read as arrays and handed on as such, never one by one. The same as a table
in CSV or Parquet is read row by row.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import read_document
from forensics.ingest._shared.packed import Packed, coded_column, number_column
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem
from forensics.ingest.nic_epochs import files, layout

_BATCH_VALUES = 1 << 20
_LARGEST = np.iinfo(np.int64).max
_MOST_EPOCH_NS = 60_000_000_000


def sniff(head: bytes, path: str) -> int:
    """By its magic, or by the names of the columns; those of a Parquet file stand at its end."""
    if head.startswith(layout.MAGIC):
        return 100
    return 90 if files.is_csv(head) else 10 if head.startswith(files.PARQUET) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """The captures of a file of any of the three forms."""
    try:
        with artefact.open() as stream:
            head = stream.read(len(layout.MAGIC))
    except OSError:
        head = b""
    if head.startswith(files.PARQUET):
        yield from files.parquet_items(artefact)
    elif head.startswith(layout.MAGIC) or not head:
        yield from _packed(artefact)
    else:
        yield from files.csv_items(artefact)


def _packed(artefact: Artefact) -> Iterator[Item]:
    """The capture, its queue pairs and their runs; problems for what cannot be trusted."""
    content = read_document(artefact)
    if isinstance(content, Problem):
        yield content
        return
    head = _head(content)
    if isinstance(head, Problem):
        yield head
        return
    text = _text(content, int(head["text_bytes"]))
    if isinstance(text, Problem):
        yield text
        return
    yield Identity(rank=_number(text.get("rank")), host=_word(text.get("host")))
    yield from _length(content, int(head["file_bytes"]))
    yield _capture(text)
    names = yield from _queue_pairs(text)
    yield from _runs(content, head, names)


def _head(content: bytes) -> Any:
    """The first 32 bytes, or why nothing can be trusted."""
    if len(content) < layout.HEAD.itemsize:
        return Problem(
            f"cut inside its head: {len(content)} of {layout.HEAD.itemsize} bytes", f"byte={len(content)}", fatal=True
        )
    head = np.frombuffer(content, layout.HEAD, 1)[0]
    if int(head["major"]) != layout.MAJOR:
        return Problem(f"layout {int(head['major'])} is not known; this reader knows {layout.MAJOR}", "byte=8", fatal=True)
    end = _table(head) + int(head["runs"]) * layout.RUN.itemsize
    if end > len(content):
        return Problem(f"cut: its tables need {end} bytes, there are {len(content)}", f"byte={len(content)}", fatal=True)
    begin = layout.HEAD.itemsize
    if zlib.crc32(content[begin:end], zlib.crc32(content[: begin - 4])) != int(head["checksum"]):
        return Problem("its head or tables were overwritten: the checksum does not match", "byte=28", fatal=True)
    return head


def _table(head: Any) -> int:
    """Where the table of runs begins."""
    return int(layout.HEAD.itemsize + int(head["text_bytes"]))


def _text(content: bytes, length: int) -> dict[str, Any] | Problem:
    """The part of the head that is JSON."""
    begin = layout.HEAD.itemsize
    try:
        text = orjson.loads(content[begin : begin + length])
    except orjson.JSONDecodeError as error:
        return Problem(f"its description is no JSON: {error.msg}", f"byte={begin}", fatal=True)
    epoch = _number(text.get("epoch_ns")) if isinstance(text, dict) else None
    if epoch is None or not 0 < epoch <= _MOST_EPOCH_NS:
        return Problem("its description gives no length of an epoch", f"byte={begin}", fatal=True)
    return dict(text)


def _length(content: bytes, expected: int) -> Iterator[Problem]:
    if len(content) < expected:
        yield Problem(f"cut: {len(content)} of {expected} bytes; read up to the cut", f"byte={len(content)}")


def _capture(text: Mapping[str, Any]) -> Batch:
    lost = text.get("lost")
    ranges = [each for each in lost if _is_range(each)] if isinstance(lost, list) else []
    columns: dict[str, Sequence[Any]] = {
        "capture_id": [0],
        "nic": [_word(text.get("nic"))],
        "epoch_ns": [_number(text["epoch_ns"])],
        "unit": [_word(text.get("unit")) or "bytes"],
        "clock": [_word(text.get("clock"))],
        "first_epoch": [_number(text.get("first_epoch"))],
        "epochs": [_number(text.get("epochs"))],
        "lost": [orjson.dumps(ranges).decode() if ranges else None],
        "line_bytes_per_s": [_number(text.get("line_bytes_per_s"))],
    }
    return Batch("captures", columns)


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_number(each) is not None for each in value)


def _number(value: Any) -> int | None:
    """A whole number that fits into a table."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST else None


def _word(value: Any) -> str | None:
    return value[:256] if isinstance(value, str) and value else None


def _queue_pairs(text: Mapping[str, Any]) -> Generator[Item, None, list[str | None]]:
    """Rows of `queue_pairs`; returns their names by place, None for an entry that cannot be read."""
    entries = text.get("queue_pairs")
    entries = entries if isinstance(entries, list) else []
    nic = _word(text.get("nic"))
    names = [_name(nic, entry) for entry in entries]
    known = [(place, entry) for place, (entry, name) in enumerate(zip(entries, names, strict=True)) if name]
    unknown = len(entries) - len(known)
    if unknown:
        yield Problem(f"{unknown} queue pairs without a number", f"byte={layout.HEAD.itemsize}")
    if known:
        columns: dict[str, Sequence[Any]] = {
            "locator": [place for place, _ in known],
            "queue_pair": [names[place] for place, _ in known],
            "nic": [nic] * len(known),
            "remote_queue_pair": [_text_of(_number(entry.get("remote_number"))) for _, entry in known],
            "remote_nic": [_word(entry.get("remote_gid")) for _, entry in known],
            "gid": [_word(entry.get("gid")) for _, entry in known],
        }
        columns |= {key: [_number(entry.get(key)) for _, entry in known] for key in ("number", "generation", "port", "peer")}
        yield Batch("queue_pairs", columns)
    return names


def _text_of(number: int | None) -> str | None:
    return None if number is None else str(number)


def _name(nic: str | None, entry: Any) -> str | None:
    """`device/number`, with the generation when the number was used before, as logs of the collector call it."""
    number = _number(entry.get("number")) if isinstance(entry, dict) else None
    if number is None:
        return None
    generation = _number(entry.get("generation")) or 1
    label = f"{nic or 'nic'}/{number}"
    return label if generation <= 1 else f"{label}.{generation}"


def _runs(content: bytes, head: Any, names: Sequence[str | None]) -> Iterator[Item]:
    """Runs that lie in the file; together they hold no more than the file does, so that none can be stated many times."""
    table = np.frombuffer(content, layout.RUN, int(head["runs"]), _table(head))
    first, room, batch, size = _table(head) + table.nbytes, len(content), list[tuple[int, Any]](), 0
    for place, run in enumerate(table):
        values = _values(content, run, first, room, len(names))
        if isinstance(values, str):
            yield Problem(f"run {place}: {values}", f"byte={_table(head) + place * layout.RUN.itemsize}")
            continue
        room -= values.nbytes
        batch.append((place, values))
        size += len(values)
        if size >= _BATCH_VALUES:
            yield _batch(table, batch, names)
            batch, size = [], 0
    if batch:
        yield _batch(table, batch, names)


def _values(content: bytes, run: np.void, first: int, room: int, pairs: int) -> npt.NDArray[np.unsignedinteger] | str:
    """The values of a run, cut where the file is; a text says why there are none."""
    width, count, offset = int(run["width"]), int(run["count"]), int(run["offset"])
    if width not in layout.WIDTHS or int(run["direction"]) >= len(layout.DIRECTIONS) or int(run["queue_pair"]) >= pairs:
        return "an unknown width, direction or queue pair"
    if offset < first or int(run["first_epoch"]) > _LARGEST - len(content):
        return "does not lie behind the tables, or its epochs are out of range"
    there = max(min(count, (len(content) - offset) // width), 0)
    if there * width > room:
        return "more values than the file has bytes"
    if not there:
        return "its values lie behind the cut" if count else "no values"
    values = np.frombuffer(content, f"<u{width}", there, offset)
    return "a value is out of range" if width == 8 and bool((values > _LARGEST).any()) else values


def _batch(table: Any, batch: Sequence[tuple[int, Any]], names: Sequence[str | None]) -> Batch:
    places = np.array([place for place, _ in batch])
    taken = table[places]
    none = np.zeros(len(places), np.bool_)
    lists = tuple(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY).decode() for _, values in batch)
    return Batch(
        "nic_epochs",
        {
            "capture_id": number_column(none.astype(np.int64), none),
            "queue_pair": coded_column(taken["queue_pair"].astype(np.int64), names),
            "direction": coded_column(taken["direction"].astype(np.int64), layout.DIRECTIONS),
            "first_epoch": number_column(taken["first_epoch"].astype(np.int64), none),
            "values": Packed(len(places), np.arange(len(places), dtype=np.int32), None, lists),
        },
    )


INGESTER = Ingester("nic_epochs", "nic_epochs", sniff, rows)
