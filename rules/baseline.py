"""A case held against an older one of the same job that was good: how long its steps and stages took then, and take now.

What was slow before the record of a case began shows in nothing that the case holds of itself; the time to expect (VenusTrace
section 3.3) may come from an earlier good run. Only the whole job is judged: its ranks may be on other hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.comparable import Times, comparable
from forensics.case.database import read_only
from forensics.errors import ExitCode, ForensicsError
from forensics.model import Label, Outcome, StageName, Verdict
from forensics.rules.engine import supply_of
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.steps.times import GATE, StepTimes
from forensics.rules.soundness import NOT_COMPARED

# Whole steps, fewer may be unlike the others.
_LEAST_STEPS = 5
RECORDED, BY_CALLS = "recorded steps", "steps by the calls that each makes"


@dataclass(frozen=True, slots=True)
class Paced:
    """How long steps of a case take, by each way of knowing it, and stages of recorded ones.

    `calls` are those of a whole step of each rank, `moves` says that something shows that the job goes on.
    """

    steps: Mapping[str, Times]
    stages: Mapping[str, Times]
    calls: Mapping[int, int]
    moves: bool


def paced(connection: DuckDBPyConnection) -> Paced:
    """Read it from a case."""
    supply, known = supply_of(connection), comparable(connection)
    with read_only(connection):
        times, motion = supply.get(StepTimes), supply.get(Liveness)
    steps = {RECORDED: known.steps} if known.steps else {}
    if len(times.length):
        high = float(np.quantile(times.length, 0.9))
        steps[BY_CALLS] = Times(times.typical_ns, high, len(times.length), len(times.ranks))
    calls = {rank: own.order.shape[1] for rank, own in times.ranks.items()}
    return Paced({by: found for by, found in steps.items() if found.count >= _LEAST_STEPS}, known.stages, calls, motion.shown)


def against(verdict: Verdict, case: Paced, good: Verdict, baseline: Paced) -> Verdict:
    """The verdict with what became of the steps since the baseline; a job that nobody is named for may be a `slowdown` by it.

    Steps as short as those of a good run clear its ranks, where nothing else compared them: a slow one would make them longer.
    Raises ForensicsError where the two are not of one job, or no step of both is known alike.
    """
    _refuse_another_job(verdict, case, good, baseline)
    by = next((by for by in (RECORDED, BY_CALLS) if by in case.steps and by in baseline.steps), None)
    if by is None:
        why = f"it and the case do not both have the length of {_LEAST_STEPS} steps in one way ({RECORDED}, or {BY_CALLS})"
        raise ForensicsError(f"--baseline: {why}", ExitCode.INSUFFICIENT)
    now, then = case.steps[by], baseline.steps[by]
    reason = f"{now.count} {by} take {_ms(now)}, {_ms(then)} in the baseline ({now.median_ns / then.median_ns:.2f} times)"
    labels = (Label("baseline", "steps", reason), *_stages(case, baseline))
    found = replace(verdict, labels=(*verdict.labels, *labels))
    is_open = not verdict.suspects and verdict.outcome in (Outcome.HEALTHY, Outcome.INCONCLUSIVE)
    if is_open and case.moves and now.median_ns > max(then.median_ns / GATE, then.high_ns):
        return replace(found, outcome=Outcome.SLOWDOWN, summary=f"{Outcome.SLOWDOWN}: {reason}; nobody can be named")
    return _cleared(found, reason) if is_open and now.median_ns * GATE <= then.median_ns else found


def _cleared(verdict: Verdict, reason: str) -> Verdict:
    """The verdict as it is where the baseline compares what nothing else did."""
    *others, healthy = verdict.assessments
    open_still = healthy.withheld or ""
    if verdict.outcome is not Outcome.INCONCLUSIVE or not open_still.endswith(NOT_COMPARED):
        return verdict
    summary = f"{Outcome.HEALTHY}: {open_still.removesuffix(NOT_COMPARED)}{reason}"
    return replace(verdict, outcome=Outcome.HEALTHY, summary=summary, assessments=(*others, replace(healthy, withheld=None)))


def _refuse_another_job(verdict: Verdict, case: Paced, good: Verdict, baseline: Paced) -> None:
    if good.outcome in (Outcome.HANG, Outcome.FAILSTOP, Outcome.SLOWDOWN):
        raise ForensicsError(f"--baseline: it is no good run: {good.summary}", ExitCode.USAGE)
    if verdict.world_size != good.world_size:
        sizes = f"{good.world_size or 'an unknown number of'} ranks, the case has {verdict.world_size or 'an unknown number'}"
        raise ForensicsError(f"--baseline: another job: it has {sizes}", ExitCode.USAGE)
    old, new = _axes(good), _axes(verdict)
    if differing := sorted(axis for axis in old.keys() & new.keys() if old[axis] != new[axis]):
        axis = differing[0]
        raise ForensicsError(f"--baseline: another job: {axis} is {old[axis]} there and {new[axis]} here", ExitCode.USAGE)
    unlike = sorted(rank for rank in case.calls.keys() & baseline.calls.keys() if case.calls[rank] != baseline.calls[rank])
    if unlike:
        rank = unlike[0]
        counts = f"a step of rank {rank} makes {baseline.calls[rank]} calls there and {case.calls[rank]} here"
        raise ForensicsError(f"--baseline: another job: {counts}", ExitCode.USAGE)


def _axes(verdict: Verdict) -> dict[str, str]:
    return {axis.axis: str(axis.size) for axis in verdict.layout.axes} if verdict.layout else {}


def _stages(case: Paced, baseline: Paced) -> Iterator[Label]:
    """Stages that became longer by more than they differ from step to step, the one that grew most first."""
    grown = {
        stage: case.stages[stage].median_ns - baseline.stages[stage].median_ns
        for stage in case.stages.keys() & baseline.stages.keys()
        if case.stages[stage].median_ns > max(baseline.stages[stage].median_ns / GATE, baseline.stages[stage].high_ns)
    }
    for stage in sorted(grown, key=lambda each: -grown[each]):
        now, then = case.stages[stage], baseline.stages[stage]
        name = StageName(stage) if stage in set(StageName) else None
        yield Label("baseline", "stages", f"{stage} takes {_ms(now)}, {_ms(then)} in the baseline", name)


def _ms(times: Times) -> str:
    return f"{times.median_ns / 1e6:.0f} ms"
