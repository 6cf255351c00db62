"""Communicators of dumps and of shim logs that are the same one: by their members, and by the calls themselves.

The name of a process group is not that of NCCL's communicator, and one call of torch may be several of NCCL. The two count
alike where every number that both have is the same kind of call with as many elements, and no other count would fit as well, or
where several ranks have both a dump and a log that end with the same number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from duckdb import DuckDBPyConnection

from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator, Operation, Position

# Calls of torch that are one call of NCCL each; a barrier reduces a number of its own.
_KINDS = {
    "all_reduce": "all_reduce",
    "barrier": "all_reduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all_gather_base": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
}
# Their elements are counted alike on both sides.
_COUNTED = frozenset({"all_reduce", "broadcast", "reduce", "all_gather_base", "all_gather_into_tensor"})
_SHIFTS = (-2, -1, 1, 2)
# Ranks with both a dump and a log that end alike, for calls that look all alike to be numbered alike.
_LEAST_ENDS = 3

_CALLS = """
SELECT sequence, ltrim(min(kind), '_'), min(count),
       min(kind) = max(kind) AND count(*) = count(DISTINCT rank) AND NOT bool_or(is_p2p OR group_call IS NOT NULL)
FROM latest_call WHERE communicator = $label AND sequence IS NOT NULL GROUP BY sequence
"""

_Calls = Mapping[int, tuple[str, int | None]]
"""Kind and elements by number."""


def unified(connection: DuckDBPyConnection, groups: Sequence[Communicator]) -> tuple[Communicator, ...]:
    """The communicators, with the positions of shim logs in those of dumps where the two are proven to be the same.

    The communicator of the logs stays, for its flows and its pairs, and shows nothing of its collectives any more.
    """
    found = {group.label: group for group in groups}
    for dumped, logged in _of_same_members(groups):
        both = dumped.positions.keys() & logged.positions.keys()
        agree = all(_agrees(logged.positions[rank], dumped.positions[rank]) for rank in both)
        if agree and _same_numbers(_calls(connection, dumped.label), _calls(connection, logged.label), ends=len(both)):
            found[dumped.label] = _with_logs(dumped, logged)
            idle = {rank: replace(place, pending=None, operation=None) for rank, place in logged.positions.items()}
            found[logged.label] = replace(logged, positions=idle)
    return tuple(found.values())


def _of_same_members(groups: Iterable[Communicator]) -> list[tuple[Communicator, Communicator]]:
    """Pairs of a dumped and a logged communicator that alone of their kind have these members."""
    used = [group for group in groups if group.positions and group.backend == "nccl" and group.confidence == "read"]
    kinds = {family: [group for group in used if group.family is family] for family in (Family.RECORDER, Family.SHIM)}
    count = Counter((group.family, frozenset(group.members)) for group in used)
    logged = {frozenset(group.members): group for group in kinds[Family.SHIM]}
    return [
        (group, logged[members])
        for group in kinds[Family.RECORDER]
        if (members := frozenset(group.members)) in logged
        and count[Family.RECORDER, members] == count[Family.SHIM, members] == 1
    ]


def _agrees(logged: Position, dumped: Position) -> bool:
    """Whether a log and a dump of one rank, taken at any two moments of a standstill, say the same."""
    return logged.entered == dumped.entered


def _calls(connection: DuckDBPyConnection, label: str) -> _Calls | None:
    """Calls that are one of NCCL each; None when there is another one."""
    rows = connection.execute(_CALLS, {"label": label}).fetchall()
    if not rows or any(kind not in {*_KINDS, *_KINDS.values()} or not single for _, kind, _, single in rows):
        return None
    return {sequence: (kind, count) for sequence, kind, count, _ in rows}


def _same_numbers(dumped: _Calls | None, logged: _Calls | None, ends: int) -> bool:
    """Whether the calls fit as they are numbered: from the first one on, in this way only, or up to their ends.

    `ends` ranks have both a dump and a log, which end with the same number: of several ranks that is no chance.
    """
    if not dumped or not logged or not _fit(dumped, logged, 0):
        return False
    first = min(dumped) == 1 == min(logged)
    return first or ends >= _LEAST_ENDS or not any(_fit(dumped, logged, shift) for shift in _SHIFTS)


def _fit(dumped: _Calls, logged: _Calls, shift: int) -> bool:
    shared = [number for number in dumped if number + shift in logged]
    return bool(shared) and all(_is_same(dumped[number], logged[number + shift]) for number in shared)


def _is_same(call: tuple[str, int | None], other: tuple[str, int | None]) -> bool:
    counted = call[0] in _COUNTED and call[1] is not None and other[1] is not None
    return _KINDS.get(call[0], call[0]) == other[0] and (not counted or call[1] == other[1])


def _with_logs(dumped: Communicator, logged: Communicator) -> Communicator:
    """What a rank of which only a log is here is in: the first call that somebody is known to wait in."""
    missing = {rank: place for rank, place in logged.positions.items() if rank not in dumped.positions}
    both = {**missing, **dumped.positions}
    stuck = [place.pending for place in dumped.pending if place.pending is not None]
    least = min(place.entered for place in both.values())
    if both.keys() >= set(dumped.members) and any(place.entered > least for place in both.values()):
        stuck.append(least + 1)
    at = min(stuck, default=None)
    also = {
        rank: replace(place, also=(*place.also, logged.positions[rank].source)) if rank in logged.positions else place
        for rank, place in dumped.positions.items()
    }
    return replace(
        dumped,
        positions={**also, **{rank: _waiting(place, at) for rank, place in missing.items()}},
        captured={**{rank: at_ns for rank, at_ns in logged.captured.items() if rank in missing}, **dumped.captured},
        cut=(dumped.cut - missing.keys()) | (logged.cut & missing.keys()),
    )


def _waiting(place: Position, at: int | None) -> Position:
    """Nothing shows that its calls are complete: it waits in the call `at` when it made it."""
    if at is None or place.entered < at:
        return replace(place, done=0, pending=None, operation=None)
    call = place.operation or Operation("operation", "", None, None, place.source)
    return replace(place, done=0, pending=at, operation=call)
