"""Which ranks take longest for a stage of a step, by the times that logs print, and whether their peers wait for that long.

A stage may hold waiting under its own name: whoever comes early to an all-reduce is longest in the backward pass. So a rank is
late only where it waits less than its peers by half of what it takes longer, at least: by the waits that stand beside, or what
of a whole step is in no stage. Where neither stands there, the backward passes of peers tell it of a long forward pass: in them
gradients are reduced. Loading data waits for no peer. Ranks of a pipeline, whose lines tell of messages, do different work.
A few ranks in a row that take about as long, as those of one host do, are late together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import StageName

_PARTS = (StageName.DATA, StageName.FORWARD, StageName.BACKWARD, StageName.OPTIMIZER)
_COMPUTE = "compute"
_STAGES = {**{stage.value: stage for stage in _PARTS}, _COMPUTE: StageName.UNKNOWN}
_BACKWARD = StageName.BACKWARD.value
_BEFORE_BACKWARD = (StageName.DATA.value, StageName.FORWARD.value)
_LEAST_PEERS, _MOST = 3, 0.75
# Of all ranks at most, where no pipeline is configured: those of a stage do other work than the rest.
_FEW = 0.25
_ROWS = """
SELECT t.step, t.rank, t.kind, sum(t.ms), min(s.path || '#line=' || t.locator)
FROM log_stage_times t JOIN sources s USING (source_id) WHERE t.rank IS NOT NULL
GROUP BY t.step, t.rank, t.kind, t.source_id QUALIFY t.source_id = min(t.source_id) OVER (PARTITION BY t.rank, t.step)
ORDER BY t.step, t.rank, t.kind
"""
_STAGES_OF_JOB = "SELECT max(try_cast(value AS INTEGER)) FROM job_config WHERE key = 'parallel.pipeline'"
_Times = Mapping[int, Mapping[str, float]]
"""Times in ms by rank and kind."""


@dataclass(frozen=True, slots=True)
class StepOfStage:
    """The ranks that take longest for a stage in one step: `ms` of the longest, the median of their peers, and who comes next.

    A factor is how many times as long the peers' own work of a step becomes with this stage's time; `is_awaited` says that
    nothing speaks against the peers waiting for it.
    """

    ranks: tuple[int, ...]
    ms: float
    peers_ms: float
    factor: float
    next_factor: float
    is_awaited: bool
    source: str


def stage_times(connection: DuckDBPyConnection) -> Iterator[tuple[StageName, list[StepOfStage]]]:
    """The steps of each stage that at least two ranks print times of."""
    steps: dict[int, dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    sources: dict[tuple[int, int], str] = {}
    for step, rank, kind, ms, source in rows_of(connection, "log_stage_times", _ROWS):
        steps[step][rank][kind] = ms
        sources[step, rank] = source
    ((stages,),) = connection.execute(_STAGES_OF_JOB).fetchall()
    few = 0.0 if (stages or 1) > 1 else _FEW
    for name, stage in _STAGES.items():
        found = [_slowest(times, name, step, sources, few) for step, times in steps.items()]
        if known := [each for each in found if each is not None]:
            yield stage, known


def _slowest(times: _Times, stage: str, step: int, sources: Mapping[tuple[int, int], str], few: float) -> StepOfStage | None:
    values = {rank: kinds[stage] for rank, kinds in times.items() if stage in kinds}
    if len(values) < 2:
        return None
    first = max(values, key=lambda rank: values[rank])
    late = _together(values, first, few)
    others = [value for rank, value in values.items() if rank not in late]
    peers = median(others)
    excess = values[first] - peers
    in_backward = stage in _BEFORE_BACKWARD and _waits_in_backward(times, late, excess)
    usual = median(_own(kinds) for rank, kinds in times.items() if rank not in late) - (excess if in_backward else 0.0)
    usual = max(usual, times[first].get("whole", 0.0) - excess)
    if usual <= 0:
        return None
    beyond = max(max(others) - peers, 0.0) / usual
    awaited = excess > 0 and all(_is_awaited(times, rank, late, stage, excess, in_backward) for rank in late)
    return StepOfStage(late, values[first], peers, 1 + excess / usual, 1 + beyond, awaited, sources[step, first])


def _together(values: Mapping[int, float], first: int, few: float) -> tuple[int, ...]:
    """The ranks, in a row, that take about as long as the longest; it alone where they are not few, or not in a row."""
    usual = median(values.values())
    late = tuple(sorted(rank for rank, value in values.items() if value - usual >= _MOST * (values[first] - usual)))
    between = [rank for rank in values if late[0] <= rank <= late[-1]]
    return late if len(late) <= few * len(values) and len(between) == len(late) else (first,)


def _own(kinds: Mapping[str, float]) -> float:
    """Its parts; what is called compute may hold both passes."""
    has_passes = StageName.FORWARD.value in kinds or StageName.BACKWARD.value in kinds
    return sum(ms for kind, ms in kinds.items() if kind in _STAGES and not (kind == _COMPUTE and has_passes))


def _is_awaited(times: _Times, rank: int, late: Collection[int], stage: str, excess: float, in_backward: bool) -> bool:
    waits = {each: wait for each, kinds in times.items() if (wait := _wait(kinds)) is not None}
    if rank in waits and len(waits) > 1 and not _has_messages(times):
        peers = [wait for each, wait in waits.items() if each not in late]
        awaited = bool(peers) and waits[rank] <= median(peers) - excess / 2
        return awaited or (in_backward and max(waits.values()) < excess / 2)
    return stage == StageName.DATA.value or in_backward


def _waits_in_backward(times: _Times, late: Collection[int], excess: float) -> bool:
    """Whether all peers, three at least, are longer by most of that in the pass in which gradients are reduced.

    In a pipeline that fills, the last stage is longest in the forward pass as well, and the one before it half as much.
    """
    passes = {each: kinds[_BACKWARD] for each, kinds in times.items() if _BACKWARD in kinds}
    peers = [ms for each, ms in passes.items() if each not in late]
    return (
        not _has_messages(times)
        and len(peers) >= _LEAST_PEERS
        and all(rank in passes and passes[rank] <= min(peers) - _MOST * excess for rank in late)
    )


def _has_messages(times: _Times) -> bool:
    return any("message" in kinds for kinds in times.values())


def _wait(kinds: Mapping[str, float]) -> float | None:
    if "wait" in kinds:
        return kinds["wait"]
    return kinds["whole"] - _own(kinds) if "whole" in kinds and kinds["whole"] > _own(kinds) else None
