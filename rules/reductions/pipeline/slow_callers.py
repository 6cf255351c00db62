"""Hosts whose ranks all make their calls several times as slowly in the long steps of a job as in its usual ones.

Between two calls that follow on each other at once the thread of a rank does only its own work on a core. What that takes
does not depend on other ranks: who waits for somebody, or for its device, waits for milliseconds, and not between all calls.
Where it takes longer on every rank of one host, and on no other, the cores of that host are slow or taken (Pulse 7.2.2), or its
program does more in these steps: tracing, debug output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NewType

import numpy as np

from forensics.model import Anomaly, Belief, Cause, Component, Confidence, Evidence, Finding, Granularity, Impact, StageRef
from forensics.rules.reductions.hardware.cores import BusyHosts
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.steps.records import UNKNOWN, Flags, Ints
from forensics.rules.reductions.steps.times import Floats, Steps, StepTimes

# Of the times from one call to the next of a step: most wait for the device, the shortest for nothing.
_AT_ONCE, _FEWEST_CALLS = 0.1, 20
# Longer ones are not at once: a thread that is a queue ahead of its device waits for each kernel.
_MOST_NS = 200_000.0
# Times what is usual: in each long step on a slow host, and in any step on any other one.
_SLOW, _SOUND = 2.0, 1.4
# Of its steps: of one that began before the host became slow the shortest times are the usual ones.
_NEARLY_ALL = 0.75
# Of the ranks of each host: records of others may be cut.
_LEAST_SEEN = 0.5
# Long steps, ranks of the host, and other hosts: one rank may have work that the others have no part in.
_LEAST_LONG, _LEAST_RANKS, _LEAST_OTHERS = 3, 2, 2
_RIVAL = "tracing or debug output that was on for its ranks in these steps leaves the same evidence"


@dataclass(frozen=True, slots=True)
class SlowCaller:
    """A host whose `ranks` take `factor` times as long from one call to the next in all long steps, as far as recorded.

    `ranks` are all that run there. The `long` ones of `steps` are longer than usual by `lost_ns` in all, `share` of their time.
    Usually a call follows on another after `usual_ns`; on the slowest other host it takes `others` times as long then.
    """

    host: str
    ranks: tuple[int, ...]
    long: int
    steps: int
    factor: float
    usual_ns: float
    others: float
    lost_ns: float
    share: float


SlowCallers = NewType("SlowCallers", tuple[SlowCaller, ...])
"""The one such host, or none."""


@reduction
def slow_callers(times: StepTimes, roster: Roster) -> SlowCallers:
    """Hold the calls of each rank in the long steps against those in its usual ones."""
    long = dict(times.long())
    on: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(roster.ranks):
        if host := roster.host_of(rank):
            on[host].append(rank)
    seen = {host: [rank for rank in ranks if rank in times.ranks] for host, ranks in on.items()}
    whole = all(len(seen[host]) >= _LEAST_SEEN * len(ranks) for host, ranks in on.items())
    if len(long) < _LEAST_LONG or times.is_traced or len(on) <= _LEAST_OTHERS or not whole:
        return SlowCallers(())
    factors = {rank: _factors(times.ranks[rank], [*long]) for ranks in seen.values() for rank in ranks}
    slow = [host for host, ranks in seen.items() if all(_is_slow(*factors[rank][1:]) for rank in ranks)]
    sound = [host for host, ranks in seen.items() if all(_is_sound(*factors[rank][1:]) for rank in ranks)]
    if len(slow) != 1 or len(sound) + 1 != len(on) or len(seen[slow[0]]) < _LEAST_RANKS:
        return SlowCallers(())
    lost, took = sum(long.values()), float(times.length[np.isin(times.number, [*long])].sum())
    by_host = {host: float(np.median([np.nanmedian(factors[rank][1]) for rank in ranks])) for host, ranks in seen.items()}
    usual = float(np.median([factors[rank][0] for rank in seen[slow[0]]]))
    others = max(factor for host, factor in by_host.items() if host != slow[0])
    ranks, count = tuple(on[slow[0]]), len(times.number)
    return SlowCallers((SlowCaller(slow[0], ranks, len(long), count, by_host[slow[0]], usual, others, lost, lost / took),))


def _factors(steps: Steps, long: Sequence[int]) -> tuple[float, Floats, Floats]:
    """What a call takes after another usually (ns), and how many times that in the long steps and in the others."""
    taken, is_long = _at_once(steps), np.isin(steps.number, long)
    usual = float(np.nanmedian(taken[~is_long])) if np.isfinite(taken[~is_long]).any() else float("nan")
    return usual, taken[is_long] / usual, taken[~is_long] / usual


def _at_once(steps: Steps) -> Floats:
    """By step, how long the thread takes from one call to the next where nothing holds it up; NaN where that is not seen."""
    places: Ints = steps.begin[:, None] + np.arange(steps.order.shape[1])
    made = steps.record.enqueued_ns[places]
    if places.shape[1] < _FEWEST_CALLS:
        return np.full(len(places), np.nan)
    apart = np.quantile(np.diff(made, axis=1).astype(np.float64), _AT_ONCE, axis=1)
    return np.where((made == UNKNOWN).any(axis=1) | (apart <= 0) | (apart > _MOST_NS), np.nan, apart)


def _is_slow(long: Floats, others: Floats) -> bool:
    return _mostly(long >= _SLOW) and _mostly(others <= _SOUND)


def _is_sound(long: Floats, others: Floats) -> bool:
    return _mostly(long <= _SOUND) and _mostly(others <= _SOUND)


def _mostly(seen: Flags) -> bool:
    return bool(len(seen)) and float(seen.mean()) >= _NEARLY_ALL


def findings_of_callers(callers: SlowCallers, busy: BusyHosts) -> Iterator[Finding]:
    """Name the host; what its kernel says of its cores is a second source."""
    for each in callers:
        taken = busy.get(each.host)
        shown = Evidence(taken.statement, taken.source) if taken else Evidence(_RIVAL, supports=False)
        yield Finding(
            ranks=each.ranks,
            cause=Cause.CPU_CONTENTION,
            stage=StageRef(component=Component.HOST),
            belief=Belief.BEHIND_AND_BUSY,
            confidence=Confidence.LIKELY if taken else Confidence.SUSPECT,
            evidence=(*_evidence(each), shown),
            granularity=Granularity.HOST,
            anomaly=Anomaly.FAIL_SLOW,
            impact=Impact(round(each.lost_ns), round(each.share, 3), each.long, "arrival"),
            next_steps=(
                f"check what else runs on the cores of {each.host}, their clocks, and CPU limits of the job there",
                f"check whether a profiler or debug output is on for the ranks of {each.host} alone",
            ),
        )


def _evidence(each: SlowCaller) -> Iterator[Evidence]:
    often = f"in the {each.long} long steps of {each.steps}"
    yield Evidence(
        f"every recorded rank of {each.host} takes {each.factor:.1f} times as long from one call to the next, where nothing "
        f"holds it up, {often} ({each.usual_ns / 1e3:.0f} us in the others)"
    )
    yield Evidence(f"ranks of all other hosts take {each.others:.1f} times as long at most in the same steps")
    yield Evidence(f"these steps are {100 * each.share / (1 - each.share):.0f} % longer than usual")
