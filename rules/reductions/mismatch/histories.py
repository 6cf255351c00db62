"""What one rank called in one communicator, in order, with the place in the job's own code that each call came from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.mismatch.disagreements import UNEVEN
from forensics.rules.reductions.stacks.call_paths import CallPath, call_paths

# Calls before the mismatched one that are looked at: more than the records of a usual ring.
LONGEST = 20_000

Number = tuple[str, int]
"""Communicator and sequence."""


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """One collective of one rank; `place` are the job's own frames that led to it, innermost first, empty when not recorded."""

    rank: int
    sequence: int
    kind: str
    signature: str
    place: CallPath
    state: str
    source: str

    @property
    def where(self) -> str:
        """The call with its line, for a sentence."""
        return f"{self.kind} at {self.place[0]}" if self.place else self.kind


_CALLS = """
SELECT o.communicator, o.rank, o.sequence, o.kind, CASE WHEN list_contains($uneven, o.kind) THEN o.kind
       ELSE o.kind || ' ' || coalesce(o.input_sizes, '') || ' ' || coalesce(o.dtype, '') END,
       o.call_path, o.state, s.path, o.locator
FROM latest_call o JOIN sources s USING (source_id)
WHERE NOT coalesce(o.is_p2p, false) AND {condition}
QUALIFY row_number() OVER (PARTITION BY o.communicator, o.rank, o.sequence ORDER BY o.record_id, o.locator) = 1
ORDER BY o.communicator, o.rank, o.sequence
"""
_OF_RANK = "o.communicator = $communicator AND o.rank = $rank AND o.sequence BETWEEN $sequence - $longest AND $sequence + 1"
_AT_NUMBERS = "(o.communicator, o.sequence) IN (SELECT (unnest($communicators), unnest($sequences)))"


def calls_of(connection: DuckDBPyConnection, communicator: str, rank: int, sequence: int) -> Mapping[int, PlacedCall]:
    """Calls of one rank by sequence, up to the one after `sequence`."""
    asked = {"communicator": communicator, "rank": rank, "sequence": sequence, "longest": LONGEST}
    return {call.sequence: call for _, call in _read(connection, _OF_RANK, asked)}


def calls_at(connection: DuckDBPyConnection, numbers: Collection[Number]) -> Mapping[Number, Mapping[int, PlacedCall]]:
    """Calls of all ranks under each number, by rank."""
    found: dict[Number, dict[int, PlacedCall]] = {number: {} for number in numbers}
    asked = {"communicators": [label for label, _ in numbers], "sequences": [sequence for _, sequence in numbers]}
    for communicator, call in _read(connection, _AT_NUMBERS, asked):
        found[communicator, call.sequence][call.rank] = call
    return found


def _read(connection: DuckDBPyConnection, condition: str, asked: Mapping[str, object]) -> Iterator[tuple[str, PlacedCall]]:
    rows = connection.execute(_CALLS.format(condition=condition), {"uneven": list(UNEVEN), **asked}).fetchall()
    paths = call_paths(connection, (row[5] for row in rows if row[5] is not None))
    places = {key: own_code(path) for key, path in paths.items()}
    for communicator, rank, sequence, kind, signature, call_path, state, path, locator in rows:
        placed = places.get(call_path, ())
        yield communicator, PlacedCall(rank, sequence, kind, signature, placed, state, f"{path}#entry={locator}")


def own_code(path: CallPath) -> CallPath:
    """The frames of the job's own code."""
    return tuple(entry for entry in path if entry.origin == "app")
