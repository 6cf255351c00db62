"""Entries of a Flight Recorder dump as columns by key, read from the entries in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

# What the columns are made from. Keys of a damaged dump may all differ: others are not kept.
_KEYS = (
    "frames", "record_id", "id", "pg_id", "process_group", "thread_name", "thread_id", "collective_seq_id", "p2p_seq_id",
    "seq_id", "op_id", "profiling_name", "time_created_ns", "time_created_us", "duration_ms", "input_sizes", "input_dtypes",
    "output_sizes", "state", "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "timeout_ms", "is_p2p",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entries:
    """The values of `count` entries under each key that any of them has, None where one lacks it."""

    count: int
    columns: Mapping[str, Sequence[Any]]

    def __contains__(self, key: str) -> bool:
        return key in self.columns

    def values(self, *keys: str) -> list[Any]:
        """The values of the first key that is there at all."""
        found = next((self.columns[key] for key in keys if key in self.columns), None)
        return [None] * self.count if found is None else list(found)


def read_entries(entries: Sequence[dict[str, Any]]) -> Entries:
    """Take the entries apart. Touching each dictionary once matters: together they do not fit into a processor's cache."""
    if entries and set(map(len, entries)) == {len(entries[0])} and len(entries[0]) > 1:
        names = list(entries[0])
        try:
            rows = list(map(itemgetter(*names), entries))
            return Entries(len(rows), dict(zip(names, zip(*rows, strict=True), strict=True)))
        except KeyError:
            pass
    present = [key for key in _KEYS if any(key in entry for entry in entries)]
    return Entries(len(entries), {key: [entry.get(key) for entry in entries] for key in present})
