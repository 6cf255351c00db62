"""Work that the job gives to one rank: evaluation, logging or saving on rank 0, for which the others wait at a barrier.

Another rank in its place would have the work as well. Three things mark it: the rank comes late to calls of this kind and in
time to those that recur between them (twice as often; a barrier moves no data, and as often is enough); the others have
little to do before such a call; and it has always been so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

from forensics.rules.reductions.arrivals.arrivals import Arrival, Series

# Between two calls of the duty another kind of call recurs, as many times at least.
_LEAST_BETWEEN, _LEAST_BETWEEN_BARRIERS = 2, 1
# A call among those between, to which the rank came later than the others by chance.
_MOST_LATE = 0.1
# What the others need before the call, of what the rank needs: on a busy host their last call and the optimizer take a quarter.
_MOST_OF_OTHERS = 1 / 3


def is_duty(rank: int, kind: str, calls: Sequence[Arrival], group: Sequence[Series], least_ns: float) -> bool:
    """Whether the rank is late to these calls of a kind by work of its own; `group` are all series of the same members.

    A lateness below `least_ns` is none.
    """
    least = _LEAST_BETWEEN_BARRIERS if kind.lstrip("_") == "barrier" else _LEAST_BETWEEN
    between = [series for _, _, series in group if len(series) >= least * len(calls)]
    if not any(_is_on_time(rank, series, least_ns) for series in between):
        return False
    order = sorted((call for _, _, series in group for call in series), key=lambda call: call.at_ns[rank])
    times = [call.at_ns[rank] for call in order]
    shares = [
        _others_work(rank, call, order[place - 1]) for call in calls if (place := bisect_left(times, call.at_ns[rank])) > 0
    ]
    return 2 * len(shares) > len(calls) and median(shares) <= _MOST_OF_OTHERS


def _is_on_time(rank: int, series: Sequence[Arrival], least_ns: float) -> bool:
    late = sum(call.lateness(rank) >= least_ns for call in series)
    return late <= _MOST_LATE * len(series)


def _others_work(rank: int, call: Arrival, before: Arrival) -> float:
    """Time of the usual other member since the call before, as a part of the time of this one."""
    own = {each: _own_time(each, call, before) for each in call.behind}
    usual = median(time for other, time in own.items() if other != rank)
    return usual / own[rank] if own[rank] > 0 else 1.0


def _own_time(rank: int, call: Arrival, before: Arrival) -> int:
    """ns from a call to the arrival at the next; where only ends are known, who came last came when it ended."""
    since_end = call.behind[rank] - max(call.behind.values()) if call.on_own_clocks else 0
    return call.at_ns[rank] - before.at_ns[rank] + since_end
