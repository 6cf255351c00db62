"""Records of the rings of a shim log, and exactly how many are missing (docs/formats/shim-log.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.file import MOST_BYTES, ShimFile, Table, text

Numbers = npt.NDArray[np.int64]
_MOST_RECORDS = MOST_BYTES // layout.RECORD.itemsize
_NEVER = (1 << 63) - 1
# Of the records of a log, what must be left out at least: less saves nothing, and a history that is whole shows more.
_LEAST_UNREAD = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """One ring that was used: its records in the order they were written.

    `places` are entry numbers in the records section, `numbers` count from 0 over the life of the ring. `written` records were
    begun or published; `overwritten` of them made room for newer ones, `torn` were being written, `beyond` lie behind the cut.
    `unread` are sound ones before the part of the history that was asked for, and `owner` is who made the last of them.
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
    unread: int = 0
    owner: str | None = None


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


def newest(rings: Sequence[Ring], since: int) -> list[Ring]:
    """The rings from a tick on. Rare records are kept, and calls back to the last one of each communicator.

    Without that call its rank would seem to have made none there. Where most records are from then on, all are kept.
    """
    calls = min((_last_calls(ring) for ring in rings if ring.ring_class == "calls"), default=since)
    begins = {"calls": min(since, calls), "flows": since, "samples": since}
    found = [_from(ring, begins[ring.ring_class]) if ring.ring_class in begins else ring for ring in rings]
    unread = sum(ring.unread for ring in found)
    return found if unread >= _LEAST_UNREAD * sum(len(ring.records) for ring in rings) else list(rings)


def _last_calls(ring: Ring) -> int:
    """When the last call was entered that the ring holds of each communicator: the earliest of these moments."""
    calls = ring.records[ring.records["kind"] <= max(layout.OPERATIONS)]
    _, from_end = np.unique(calls["comm"][::-1], return_index=True)
    return int(calls["time"][len(calls) - 1 - from_end].min()) if len(calls) else _NEVER


def _from(ring: Ring, since: int) -> Ring:
    """The ring without the records before the first one of that tick or later; at least one is kept."""
    late = ring.records["time"] >= np.uint64(max(0, since))
    begin = int(late.argmax()) if late.any() else max(0, len(late) - 1)
    if not begin:
        return ring
    parts = {name: getattr(ring, name)[begin:] for name in ("records", "places", "numbers")}
    return replace(ring, unread=begin, owner=threads(ring)[begin - 1], **parts)


def threads(ring: Ring) -> list[str | None]:
    """The thread of each record: those before the first `thread` record left belong to an owner nobody knows any more."""
    marks = np.flatnonzero(ring.records["kind"] == layout.THREAD)
    ids = ring.records["payload"][marks][:, 8:16].copy().view(ring.records["sequence"].dtype).ravel()
    owner = np.searchsorted(marks, np.arange(len(ring.records)), side="right")
    labels = [_label(ring, int(number)) for number in ids]
    is_last = len(ring.numbers) and ring.numbers[0] >= ring.owned_from
    before = _label(ring, ring.thread) if is_last else ring.owner
    owners = [before, *labels]
    return [owners[each] for each in owner.tolist()]


def _label(ring: Ring, number: int) -> str:
    return f"{ring.thread_name or 'thread'} ({number})" if number == ring.thread else f"thread ({number})"
