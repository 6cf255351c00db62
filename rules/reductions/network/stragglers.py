"""Which rank the others of a collective wait for, stated without comparing clocks, and whether it was late by itself.

A rank that comes last to a collective finds everything there: its buffers wait for nobody, while those of all others wait for
it (Mycroft section 7.1: the abnormal rank begins last, its peers have already sent). What a rank waited in an operation is a
length on its own clock, so no two clocks are compared. A rank whose own link out is slow waits at its NIC and is not late.

Members of a group that reduces gradients do the same work. Where a late one waited for messages of its pipeline that came late
against those of its peers, it passes on what another stage lost; where its messages became late without a late one before
them, the time was lost in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.awaited_calls import AwaitedCall, collective_calls
from forensics.rules.reductions.network.channel_flows import turn
from forensics.rules.reductions.network.exchange_waits import exchange_calls

# Of two equal ranks either is last half the time, so that some end of the record favours one of them: a change must be plain.
_CHANGED_CALLS = 10
_CHANGED_SHARE = 0.9
# With fewer calls a change is plain when the rank is late to each since, in two steps at least, by several times what anybody
# was late by before: one long step is an accident, and a duty of its own was there before.
_SUDDEN_CALLS, _SUDDEN_STEPS, _SUDDEN_FACTOR = 5, 2, 5.0
# Late to one call of each step: so many times, and so regularly, is no chance.
_LEAST_TURNS, _EVENLY, _LEAST_IN_TIME = 10, 0.9, 3
# Of a typical lateness of the rank: what is less is jitter between.
_MUCH = 0.5


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that most operations of one kind of a communicator wait for.

    It was last in `late` of the last `calls` operations, since it began to be. In the `counted` ones that show a lateness of
    their own it came `typical_ns` (median) after the one before it, with a median deviation of `spread_ns`, and `lost_ns` in
    all: `share` of the time that they span. `held_ns` is how long (median) chunks that had arrived waited for its GPU beyond
    those of its peers, `usual_ns` what an operation takes (median) once all are there. Of its lateness
    `forward_ns` and `backward_ns` arose before messages that it sent on, `end_ns` after the last of them, and `passed_ns` came
    with messages that it received (sums). `had_onset` says that the record shows it come in time before. `turns` are the calls
    that can show a lateness of its own: all, or one of each step, where it is late to every n-th: the others follow at once.
    """

    rank: int
    communicator: str
    kind: str
    members: tuple[int, ...]
    calls: int
    late: int
    counted: int
    typical_ns: float
    spread_ns: float
    lost_ns: float
    share: float
    held_ns: float
    forward_ns: float
    backward_ns: float
    end_ns: float
    passed_ns: float
    source: str
    had_onset: bool = False
    usual_ns: float = 0.0
    turns: int = 0
    load: float = 1.0

    @property
    def own_ns(self) -> float:
        """What arose in it."""
        return self.forward_ns + self.backward_ns + self.end_ns

    @property
    def own_share(self) -> float:
        """Part of the lateness that did not come with messages of other stages.

        Chunks that had arrived wait for its own GPU and for nobody else's: that much of its lateness is its own, and messages
        that came late meanwhile are those that wait for the same GPU.
        """
        held = min(1.0, max(0.0, self.held_ns) / self.typical_ns) if self.typical_ns else 0.0
        return max(held, self.own_ns / (self.own_ns + self.passed_ns) if self.own_ns else 0.0)


# What a message waited for its other end: a sender for credit, a receiver for what is sent.
_MESSAGES = """
SELECT rank, sends, position, peer, number, max(end_ns), max(CASE WHEN sends THEN credit_ns ELSE wire_ns END)
FROM ended_flows WHERE kind = 'p2p' AND number IS NOT NULL
GROUP BY rank, sends, position, peer, number ORDER BY rank, max(end_ns), sends, peer, number
"""

_Role = tuple[bool, int, int, int]
"""Of a message: sent, places of the two ends in the pipeline, number. The same for ranks that do the same work."""
_Messages = Mapping[int, Sequence[tuple[_Role, int, float]]]
"""Of each rank, in the order in which they ended: role, end (ns), and what it waited for its other end (ns)."""


def stragglers(connection: DuckDBPyConnection, least_ns: int) -> tuple[Straggler, ...]:
    """The straggler of each communicator and kind in `ended_flows`; lateness below `least_ns` is nobody's."""
    calls = {**collective_calls(connection), **exchange_calls(connection)}
    messages: dict[int, list[tuple[_Role, int, float]]] = defaultdict(list)
    for rank, sends, place, peer, number, end, waited in connection.execute(_MESSAGES).fetchall():
        messages[rank].append(((sends, place, peer, number), end, waited or 0.0))
    found = (_of_group(*key, each, messages, least_ns) for key, each in sorted(calls.items()))
    return tuple(late for late in found if late is not None)


