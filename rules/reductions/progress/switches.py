"""Whether ranks that wait in communication were woken between samples: a wait that a moving job ends wakes its main thread.

Measured on torch 2.13 with gloo: a thread in a collective, a receive, a store or a barrier sleeps until it is answered without
a single context switch, whatever other threads of the process do; each answer costs it one to three. Only a signal wakes it
besides, and of signals only those of timers come again and again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.main_threads import of_main_threads
from forensics.rules.reductions.ranks.on_cpu import NS_PER_TICK
from forensics.rules.reductions.stacks.samples import Stacks, StacksByRank, working_threads
from forensics.rules.reductions.waits.messages import MessageWaits


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """The numbers that judge; `REASONS` says why each."""

    standing: int = 1
    moving: int = 6
    timer_slack: float = 1.5
    cpu_share: float = 0.2


REASONS: Mapping[str, str] = {
    "standing": "switches in all intervals together: real hangs had 0 or 1, a sound job in a pause of a garbage collection 2",
    "moving": "three times what such a pause left; a sound job of two steps a second has about 4 in each two seconds",
    "timer_slack": "switches by which a steady timer is off in an interval: one at its ends, a half for the time of reading",
    "cpu_share": "a thread that uses more of a CPU polls for its answer: it is scheduled whatever the job does",
}

_SAMPLES = """
SELECT p.rank, p.time_ns, p.switches, p.cpu_ticks, p.state, p.wchan, p.timed, s.path
FROM processes p JOIN sources s USING (source_id)
WHERE {thread} AND NOT p.is_child AND p.rank IS NOT NULL AND p.switches IS NOT NULL AND p.time_ns IS NOT NULL
ORDER BY p.rank, p.time_ns, s.path
"""


class Pace(StrEnum):
    """What the switches of a waiting rank say of its own wait."""

    STILL = "still"
    MOVING = "moving"


@dataclass(frozen=True, slots=True)
class WaitPace:
    """One waiting rank: its pace, None where the switches do not tell, the reason, and the newest of the samples.

    `counts` are context switches of the main thread in each interval between samples.
    """

    rank: int
    pace: Pace | None
    reason: str
    counts: tuple[int, ...]
    source: str


@dataclass(frozen=True, slots=True)
class _Sample:
    """The main thread of a rank at one time."""

    time_ns: int
    switches: int
    ticks: int | None
    state: str | None
    wchan: str | None
    timed: bool | None
    source: str


WaitPaces = NewType("WaitPaces", Mapping[int, WaitPace])
"""By rank, of ranks that every stack sample found waiting for others, and that were looked at through /proc more than once."""


@reduction
def wait_paces(connection: DuckDBPyConnection, stacks: StacksByRank, messages: MessageWaits) -> WaitPaces:
    """The pace of each rank that waits.

    `moving` means that the rank's waits end: it proves nothing for ranks it does not communicate with. `still` covers the time
    between the samples and no more: a sound job in a longer pause is still, too.
    """
    # Not those of devices: whoever waits for one asks it again and again, or sleeps in its driver, whatever the job does.
    waiting = {rank for rank, found in stacks.items() if waits_for_others(found)} | messages
    samples: dict[int, list[_Sample]] = defaultdict(list)
    main = of_main_threads(working_threads(stacks))
    for rank, *sample in rows_of(connection, "processes", _SAMPLES.format(thread=main)):
        if rank in waiting:
            samples[rank].append(_Sample(*sample))
    limits = PaceLimits()
    return WaitPaces({rank: _pace(rank, seen, limits) for rank, seen in samples.items() if len(seen) > 1})


def waits_for_others(found: Stacks) -> bool:
    """Whether every sample found the main thread in communication, in a store or below the autograd engine."""
    return bool(found.main) and all(sample.activity.waits_for_others for sample in found.main)


def _pace(rank: int, samples: Sequence[_Sample], limits: PaceLimits) -> WaitPace:
    pairs = [(one, two) for one, two in pairwise(samples) if two.time_ns > one.time_ns]
    counts = tuple(two.switches - one.switches for one, two in pairs)
    spans = tuple(two.time_ns - one.time_ns for one, two in pairs)
    pace, reason = _judged(samples, counts, spans, limits)
    return WaitPace(rank, pace, reason, counts, samples[-1].source)


def _judged(
    samples: Sequence[_Sample], counts: Sequence[int], spans: Sequence[int], limits: PaceLimits
) -> tuple[Pace | None, str]:
    total = sum(counts)
    seen = f"{total} context switches of its main thread in {sum(spans) / 1e9:.1f} s"
    if not spans or min(counts) < 0:
        return None, "its samples are of different processes or of one moment"
    if why := _polls(samples, sum(spans), limits):
        return None, f"{seen}, but {why}"
    if total <= limits.standing:
        return Pace.STILL, seen
    if total < limits.moving:
        return None, f"{seen}: more than a standing rank has, fewer than a moving one"
    if samples[-1].timed is not False and (len(counts) < 2 or _even(counts, spans, limits.timer_slack)):
        return None, f"{seen}, as a timer would wake it"
    return Pace.MOVING, seen


def _polls(samples: Sequence[_Sample], span_ns: int, limits: PaceLimits) -> str | None:
    """Why the switches of a thread are its own doing: it runs, or sleeps for a time of its own and asks again."""
    first, last = samples[0].ticks, samples[-1].ticks
    share = (last - first) * NS_PER_TICK / span_ns if first is not None and last is not None else 0.0
    if share > limits.cpu_share or all(sample.state == "R" for sample in samples):
        return "it polls: it uses a CPU while it waits"
    if any("nanosleep" in (sample.wchan or "") for sample in samples):
        return "it polls: it sleeps for a time of its own"
    return None


def _even(counts: Sequence[int], spans: Sequence[int], slack: float) -> bool:
    """Whether each interval has what its length has of the whole, as for a timer, and for a job of the same step all along."""
    rate = sum(counts) / sum(spans)
    return all(abs(count - rate * span) <= slack for count, span in zip(counts, spans, strict=True))
