"""Ranks that came to one collective from different places of the program: a rank-local branch, or a wrong root.

Kind, size and type agree, so the numbers alone show nothing; the call path tells. Every member votes with the place in the
job's own code that its call came from: frames that the recorder kept, else the stacks of the ranks that are in it. A divergence
that the job went through before and got past is how it is made (a root that calls from another line, pipeline stages).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.calls.semantics import stem_of
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches
from forensics.rules.reductions.mismatch.histories import PlacedCall, calls_at, calls_of, own_code
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.call_paths import CallPath
from forensics.rules.reductions.stacks.samples import Stacks, StacksByRank, library_modules
from forensics.rules.reductions.waits.graph import RootKind, Wait, WaitGraph

# Fewer than two thirds on one side leave open which side is wrong.
MAJORITY = 2 / 3
LEAST_VOTERS = 3


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the paths of `odd` and `majority` part for good: `calls` under the number `sequence`, by rank.

    `stuck_at` is the number in which somebody waits. `innermost` says that the very line of the call differs, not only one of
    its callers. `shift` is `missing` or `extra` when the odd ranks' next or previous place is where their peers are.
    `recorded` is false when stacks stated the places.
    """

    communicator: str
    sequence: int
    stuck_at: int
    calls: Mapping[int, PlacedCall]
    majority: tuple[int, ...]
    odd: tuple[int, ...]
    innermost: bool
    shift: str | None = None
    recorded: bool = True


Divergences = NewType("Divergences", tuple[Divergence, ...])
"""Operations that everyone joined, from different places."""


@reduction
def divergences(calls: Calls, graph: WaitGraph, samples: StacksByRank, mismatches: BlockingMismatches) -> Divergences:
    """Find the divergences in operations that everyone joined and somebody is stuck in; open mismatches say more than paths."""
    skip = {mismatch.communicator for mismatch in mismatches}
    waits = {
        (wait.communicator, wait.sequence): wait
        for root in graph.roots
        if root.kind is RootKind.ALL_JOINED
        for wait in root.waits
        if wait.communicator and not wait.peers and wait.communicator not in skip
    }
    entered = calls_at(calls.connection, waits) if waits else {}
    found = (_of_wait(calls.connection, waits[number], entered[number], samples) for number in sorted(waits))
    return Divergences(tuple(divergence for divergence in found if divergence))


def _of_wait(
    connection: DuckDBPyConnection, wait: Wait, calls: Mapping[int, PlacedCall], samples: Mapping[int, Stacks]
) -> Divergence | None:
    if any(call.place for call in calls.values()):
        found = _vote(wait, calls)
        return _first_of_run(connection, found) if found else None
    found = _vote(wait, dict(_seen_in_stacks(wait, calls, samples)))
    return replace(found, recorded=False) if found else None


def _seen_in_stacks(
    wait: Wait, calls: Mapping[int, PlacedCall], samples: Mapping[int, Stacks]
) -> Iterator[tuple[int, PlacedCall]]:
    """Ranks that wait in the call and whose every stack sample shows them at one place, inside that kind of call.

    Hosts run ahead of their devices: a stack inside another call is not where this one was made.
    """
    shown = [samples[rank].main[-1:] for rank in sorted(wait.waiting) if rank in samples]
    libraries = library_modules(sample for newest in shown for sample in newest)
    for rank in wait.waiting.keys() & calls.keys():
        found = samples.get(rank)
        inside = found is not None and not found.moved and found.latest and _inside(found.latest, calls[rank].kind)
        if found and found.latest and inside:
            own = tuple(entry for entry in own_code(found.latest.path) if entry.module not in libraries)
            yield rank, replace(calls[rank], place=own, source=found.main[-1].source)


def _inside(activity: Activity, kind: str) -> bool:
    if activity.communicating and activity.call_frame is not None:
        return stem_of(activity.call_frame.function) in ("", stem_of(kind))
    return activity.communicating or activity.below_autograd


def _vote(wait: Wait, calls: Mapping[int, PlacedCall]) -> Divergence | None:
    """Compare the lines of the calls first; where these agree, the functions on the way to them."""
    voters = {rank: call for rank, call in calls.items() if call.place}
    for innermost in (True, False):
        camps = {rank: _ballot(call.place, innermost) for rank, call in voters.items()}
        ranked = Counter(camps.values()).most_common()
        if len(ranked) < 2:
            continue
        first, votes = ranked[0]
        if len(voters) < LEAST_VOTERS or votes < MAJORITY * len(voters):
            return None
        majority = tuple(sorted(rank for rank, camp in camps.items() if camp == first))
        odd = tuple(sorted(set(voters) - set(majority)))
        return Divergence(wait.communicator, wait.sequence, wait.sequence, voters, majority, odd, innermost)
    return None


def _ballot(place: CallPath, innermost: bool) -> tuple[object, ...]:
    """File, function and line of the call; or the functions only, for a caller's line differs for many a good reason."""
    if innermost:
        return place[0].plain
    return tuple(entry.plain[:2] for entry in place)


def _first_of_run(connection: DuckDBPyConnection, found: Divergence) -> Divergence | None:
    """Go back to where the paths parted without meeting again; None when they had parted like this before and met again."""
    odd = calls_of(connection, found.communicator, found.odd[0], found.sequence)
    usual = calls_of(connection, found.communicator, found.majority[0], found.sequence)
    parted = [number for number in sorted(odd.keys() & usual.keys()) if number <= found.sequence]
    begin = found.sequence
    for number in reversed(parted):
        if _same(odd[number], usual[number], found.innermost):
            break
        begin = number
    if _recurs(odd, usual, [number for number in parted if number < begin], begin, found.innermost):
        return None
    parting = (found.communicator, begin)
    calls = {rank: call for rank, call in calls_at(connection, [parting])[parting].items() if call.place}
    first = _ballot(usual[begin].place, found.innermost)
    majority = tuple(sorted(rank for rank, call in calls.items() if _ballot(call.place, found.innermost) == first))
    # Not all odd ranks need to have parted there, and a call may have left no frames.
    whole = set(found.odd) <= calls.keys() - set(majority)
    if not whole or len(majority) < MAJORITY * len(calls):
        begin, calls, majority = found.sequence, dict(found.calls), found.majority
    return replace(found, sequence=begin, calls=calls, majority=majority, shift=_shift(odd, usual, begin))


def _same(one: PlacedCall, two: PlacedCall, innermost: bool) -> bool:
    """Whether two calls come from one place; a call without frames counts as the same: absence is no divergence."""
    return not (one.place and two.place) or _ballot(one.place, innermost) == _ballot(two.place, innermost)


def _recurs(
    odd: Mapping[int, PlacedCall], usual: Mapping[int, PlacedCall], before: Sequence[int], at: int, innermost: bool
) -> bool:
    """Whether these two places already met under one number that both got past."""
    here = (_ballot(odd[at].place, innermost), _ballot(usual[at].place, innermost))
    return any(
        (_ballot(odd[n].place, innermost), _ballot(usual[n].place, innermost)) == here
        for n in before
        if odd[n].place and usual[n].place
    )


def _shift(odd: Mapping[int, PlacedCall], usual: Mapping[int, PlacedCall], at: int) -> str | None:
    """Move the odd rank's calls by one: is its next call where the peers are now, or the peers' next where it is now?"""
    later, ahead = odd.get(at + 1), usual.get(at + 1)
    extra = later is not None and bool(later.place) and later.place == usual[at].place
    missing = ahead is not None and bool(ahead.place) and ahead.place == odd[at].place
    return None if extra == missing else "extra" if extra else "missing"
