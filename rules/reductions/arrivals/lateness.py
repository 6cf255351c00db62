"""Who comes last to collectives, by how much, how regularly and since when: what a moving job loses to one rank.

The time lost to a rank at one collective is the gap between its arrival and the one before it, as far as it arose since the
call before: without this rank the others would have gone on that much earlier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations
from math import exp, fsum, lgamma, log, log1p

import numpy as np
import numpy.typing as npt

from forensics.case.database import rows_of
from forensics.rules.reductions.arrivals.arrivals import Series, arrivals
from forensics.rules.reductions.arrivals.duties import is_duty
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.onset import onset_of
from forensics.rules.reductions.progress.liveness import Liveness, Motion

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Below a millisecond the order of arrival is the scheduler's.
LEAST_GAP_NS = 1_000_000
# Of the time between calls: what is less is jitter.
_LEAST_PART = 0.1
# Calls on either side of a change; the rank is half as late before, at most.
_LEAST_SIDE, _EARLIER = 5, 0.5
# Of a lateness: what lies between two calls when it arose there, and not at a call before of the same step.
_AROSE = 0.5
# Of a lateness: what the device is the cause of is four fifths of it at least.
_MOST_BY_HOST = 0.2
# Of what a rank became later, the time between calls must have grown by this part, else something else hides it.
_LEAST_FOLLOWED = 0.3
# Of calls, and times as long as all other times between them: pauses, as those of saves, which make no call come later.
_MOST_PAUSES, _PAUSED = 0.01, 2.0
# The first quarter of a record is start-up; with the rest a rank must have been able to be late five times.
_LEAST_SEEN = 8
_LINKS = """
SELECT DISTINCT o.rank, m.rank FROM operations o JOIN members m ON m.communicator = o.communicator AND m.position = o.peer
WHERE o.is_p2p AND o.rank IS NOT NULL AND o.rank <> m.rank
UNION SELECT DISTINCT m.rank, o.rank FROM operations o JOIN members m ON m.communicator = o.communicator AND m.position = o.peer
WHERE o.is_p2p AND o.rank IS NOT NULL AND o.rank <> m.rank
"""
_UNSEEN = """
SELECT DISTINCT m.rank FROM members m JOIN communicators c USING (communicator)
WHERE c.backend = 'gloo' AND c.size > 1 AND c.size < (SELECT count(DISTINCT rank) FROM members)
  AND (SELECT count(*) FROM communicators b WHERE b.backend = 'gloo' AND b.size = c.size) > 1
