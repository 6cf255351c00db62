"""Who in a circle of waits made one call less or more than its peers: calls in one communicator between calls in another.

Calls that all look alike show no mismatch: an extra one is answered by the peers' next call, and only the end of a step finds
the ranks in each other's way. But the ranks of a communicator run one program: between two calls of another communicator they
share, each makes as many calls as its peers, and as many as in the steps before. Hosts that run ahead of their devices launch
all of these calls, and the circle is one of the devices: all members entered each operation, in orders that contradict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.calls.positions import Communicator, Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.waits.graph import Root, RootKind, WaitGraph
from forensics.rules.reductions.waits.launch_orders import is_order_inversion

# Pairs of communicators that are tried for one circle.
_MOST_PAIRS = 40
# Without earlier intervals, fewer than one rank in so many may be odd.
_ONE_IN = 3


@dataclass(frozen=True, slots=True)
class Miscount:
    """Ranks `odd` made `made` calls in `communicator` between calls `anchor` - 1 and `anchor` of `measure`; the others `usual`.

    `as_before` is set when earlier intervals had the usual number too, on all ranks. `is_open` is set when the odd ranks never
    made call `anchor`: they went past where it should be. `source` is the last call of the measure that the odd rank made.
    """

    communicator: str
    measure: str
    anchor: int
    odd: tuple[int, ...]
    voters: tuple[int, ...]
    made: int
    usual: int
    as_before: bool
    source: str
    is_open: bool = False

    @property
    def skipped_measure(self) -> bool:
        """Whether the odd ranks left out a call of the measure itself: then they made the calls of two intervals in one."""
        return self.usual > 1 and self.made >= 2 * self.usual

    @property
    def repeated_measure(self) -> bool:
        """Whether the odd ranks made a call of the measure too much: then there was nothing between it and the one before."""
        return self.made == 0

    @property
    def kind(self) -> str:
        """`missing` or `extra`; `either` when the call that would tell was never made."""
        if self.is_open:
            return "either"
        if self.repeated_measure:
            return "extra"
        return "missing" if self.skipped_measure or self.made < self.usual else "extra"

    @property
    def where(self) -> str:
        """The communicator in which a call is missing or too many."""
        return self.measure if self.skipped_measure or self.repeated_measure else self.communicator


_COUNTS = """
WITH counted AS (
    SELECT o.rank, o.communicator, o.sequence, s.path || '#entry=' || o.locator AS source,
           max(CASE WHEN o.communicator = $counted THEN o.sequence END)
               OVER (PARTITION BY o.rank ORDER BY o.record_id, o.locator) AS calls
    FROM latest_call o JOIN sources s USING (source_id)
    WHERE o.communicator IN ($counted, $measure) AND NOT coalesce(o.is_p2p, false) AND list_contains($ranks, o.rank)
        AND o.record_id IS NOT NULL AND o.sequence IS NOT NULL
)
SELECT sequence, rank, min(calls), min(source) FROM counted WHERE communicator = $measure AND calls IS NOT NULL
GROUP BY sequence, rank ORDER BY sequence, rank
"""

_TOTALS = """
SELECT o.rank, max(o.sequence) FROM latest_call o
WHERE o.communicator = $counted AND NOT coalesce(o.is_p2p, false) AND list_contains($ranks, o.rank) GROUP BY o.rank
"""

_Interval = tuple[int, Mapping[int, int], Mapping[int, str]]
"""Number of the measure's call at its end; calls made in it, and the end's place in the dump, by rank."""
_Calls = dict[int, dict[int, int]]
_Sources = dict[int, dict[int, str]]


Miscounts = NewType("Miscounts", tuple[Miscount, ...])
"""Ranks of circles of waits that made a call less or more than their peers."""


@reduction
def miscounts(calls: Calls, groups: Communicators, graph: WaitGraph) -> Miscounts:
    """At most one finding for each circle of waits: the first measure that tells."""
    found = []
    for root in graph.roots:
        if root.kind is RootKind.CYCLE or is_order_inversion(groups, root):
            stated = next(_of_root(calls.connection, groups, root), None)
            if stated is not None:
                found.append(stated)
    return Miscounts(tuple(found))


def _of_root(connection: DuckDBPyConnection, groups: Sequence[Communicator], root: Root) -> Iterator[Miscount]:
    involved = set(root.ranks).union(*(wait.waiting for wait in root.waits if wait.missing))
    waited = {wait.communicator for wait in root.waits}
    # Two calls launched the other way round count as one of them too few: a third one has to tell.
    tangled = waited if root.kind is RootKind.INVERTED else set[str]()
    for counted, measure, ranks in _pairs(groups, waited, involved, tangled):
        calls, sources = _calls(connection, counted, measure, ranks)
        intervals = _intervals(calls, sources)
        found = _at_first_difference(counted, measure, intervals, calls)
        if found is None and intervals and not tangled:
            totals = connection.execute(_TOTALS, {"counted": counted, "ranks": ranks}).fetchall()
            found = _at_the_end(counted, measure, intervals, calls, sources, dict(totals))
        if found is not None and set(found.odd) <= involved:
            yield found


def _pairs(
    groups: Sequence[Communicator], waited: set[str], involved: set[int], tangled: set[str]
) -> list[tuple[str, str, list[int]]]:
    """Communicators to count in, and to count by, with the ranks they share: one of them is waited in, both have the ranks.

    None of `tangled` is counted by. Many voters come first, then what was called more often: its calls are counted by those of
    the other.
    """
    used = [group for group in groups if group.positions and involved & set(group.members)]
    pairs = []
    for counted in used:
        for measure in (group for group in used if group.label not in tangled):
            ranks = sorted(set(counted.members) & set(measure.members))
            is_waited = counted.family is measure.family and not waited.isdisjoint((counted.label, measure.label))
            if counted.label != measure.label and is_waited and len(ranks) > 1 and involved & set(ranks):
                pairs.append((-len(ranks), -_latest(counted), counted.label, measure.label, ranks))
    return [(counted, measure, ranks) for _, _, counted, measure, ranks in sorted(pairs)[:_MOST_PAIRS]]


def _latest(group: Communicator) -> int:
    return max(position.entered for position in group.positions.values())


def _calls(connection: DuckDBPyConnection, counted: str, measure: str, ranks: list[int]) -> tuple[_Calls, _Sources]:
    """Number of the last counted call before each call of the measure, and that call's place, by its number and rank."""
    calls: _Calls = {}
    sources: _Sources = {}
    asked = {"counted": counted, "measure": measure, "ranks": ranks}
    for anchor, rank, count, source in connection.execute(_COUNTS, asked).fetchall():
        calls.setdefault(anchor, {})[rank] = count
        sources.setdefault(anchor, {})[rank] = source
    return calls, sources