def _of_group(
    communicator: str, kind: str, calls: Sequence[AwaitedCall], messages: _Messages, least_ns: int
) -> Straggler | None:
    ordered = sorted(calls, key=lambda call: (max(call.ends.values()), call.number))
    lost: dict[int, float] = defaultdict(float)
    for call, lateness in _leading(ordered):
        if lateness >= least_ns:
            lost[call.last] += lateness
    if not lost:
        return None
    rank = max(lost, key=lambda each: (lost[each], -each))
    is_late = np.array([call.last == rank and call.lateness(rank) >= least_ns for call in ordered])
    first = turn(is_late)
    plain = len(is_late) - first >= _CHANGED_CALLS and is_late[first:].mean() >= _CHANGED_SHARE
    much = is_late & (np.array([call.lateness(rank) for call in ordered]) >= _MUCH * _typical(ordered, is_late, rank))
    first = first if plain or _is_sudden(ordered, is_late, first) else _first_turn(much)
    ordered, late = ordered[first:], [call for call, is_so in zip(ordered[first:], is_late[first:], strict=True) if is_so]
    counted = list(_leading(ordered))
    by = np.array([lateness for call, lateness in counted if call.last == rank and lateness >= least_ns] or [0.0])
    ends = np.array([call.ends[rank] for call, _ in counted])
    span = float(np.ptp(ends) + np.median(np.diff(ends))) if len(ends) > 1 else 0.0
    typical = float(np.median(by))
    others = [call.held[rank] - float(np.median([v for r, v in call.held.items() if r != rank])) for call in ordered]
    return Straggler(
        rank, communicator, kind, tuple(sorted(calls[0].least)), len(ordered), len(late), len(counted), typical,
        float(np.median(np.abs(by - typical))), float(by.sum()), float(by.sum()) / span if span else 0.0,
        float(np.median(others)), *_blame(rank, ordered, messages, typical),
        max(late, key=lambda call: call.lateness(rank)).source[rank], first > 0,
        float(np.median([min(call.took.values()) for call in ordered])), _turns(much[first:]),
        float(np.median([call.load.get(rank, 1.0) for call in late] or [1.0])),
    )  # fmt: skip


def _typical(calls: Sequence[AwaitedCall], is_late: npt.NDArray[np.bool_], rank: int) -> float:
    """Median ns by which a rank came late where it did; half of all that it came late by arose above it."""
    by = np.sort([call.lateness(rank) for call, is_so in zip(calls, is_late, strict=True) if is_so] or [0.0])
    return float(by[int(np.searchsorted(np.cumsum(by), by.sum() / 2))])


def _turns(is_late: npt.NDArray[np.bool_]) -> int:
    """How many calls can show a lateness: one of every n, where nearly all late calls are n apart."""
    every = _every(is_late)
    return -(-len(is_late) // every) if every else len(is_late)


def _first_turn(is_late: npt.NDArray[np.bool_]) -> int:
    """Where lateness to every n-th call begins, if there is such a rhythm and several of these calls were in time before."""
    every, first = _every(is_late), int(np.argmax(is_late))
    return first if every and first >= _LEAST_IN_TIME * every else 0


def _every(is_late: npt.NDArray[np.bool_]) -> int:
    """How many calls nearly all late ones are apart; 0 where they have no rhythm, or are too few."""
    apart = np.diff(np.flatnonzero(is_late))
    every = int(np.median(apart)) if len(apart) >= _LEAST_TURNS - 1 else 0
    return every if every and (apart == every).mean() >= _EVENLY else 0


def _is_sudden(calls: Sequence[AwaitedCall], is_late: npt.NDArray[np.bool_], first: int) -> bool:
    """Whether the rank is late to all calls from `first` on, by far more than any lateness before."""
    before = [abs(by) for _, by in _leading(calls[:first])]
    since = [by for _, by in _leading(calls[first:])]
    if not before or len(calls) - first < _SUDDEN_CALLS or len(since) < _SUDDEN_STEPS:
        return False
    return bool(is_late[first:].all()) and min(since) >= _SUDDEN_FACTOR * max(before)


def _leading(calls: Sequence[AwaitedCall]) -> Iterator[tuple[AwaitedCall, float]]:
    """Operations with the lateness of their last member; one that ends sooner after another shows the same lateness again."""
    for before, call in zip((None, *calls), calls, strict=False):
        by = call.lateness(call.last)
        if before is None or call.ends[call.last] - before.ends[call.last] >= by:
            yield call, by


def _blame(rank: int, calls: Sequence[AwaitedCall], messages: _Messages, typical: float) -> tuple[float, float, float, float]:
    """Where the lateness of one rank grew: with messages of its forward and backward, after the last, and as they came to it.

    Its messages are dated from the last collective that had ended for all members, each on its own clock. What a message waited
    for its other end came with it, a receive that began late or waited for its own GPU did not.
    """
    members = (rank, *(other for other in calls[0].least if other != rank))
    ends = [[call.ends[other] for call in calls] for other in members]
    when = [{role: end for role, end, _ in messages.get(other, ())} for other in members]
    forward = backward = at_end = passed = reached = 0.0
    segment = -1
    for role, _, waited in messages.get(rank, ()):
        if not all(role in each for each in when):
            continue
        times = [each[role] for each in when]
        begun = min(bisect_right(end, at) for end, at in zip(ends, times, strict=True))
        if begun != segment:
            at_end += max(0.0, typical - reached) if segment > 0 else 0.0
            reached, segment = 0.0, begun
        since = [at - end[begun - 1] for end, at in zip(ends, times, strict=True)] if begun else [0, 0]
        grown = max(0.0, since[0] - float(np.median(since[1:])) - reached)
        reached += grown
        sends, place, peer, _ = role
        came = min(grown, waited)
        passed += came
        if sends == (peer > place):
            forward += grown - came
        else:
            backward += grown - came
    if not forward + backward + at_end + passed:
        at_end = typical
    return forward, backward, at_end, passed
