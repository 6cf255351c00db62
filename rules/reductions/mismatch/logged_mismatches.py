"""Where ranks issued different operations under one number, by logs: NCCL's COLL lines, watchdogs, and fingerprints of torch.

NCCL counts the calls of a communicator alike on all members, but releases since 2.27 leave the number at 0 within one node, and
calls of one group may share a number: communicators in which a process used a number twice are not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.positions import RecordedCommunicators
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.logs.positions import LoggedGroup, LogPosition
from forensics.rules.reductions.mismatch.disagreements import Call, Disagreement, shift, vote

LoggedMismatches = NewType("LoggedMismatches", tuple[Disagreement, ...])
"""The first mismatched number of each communicator, where nothing but logs tells of calls."""

_EVEN = ("all_reduce", "broadcast", "reduce", "all_gather_base", "reduce_scatter_base")
"""Operations to which all members bring one size, by the name that a watchdog gives them."""
_ROWS = """
SELECT c.communicator, c.origin, c.rank, c.host, c.pid, c.number, c.kind, c.sizes, c.dtype, c.root, c.operation,
       s.path || '#line=' || c.locator
FROM log_calls c JOIN sources s USING (source_id) ORDER BY c.communicator, s.path, c.locator
"""


@dataclass(frozen=True, slots=True)
class _Made:
    """A call of a log; `key` names its process where no rank stands in the line."""

    rank: int | None
    key: tuple[str | None, int | None]
    number: int | None
    kind: str
    sizes: str | None
    dtype: str | None
    root: int | None
    operation: int | None
    source: str

    def call(self, is_sized: bool) -> Call:
        root = f"root {self.root}" if self.root is not None else None
        operation = f"op {self.operation}" if self.operation is not None else None
        words = (self.sizes, self.dtype, root, operation) if is_sized else ()
        sizes = " ".join(word for word in words if word)
        return Call(self.kind, sizes, f"{self.kind} {sizes}", None, "issued", None, self.source)


@reduction
def logged_mismatches(connection: DuckDBPyConnection, heard: Logged, recorded: RecordedCommunicators) -> LoggedMismatches:
    """Compare the calls of each communicator, number by number; none where recorded calls tell more."""
    if recorded:
        return LoggedMismatches(())
    made: dict[tuple[str, str], list[_Made]] = defaultdict(list)
    for communicator, origin, rank, host, pid, *values in rows_of(connection, "log_calls", _ROWS):
        made[origin, communicator].append(_Made(rank, (host, pid), *values))
    ranks = {(group.label, row.process): rank for group in heard.groups for rank, row in group.positions.items()}
    found = []
    for (origin, name), calls in sorted(made.items()):
        if origin == "fingerprint":
            found.append(_by_fingerprints(name, calls))
        else:
            found.append(
                _by_numbers(name, _histories(calls, {key: rank for (label, key), rank in ranks.items() if label == name}))
            )
    found += [_by_timeouts(group) for group in heard.groups if group.origin == "watchdog"]
    return LoggedMismatches(tuple(one for one in found if one is not None))


def _histories(calls: list[_Made], ranks: Mapping[object, int]) -> dict[int, dict[int, Call]]:
    """Calls of each rank by number; none at all where a number was used twice."""
    counted = Counter((call.rank, call.key, call.number) for call in calls)
    if max(counted.values(), default=0) > 1:
        return {}
    found: dict[int, dict[int, Call]] = defaultdict(dict)
    for call in calls:
        rank = call.rank if call.rank is not None else ranks.get(call.key)
        if rank is not None and call.number is not None:
            found[rank][call.number] = call.call(is_sized=True)
    return found


def _by_numbers(name: str, histories: Mapping[int, Mapping[int, Call]]) -> Disagreement | None:
    for number in sorted({number for history in histories.values() for number in history}):
        calls = {rank: history[number] for rank, history in histories.items() if number in history}
        if len({call.signature for call in calls.values()}) > 1:
            return _decided(name, number, calls, histories)
    return None


def _decided(name: str, number: int, calls: Mapping[int, Call], histories: Mapping[int, Mapping[int, Call]]) -> Disagreement:
    majority = vote({rank: call.signature for rank, call in calls.items()})
    odd = tuple(sorted(set(calls) - set(majority)))
    signed = {rank: {at: call.signature for at, call in histories[rank].items()} for rank in (*majority[:1], *odd)}
    shifts = {shift(signed[majority[0]], signed[rank], number) for rank in odd} if majority else set()
    return Disagreement(name, number, calls, majority, odd, shifts.pop() if len(shifts) == 1 else None)


def _by_timeouts(group: LoggedGroup) -> Disagreement | None:
    """Watchdogs that gave up on the first number that anybody gave up on, in a group that has a name of its own."""
    waiting = {rank: row for rank, row in group.positions.items() if row.timed_out is not None and row.kind is not None}
    number = min((row.timed_out or 0 for row in waiting.values()), default=0)
    calls = {rank: _given_up(row) for rank, row in waiting.items() if row.timed_out == number}
    if len({call.signature for call in calls.values()}) < 2:
        return None
    majority = vote({rank: call.signature for rank, call in calls.items()})
    return Disagreement(group.label, number, calls, majority, tuple(sorted(set(calls) - set(majority))), None)


def _given_up(row: LogPosition) -> Call:
    kind = (row.kind or "").lstrip("_")
    sizes = str(row.count) if kind in _EVEN and row.count is not None else ""
    return Call(kind, sizes, f"{kind} {sizes}", None, "issued", None, row.source)


def _by_fingerprints(name: str, made: list[_Made]) -> Disagreement | None:
    """torch says itself that they differ; kinds and shapes tell in what, else the numbers do."""
    is_sized = all(call.sizes is not None for call in made)
    calls = {call.rank: call.call(is_sized) for call in made if call.rank is not None}
    numbers = {call.number for call in made if call.number is not None}
    signed = {call.rank: f"{call.number} {calls[call.rank].signature}" for call in made if call.rank is not None}
    if len(set(signed.values())) < 2:
        return None
    # Ranks that are not heard may be the majority.
    majority = vote(signed) if set(calls) == set(range(len(calls))) else ()
    odd = tuple(sorted(set(calls) - set(majority)))
    return Disagreement(name, min(numbers, default=0), calls, majority, odd, None)
