"""Records of the rings of a shim log, and exactly how many are missing (docs/formats/shim-log.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.file import MOST_BYTES, ShimFile, Table, text

Numbers = npt.NDArray[np.int64]
_MOST_RECORDS = MOST_BYTES // layout.RECORD.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """One ring that was used: its records in the order they were written.

    `places` are entry numbers in the records section, `numbers` count from 0 over the life of the ring. `written` records were
    begun or published; `overwritten` of them made room for newer ones, `torn` were being written, `beyond` lie behind the cut.
    """

    ring_class: str
    thread: int
    thread_name: str
    owned_from: int
    records: Table
    places: Numbers
    numbers: Numbers
    written: int
    overwritten: int
    torn: int
    beyond: int


def read_rings(log: ShimFile) -> list[Ring]:
    """All rings that were ever used and lie in the file."""
    entries = log.tables.get(layout.RINGS)
    records = log.tables.get(layout.RECORDS)
    if entries is None or records is None:
        return []
    declared = int(next((s["count"] for s in log.head["sections"] if int(s["kind"]) == layout.RECORDS), 0))
    found = []
    left = declared  # rings share no records: those that say so would be read over and over
    for entry in entries:
        left -= int(entry["records"]) if entry["thread"] else 0
        ring = _read_ring(entry, records, declared) if entry["thread"] and left >= 0 else None
        if ring is not None:
            found.append(ring)
        if left < 0:
            break
    return found


def _read_ring(entry: np.void, records: Table, declared: int) -> Ring | None:
    first, size, kind = int(entry["first"]), int(entry["records"]), int(entry["ring_class"])
    if kind >= len(layout.RING_CLASSES) or not 0 < size <= _MOST_RECORDS or size & (size - 1) or first + size > declared:
        return None
    head = int(entry["head"]) if entry["head"] < layout.BUSY else 0
    present = records[first : first + size]
    index = np.arange(len(present), dtype=np.uint64)
    sequence = present["sequence"].astype(np.uint64)
    low = (sequence & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    whole = (sequence != 0) & (sequence < np.uint64(layout.BUSY)) & (low == present["check"])
    whole &= (sequence - np.uint64(1)) % np.uint64(size) == index
    newest = int(sequence[whole].max()) if whole.any() else 0
    written = max(head, newest, _begun(sequence, index, size, head))
    whole &= sequence + np.uint64(size) > np.uint64(written)
    chosen = np.flatnonzero(whole)
    chosen = chosen[np.argsort(sequence[chosen], kind="stable")]
    return _counted(entry, present, chosen, sequence[chosen], written)


def _begun(sequence: npt.NDArray[np.uint64], index: npt.NDArray[np.uint64], size: int, head: int) -> int:
    """A record that was begun and not published has destroyed the one in its place: it counts as written."""
    busy = (sequence & np.uint64(layout.BUSY)) != 0
    number = sequence & np.uint64(layout.BUSY - 1)
    sound = busy & (number == np.uint64(head + 1)) & ((number - np.uint64(1)) % np.uint64(size) == index)
    return head + 1 if sound.any() else 0


def _counted(entry: np.void, present: Table, chosen: Numbers, sequence: npt.NDArray[np.uint64], written: int) -> Ring:
    first, size = int(entry["first"]), int(entry["records"])
    expected = np.arange(max(0, written - size), written) % size
    beyond = int((expected >= len(present)).sum())
    return Ring(
        ring_class=layout.RING_CLASSES[int(entry["ring_class"])],
        thread=int(entry["thread"]),
        thread_name=text(entry["thread_name"]),
        owned_from=int(entry["owned_from"]),
        records=present[chosen],
        places=chosen.astype(np.int64) + first,
        numbers=sequence.astype(np.int64) - 1,
        written=written,
        overwritten=max(0, written - size),
        torn=len(expected) - beyond - len(chosen),
        beyond=beyond,
    )


def threads(ring: Ring) -> list[str | None]:
    """The thread of each record: those before the first `thread` record left belong to an owner nobody knows any more."""
    marks = np.flatnonzero(ring.records["kind"] == layout.THREAD)
    ids = ring.records["payload"][marks][:, 8:16].copy().view(ring.records["sequence"].dtype).ravel()
    owner = np.searchsorted(marks, np.arange(len(ring.records)), side="right")
    labels = [_label(ring, int(number)) for number in ids]
    before = _label(ring, ring.thread) if len(ring.numbers) and ring.numbers[0] >= ring.owned_from else None
    owners = [before, *labels]
    return [owners[each] for each in owner.tolist()]


def _label(ring: Ring, number: int) -> str:
    return f"{ring.thread_name or 'thread'} ({number})" if number == ring.thread else f"thread ({number})"