"""


@dataclass(frozen=True, slots=True)
class Lateness:
    """One rank at one kind of call of one communicator.

    `late` of `calls` calls had this rank last by a material gap; calls so soon after the one before that none could arise are
    not counted. `lost_ns` is the sum of these gaps, `share` their part of the time that the calls span, `typical_ns` the median
    gap. With an onset (`since_ns`, on the rank's clock) only the calls since then are counted, and `before_ns` is the median
    gap before it; None: it was late from the first recorded call.
    `absorbed` marks an onset that the time between calls did not follow, `is_bound` gaps that are only known to be at most that
    long, `on_own_clocks` a comparison of lengths instead of arrivals, `is_duty` work that the job gives to this rank alone.
    `on_device`: its host made the late calls in time, by the clock that it has with other members. `within` is its
    lateness in a group whose other members are late elsewhere because of it.
    """

    rank: int
    communicator: str
    kind: str
    members: tuple[int, ...]
    calls: int
    late: int
    lost_ns: int
    share: float
    typical_ns: int
    source: str
    since_ns: int | None = None
    before_ns: int | None = None
    absorbed: bool = False
    is_bound: bool = False
    on_own_clocks: bool = False
    is_duty: bool = False
    on_device: bool = False
    within: Lateness | None = None

    @property
    def chance(self) -> float:
        """How probable it is that one of equal members is last so often."""
        return chance_of_last(self.late, self.calls, len(self.members))

    @property
    def jumped(self) -> float:
        """How many times as late it is since its onset to all calls, which no order of arrival makes; 0 where not to all."""
        is_always = self.before_ns is not None and self.late == self.calls
        return self.typical_ns / max(self.before_ns or 0, LEAST_GAP_NS) if is_always else 0.0


def chance_of_last(late: int, calls: int, members: int) -> float:
    """How probable it is that one of equal members is last so often; of two, one always is in three calls of five."""
    if members < 2:
        return 1.0
    alone = 1 / members
    # By logarithms: thousands of calls have more orders than a float can count.
    ways = lgamma(calls + 1)
    tail = fsum(
        exp(ways - lgamma(n + 1) - lgamma(calls - n + 1) + n * log(alone) + (calls - n) * log1p(-alone))
        for n in range(late, calls + 1)
    )
    return min(1.0, tail * members)


@dataclass(frozen=True, slots=True)
class Latenesses:
    """Ranks that came late, most lost first, and what could have shown it.

    `linked` are pairs of ranks that send to each other; `seen` the ranks whose arrivals at enough calls are known, not only
    bounded, `calls` how many calls that were, `least_ns` the lateness that could be seen in all of them.
    """

    found: tuple[Lateness, ...] = ()
    linked: frozenset[tuple[int, int]] = frozenset()
    seen: frozenset[int] = frozenset()
    calls: int = 0
    least_ns: int = LEAST_GAP_NS


@reduction
def lateness(calls: Calls, liveness: Liveness) -> Latenesses:
    """Sum up the material gaps (a millisecond, and a tenth of the time between calls) by rank, unless the job stands still.

    Messages over gloo are in no recorder: ranks of such a job that are in groups of a part of it may send to each other.
    """
    if liveness.motion is Motion.STALLED:
        return Latenesses()
    found = of_series(arrivals(calls.connection))
    unseen = [rank for (rank,) in rows_of(calls.connection, "members", _UNSEEN)]
    links = rows_of(calls.connection, "operations", _LINKS)
    return replace(found, linked=frozenset([*links, *permutations(unseen, 2)]))


def of_series(series: Iterable[Series]) -> Latenesses:
    """The same of arrivals, without links."""
    found: list[Lateness] = []
    seen: set[int] = set()
    least = [LEAST_GAP_NS]
    counted = 0
    alike: dict[tuple[int, ...], list[Series]] = defaultdict(list)
    for each in series:
        alike[each.ranks].append(each)
    for calls in chain.from_iterable(alike.values()):
        if len(calls) >= _LEAST_SEEN and not (calls.is_aligned or calls.is_bound.any()):
            seen.update(calls.ranks)
            counted += len(calls)
            least.append(int(calls.coarse_ns.max()))
        # Of whoever is never late by so much nothing is found.
        last = np.unique(calls.last[calls.by_ns >= LEAST_GAP_NS]).tolist()
        of_ranks = [item for column in last if (item := _of_rank(column, calls))]
        found += (replace(item, is_duty=_is_duty(item, calls, alike[calls.ranks])) for item in of_ranks)
    ordered = sorted(found, key=lambda item: (-item.lost_ns, item.rank, item.communicator, item.kind))
    return Latenesses(tuple(ordered), seen=frozenset(seen), calls=counted, least_ns=max(least))


def _is_duty(item: Lateness, calls: Series, group: Sequence[Series]) -> bool:
    newest = len(calls) - _first(len(calls))
    least_ns = _LEAST_PART * item.typical_ns
    return item.since_ns is None and is_duty(calls.ranks.index(item.rank), calls, newest, group, least_ns)


def _first(calls: int) -> int:
    """The first of so many calls that counts: the first arrivals of a run wait for start-up, not for a slow rank."""
    return calls // 4


def _of_rank(column: int, calls: Series) -> Lateness | None:
    gaps = calls.lateness(column).astype(np.float64)
    times = calls.at_ns[:, column].astype(np.float64)
    onset = _onset(gaps, times)
    first = onset if onset is not None else _first(len(calls))
    if len(calls) - first < 2:
        return None
    span = times[-1] - times[first]
    least = max(LEAST_GAP_NS, _LEAST_PART * span / (len(calls) - first - 1))
    late = first + np.flatnonzero(gaps[first:] >= least)
    if not len(late):
        return None
    lost = _lost(gaps, times, late)
    typical = int(np.median(gaps[late]))
    return Lateness(
        rank=calls.ranks[column],
        communicator=calls.communicator,
        kind=calls.kind,
        members=calls.ranks,
        calls=_chances(calls.met_ns(column), first, late, typical),
        late=len(late),
        lost_ns=int(lost),
        share=min(1.0, float(lost / span)) if span > 0 else 0.0,
        typical_ns=typical,
        source=calls.source(int(late[-1]), column),
        since_ns=None if onset is None else int(times[onset]),
        before_ns=None if onset is None else int(np.median(gaps[:onset])),
        absorbed=onset is not None and not _followed(gaps, times, onset),
        is_bound=bool(calls.is_bound[late].any()),
        on_own_clocks=calls.on_own_clocks,
        on_device=_on_device(column, calls, late),
    )


def _chances(met: Ints, first: int, late: Ints, typical_ns: int) -> int:
    """Calls at which the rank could come so late: between two calls of one burst no such lateness has time to arise.

    `met` is when the last member came to each: where another one was late, this rank had the time to be so too.
    """
    could = np.diff(met.astype(np.float64), prepend=-np.inf)[first:] >= _AROSE * typical_ns
    could[late - first] = True
    return int(np.count_nonzero(could))


def _onset(gaps: Floats, times: Floats) -> int | None:
    """The call from which on the rank is late; None where too few steps lie before it: calls of one step are late together."""
    onset = onset_of(gaps.tolist(), (_LEAST_SIDE, _LEAST_SIDE), _came_later)
    if onset is None:
        return None
    # Calls of one step are late together: one look at it. A look is a lateness that arose since the call before.
    late, since = gaps[onset:], np.diff(times[onset - 1 :])
    looks = np.count_nonzero((late >= LEAST_GAP_NS) & (since >= _AROSE * late))
    return onset if onset * looks >= _LEAST_SIDE * len(late) else None


def _on_device(column: int, calls: Series, late: Ints) -> bool:
    """Whether the host made the late calls so early that the device was late by itself; not where some are not dated."""
    if calls.issued_after is None or calls.is_bound[late].any():
        return False
    gaps = calls.lateness(column)[late]
    by_host = np.minimum(calls.issued_after[late, column], gaps)
    return bool(by_host.sum() <= _MOST_BY_HOST * gaps.sum())


def _lost(gaps: Floats, times: Floats, late: Ints) -> float:
    """ns of gaps that arose since the calls before: what a rank is late by since then was lost there already.

    Ends that a watchdog found in one round are one moment: the gaps of these calls count together.
    """
    moments, moment = np.unique(times, return_inverse=True)
    since = np.diff(moments, prepend=-np.inf)
    lost = np.bincount(moment[late], gaps[late], len(moments))
    return float(np.minimum(lost, since).sum())


def _came_later(before: float, after: float, first: float) -> bool:
    return after >= LEAST_GAP_NS and before <= _EARLIER * after and first > before


def _followed(gaps: Floats, times: Floats, onset: int) -> bool:
    """Whether calls came further apart when the rank became late: a lag that others' waiting hides costs nothing.

    What a run takes to start, once, makes no call before it come later than those after. Nor does a pause (a checkpoint) that
    lies on one side alone: none that is longer than all on the other side, and what the rank is late by, counts for more.
    """
    first = _first(len(times)) if onset - _first(len(times)) >= _LEAST_SIDE else 0
    before, after, late = np.diff(times[first:onset]), np.diff(times[onset:]), gaps[onset + 1 :]
    later = np.minimum(late, after).mean() - gaps[:onset].mean()
    return bool(_longer(before, after, late.max()) >= _LEAST_FOLLOWED * later)


def _longer(before: Floats, after: Floats, late_ns: float) -> float:
    """By how much times between calls are longer than before, on average, pauses compared with pauses.

    Few of these lie among many calls, by chance more of them on one side: each kind counts as often on both.
    """
    before, after = np.minimum(before, after.max()), np.minimum(after, before.max() + late_ns)
    count, longer = len(before) + len(after), 0.0
    for least in (*_pauses(np.concatenate([before, after])), 0.0):
        kept, own, since = before < least, before[before >= least], after[after >= least]
        # A kind that lies on one side alone may be the next one, longer or shorter than it was.
        if len(own) and len(since):
            longer += (len(own) + len(since)) / count * float(since.mean() - own.mean())
            before, after = before[kept], after[after < least]
    return longer


def _pauses(between: Floats) -> list[float]:
    """What the shortest pause of each kind lasts among times between calls, longest kind first; none that stands not apart."""
    longest = np.sort(between)[::-1][: int(_MOST_PAUSES * len(between)) + 1]
    found: list[float] = longest[:-1][longest[:-1] >= _PAUSED * longest[1:]].tolist()
    return found