def _intervals(calls: _Calls, sources: _Sources) -> list[_Interval]:
    """Intervals between consecutive calls of the measure that at least two ranks made, in order."""
    found: list[_Interval] = []
    for before, anchor in pairwise(sorted(calls)):
        made = {rank: count - calls[before][rank] for rank, count in calls[anchor].items() if rank in calls[before]}
        if anchor == before + 1 and len(made) > 1:
            found.append((anchor, made, sources[anchor]))
    return found


def _at_the_end(
    counted: str, measure: str, intervals: Sequence[_Interval], calls: _Calls, sources: _Sources, totals: Mapping[int, int]
) -> Miscount | None:
    """Who went past the usual number of calls without the measure's next call.

    A step has phases: what is made between two calls of one phase is no measure for the next. So all recorded intervals count.
    Who came to that call too early, or is one call past it, may as well have changed the order of the two: left to FX130.
    """
    usual = _usual(intervals)
    anchor = next((number for number in sorted(calls) if 0 < len(calls[number]) < len(totals)), None)
    if not usual or anchor is None or anchor - 1 not in calls or set(calls[anchor - 1]) != set(totals):
        return None
    before = calls[anchor - 1]
    past = {rank: totals[rank] - before[rank] for rank in totals.keys() - calls[anchor].keys()}
    past = {rank: count for rank, count in past.items() if count > usual + 1}
    if not past or 2 * len(past) > len(totals):
        return None
    odd = tuple(sorted(past))
    source = sources[anchor - 1][odd[0]]
    voters = tuple(sorted(totals))
    return Miscount(counted, measure, anchor, odd, voters, past[odd[0]], usual, len(intervals) > 1, source, is_open=True)


def _at_first_difference(counted: str, measure: str, intervals: Sequence[_Interval], calls: _Calls) -> Miscount | None:
    """The first interval in which the ranks differ, when what is usual is known: by earlier intervals, or a clear majority."""
    place = next((i for i, (_, made, _) in enumerate(intervals) if len(set(made.values())) > 1), None)
    if place is None:
        return None
    anchor, made, sources = intervals[place]
    earlier = _usual(intervals[:place]) if place else _at_the_start(calls)
    usual = earlier if earlier in made.values() else _majority(made)
    if usual is None:
        return None
    odd = tuple(sorted(rank for rank, count in made.items() if count != usual))
    if 2 * len(odd) > len(made) or len({made[rank] for rank in odd}) > 1:
        return None
    as_before = earlier == usual
    if not as_before and _ONE_IN * len(odd) >= len(made):
        return None
    return Miscount(counted, measure, anchor, odd, tuple(sorted(made)), made[odd[0]], usual, as_before, sources[odd[0]])


def _at_the_start(calls: _Calls) -> int | None:
    """The one number of calls of all ranks before the measure's first call: calls are numbered from the start of the job."""
    counts = set(calls.get(1, {}).values())
    return counts.pop() if len(counts) == 1 else None


def _usual(intervals: Sequence[_Interval]) -> int | None:
    """The one number of calls of all ranks in all intervals; None where it varies, as between the phases of a step."""
    counts = {count for _, made, _ in intervals for count in made.values()}
    return counts.pop() if len(counts) == 1 else None


def _majority(made: Mapping[int, int]) -> int | None:
    (usual, count), *_ = Counter(made.values()).most_common(1)
    return usual if 2 * count > len(made) else None
