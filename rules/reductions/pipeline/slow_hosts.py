"""Hosts on which every pass is long: where a host has a stage of the pipeline to itself, no rank is late against an equal.

A single such host makes all others wait for it; of several each waits for the others' passes as well, so that taking away what
one of them lost wins little. What all of them lost together does, and each pass is held against its own usual time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import numpy as np

from forensics.model import Anomaly, Belief, Cause, Confidence, Evidence, Finding, Granularity, Impact, StageRef
from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.critical_path import makespan_without
from forensics.rules.reductions.pipeline.slow_steps import SlowStep, SlowSteps
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

# Times the usual pass, in the middle of a rank's passes of a step: on each rank of a slow host.
_LONG = 1.25
# Of what passes of slow hosts take longer at least: who waits in its passes for others now and then seems to work longer, too.
_QUIET = 1 / 3
_LEAST_STEPS = 2
# Of the time that its slow steps take.
_LEAST_WON = 0.05


@dataclass(frozen=True, slots=True)
class SlowHost:
    """A host whose `ranks` (all that run on it) work `factor` times as long as usual in `steps` slow steps."""

    host: str
    ranks: tuple[int, ...]
    stages: tuple[int, ...]
    factor: float
    steps: int


@dataclass(frozen=True, slots=True)
class SlowHosts:
    """Slow hosts and the quiet ones; without their long passes `took_ns` of a slow step (median) were `without_ns`."""

    found: tuple[SlowHost, ...]
    quiet: tuple[str, ...]
    took_ns: float
    without_ns: float

    @property
    def ranks(self) -> set[int]:
        """All that run on slow hosts: one of them that the others waited for was late with these."""
        return {rank for each in self.found for rank in each.ranks}


HostsByPasses = NewType("HostsByPasses", SlowHosts)
"""What the dated slow steps show of hosts."""


@reduction
def hosts_by_passes(slow: SlowSteps, roster: Roster) -> HostsByPasses:
    """Hold the passes of each host against their usual times, in at least two steps that show those of all ranks."""
    on: dict[str, list[int]] = defaultdict(list)
    for rank, host in sorted(roster.hosts.items()):
        if host is not None:
            on[host].append(rank)
    seen_in = {step.number: _factors(step) for step in slow.found}
    steps = [step for step in slow.found if roster.hosts.keys() <= seen_in[step.number].keys()]
    nobody = HostsByPasses(SlowHosts((), (), 0.0, 0.0))
    if len(steps) < _LEAST_STEPS or 2 * len(steps) < len(seen_in):
        return nobody
    of_host = {host: [seen_in[step.number][rank] for step in steps for rank in ranks] for host, ranks in on.items()}
    odd = [host for host, seen in of_host.items() if min(seen) >= _LONG]
    longer = min((min(of_host[host]) - 1 for host in odd), default=0.0)
    quiet = [host for host, seen in of_host.items() if max(seen) - 1 <= _QUIET * longer]
    if not odd or len(odd) > len(quiet) or len(odd) + len(quiet) < len(on):
        return nobody
    ranks = {rank for host in odd for rank in on[host]}
    took = float(np.median([step.judged.times.makespan for step in steps]))
    without = float(np.median([_without(step, ranks) for step in steps]))
    found = tuple(_slow_host(host, on[host], steps, float(np.median(of_host[host]))) for host in odd)
    won = took - without >= _LEAST_WON * took
    return HostsByPasses(SlowHosts(found, tuple(quiet), took, without)) if won else nobody


def _factors(step: SlowStep) -> Mapping[int, float]:
    """By rank, how many times as long as usual the middle one of its passes took."""
    found: dict[int, float] = {}
    for part, first in zip(step.parts, step.first.tolist(), strict=True):
        nodes = slice(first, first + part.graph.size)
        ratio = step.durations[nodes] / np.where(step.expected[nodes] > 0, step.expected[nodes], np.nan)
        for number, ranks in enumerate(part.stages):
            own = ratio[part.stage == number]
            if np.isfinite(own).any():
                found |= dict.fromkeys(ranks, float(np.nanmedian(own)))
    return found


def _without(step: SlowStep, ranks: set[int]) -> float:
    """How long the step would have been, had the passes of these ranks taken as long as usual."""
    return makespan_without(step.graph, step.durations, step.expected, step.of_ranks(ranks), step.lags)


def _slow_host(host: str, ranks: Sequence[int], steps: Sequence[SlowStep], factor: float) -> SlowHost:
    parts = [part for step in steps for part in step.parts]
    stages = {number for part in parts for number, members in enumerate(part.stages) if not set(ranks).isdisjoint(members)}
    return SlowHost(host, tuple(ranks), tuple(sorted(stages)), factor, len(steps))


def findings_of_hosts(hosts: HostsByPasses, hardware: Hardware) -> Iterator[Finding]:
    """Name each slow host, with what its GPUs show; that its stage was given more to do leaves the same."""
    won = hosts.took_ns - hosts.without_ns
    for each in hosts.found:
        finding = Finding(
            ranks=each.ranks,
            cause=Cause.UNKNOWN,
            stage=StageRef(pipeline_stage=each.stages[0] if len(each.stages) == 1 else None),
            belief=Belief.BEHIND_AND_BUSY,
            confidence=Confidence.SUSPECT,
            evidence=tuple(_evidence(each, hosts)),
            granularity=Granularity.HOST,
            anomaly=Anomaly.FAIL_SLOW,
            impact=Impact(round(won * each.steps), round(won / hosts.took_ns, 3), each.steps, "critical_path"),
            next_steps=(f"check load, clocks, temperature and other processes on the GPUs of {each.host}",),
        )
        yield hardware.refined(finding, (Cause.UNKNOWN,), each.factor)


def _evidence(each: SlowHost, hosts: HostsByPasses) -> Iterator[Evidence]:
    often = f"in {counted(each.steps, 'slow step')} whose passes are dated"
    yield Evidence(f"every rank of {each.host} works {each.factor:.1f} times as long as usual on a pass {often}", None)
    quiet = f"{hosts.quiet[0]} work" if len(hosts.quiet) == 1 else f"{len(hosts.quiet)} other hosts work"
    others = [other for other in hosts.found if other.host != each.host]
    slow = f", {ranks_text(tuple(rank for other in others for rank in other.ranks))} longer too" if others else ""
    yield Evidence(f"in the same steps the ranks of {quiet} about as long as usual{slow}", None)
    together = "all of these" if others else "its"
    shorter = f"{hosts.without_ns / 1e9:.2f} s instead of {hosts.took_ns / 1e9:.2f} s"
    yield Evidence(f"with {together} passes as long as usual such a step would take {shorter}", None)
    if len(each.stages) == 1:
        yield Evidence("a stage that computes more since then leaves the same evidence", None, supports=False)
