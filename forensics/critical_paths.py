"""The passes of a slow step as the verdict shows them; import these from forensics.model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassRow:
    """One pass of a pipeline stage: `ranks` work on it; times in ns, `begin_ns` after the begin of the first pass.

    `slack_ns` is by how much it may be late without any effect on the end of the step. `is_late`: without what it took longer
    than expected the step would be shorter, or it would with others. `clock` is what dates it: `kernel` (times inside calls, as
    their kernels took), or `arrivals` (of some of its collectives when their members came, which hosts that run ahead blur).
    """

    ranks: tuple[int, ...]
    stage: int
    model_chunk: int | None
    microbatch: int
    direction: str
    begin_ns: int
    duration_ns: int
    expected_ns: int
    slack_ns: int
    is_late: bool
    clock: str


@dataclass(frozen=True, slots=True)
class PathRank:
    """In how many of the slow steps passes of these ranks on the critical path took too long."""

    ranks: tuple[int, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class CriticalPathRow:
    """The longest path through the slowest step, of `steps` slow ones that were looked at; times in ns.

    `nodes` are the passes on it, `absorbed` over-long ones that bubbles took up, `passes` all of the pipeline that took
    longest (of `pipelines`). Without the late ones the step is `recoverable_ns` shorter.
    """

    nodes: tuple[PassRow, ...]
    absorbed: tuple[PassRow, ...]
    makespan_ns: int
    expected_makespan_ns: int
    recoverable_ns: int
    step: int
    steps: int
    pipelines: int
    late_in: tuple[PathRank, ...]
    passes: tuple[PassRow, ...]
