"""The moment at which a job went wrong, from the completions of sampled ranks (Mycroft Algorithm 1).

The paper's trigger watches a job; here its history lies there, and the first completion that is late dates the fault. What is
looked at for the cause is then a window around that moment (Mycroft section 5.1: ten seconds by default, "small by design").
Hosts agree on no time. Their logs end when they are collected, so a moment is shown by how long before the end of a log it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NewType

import numpy as np

from forensics.model import Evidence, Since
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.completions import Ints, Rhythm, Rhythms
from forensics.rules.reductions.onset import onset_of
from forensics.rules.reductions.progress.liveness import LEAST_SILENCE_NS, SilenceFactor

IntervalFactor = NewType("IntervalFactor", float)
"""How many times as long the steps must take for an interval to count as doubled."""
ThroughputFactor = NewType("ThroughputFactor", float)
"""By what factor the throughput of operations must drop to count as halved."""
WindowSeconds = NewType("WindowSeconds", float)
"""Seconds before the onset that are looked at."""

# Steps before and after a change; so few are enough for most of the sampled ranks show it at once.
_SIDES = (2, 3)
_MOST_APART = 1
# Operations that take longer cost the job that part of a step at least, or they are hidden behind work.
_LEAST_COST = 0.05
# Steps before and after the onset that tell what is usual and what recurs, where they last longer than the window.
_STEPS_BEFORE, _STEPS_AFTER = 16, 64


class Trigger(StrEnum):
    """What went wrong."""

    NO_COMPLETION = "no completion"
    INTERVAL = "interval"
    THROUGHPUT = "throughput"


@dataclass(frozen=True, slots=True)
class Onset:
    """The first thing that went wrong: `time_ns` on the clock of the rank's host, `ago_ns` before the end of its log.

    `before_ns` is a step (or its time in operations) before, `after_ns` since; for a halt the silence. `step_ns` is a step.
    """

    trigger: Trigger
    rank: int
    host: str | None
    communicator: str
    time_ns: int
    ago_ns: int
    before_ns: int
    after_ns: int
    step_ns: int
    bytes: int
    source: str

    @property
    def since(self) -> Since:
        """The moment; the step in which it lies is its bound."""
        clock = f"{self.host} realtime" if self.host else "realtime of the recording host"
        return Since(self.time_ns, clock, self.step_ns)

    @property
    def evidence(self) -> Evidence:
        """What was seen, in words."""
        whose = f"rank {self.rank}, {self.communicator}"
        if self.trigger is Trigger.NO_COMPLETION:
            text = f"no operation completed for {self.after_ns / 1e9:.1f} s, {self.before_ns / 1e6:.0f} ms a step before"
        elif self.trigger is Trigger.INTERVAL:
            text = f"a step takes {self.after_ns / 1e6:.0f} ms, {self.before_ns / 1e6:.0f} ms before"
        else:
            rates = (self.bytes / max(each, 1) for each in (self.after_ns, self.before_ns))
            text = "operations move {:.2f} GB/s, {:.2f} GB/s before".format(*rates)
        return Evidence(f"job went wrong: {whose}: {text}", self.source)


@dataclass(frozen=True, slots=True)
class JobOnset:
    """When the job went wrong; `first` is None where the sampled ranks do not show it, `sampled` are those that were asked.

    `step_ns` is the longest of what their communicators take for a step (median); 0 where nothing recurs.
    """

    first: Onset | None = None
    sampled: tuple[int, ...] = ()
    step_ns: int = 0


@dataclass(frozen=True, slots=True)
class FlowWindow:
    """Part of the logs to look at, in ns before the end of each: from `earliest_ns` to `latest_ns`."""

    earliest_ns: int
    latest_ns: int


@reduction
def job_onset(rhythms: Rhythms, interval: IntervalFactor, throughput: ThroughputFactor, silence: SilenceFactor) -> JobOnset:
    """The earliest onset that most sampled ranks agree on: what one of them shows alone is not the job's.

    A halt counts before a slowdown, which may be long over.
    """
    asked = tuple(sorted({rhythm.rank for rhythm in rhythms}))
    own = {rank: [rhythm for rhythm in rhythms if rhythm.rank == rank] for rank in asked}
    halts = [each for rank in asked for each in _halt(own[rank], silence)]
    found = halts or [each for rhythm in rhythms for each in _slower(rhythm, interval, throughput)]
    ordered = sorted(found, key=lambda each: (-each.ago_ns, each.rank, each.communicator))
    step_ns = max((int(np.median(rhythm.intervals)) for rhythm in rhythms), default=0)
    return JobOnset(next((each for each in ordered if 2 * _agreeing(each, ordered) > len(asked)), None), asked, step_ns)


def _agreeing(onset: Onset, others: Iterable[Onset]) -> int:
    """Ranks that show an onset within a step of this one."""
    return len({each.rank for each in others if abs(each.ago_ns - onset.ago_ns) <= _MOST_APART * onset.step_ns})


def _halt(own: Sequence[Rhythm], factor: float) -> Iterator[Onset]:
    """A rank of which no communicator moves any longer: one alone may only have nothing to do."""
    slowest = max(own, key=lambda rhythm: int(np.sort(rhythm.intervals)[-2]))
    quiet = slowest.until_ns - slowest.moved_ns
    if quiet >= max(factor * int(np.sort(slowest.intervals)[-2]), LEAST_SILENCE_NS):
        yield _onset(slowest, Trigger.NO_COMPLETION, slowest.moved_ns, int(np.median(slowest.intervals)), quiet)


def _slower(rhythm: Rhythm, interval: float, throughput: float) -> Iterator[Onset]:
    least = _LEAST_COST * float(np.median(rhythm.intervals))
    for trigger, values, factor in (
        (Trigger.INTERVAL, rhythm.intervals, interval),
        (Trigger.THROUGHPUT, rhythm.busy, throughput),
    ):
        place = onset_of(values.tolist(), _SIDES, partial(_is_change, factor, least))
        if place is not None and (rhythm.bytes or trigger is Trigger.INTERVAL):
            began = int(rhythm.ends[place] - rhythm.intervals[place])
            yield _onset(rhythm, trigger, began, *_levels(values, place))


def _is_change(factor: float, least_ns: float, before: float, after: float, first: float) -> bool:
    return 0 < factor * before <= min(after, first) and after - before >= least_ns


def _levels(values: Ints, place: int) -> tuple[int, int]:
    return int(np.median(values[:place])), int(np.median(values[place:]))


def _onset(rhythm: Rhythm, trigger: Trigger, time_ns: int, before: int, after: int) -> Onset:
    step = int(np.median(rhythm.intervals))
    return Onset(
        trigger, rhythm.rank, rhythm.host, rhythm.communicator, time_ns, rhythm.until_ns - time_ns, before, after, step,
        rhythm.bytes, rhythm.source,
    )  # fmt: skip


def flow_window(onset: JobOnset, seconds: float, recorded_ns: float = 0.0) -> FlowWindow | None:
    """What to look at around an onset, else the newest steps, `recorded_ns` long if known; None for all, where none recur."""
    first = onset.first
    step_ns = first.step_ns if first is not None else int(recorded_ns) or onset.step_ns
    before, after = (max(int(seconds * 1e9), steps * step_ns) for steps in (_STEPS_BEFORE, _STEPS_AFTER))
    if first is not None:
        return FlowWindow(first.ago_ns + before, max(0, first.ago_ns - after))
    return FlowWindow(before + after, 0) if step_ns else None
