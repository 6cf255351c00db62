"""How a job is spread over its ranks, as the verdict shows it; import these from forensics.model, but for `StepRow`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AxisRow:
    """Communicators of one size along one axis (`tp pp dp cp ep world embedding unknown`), known in the same way."""

    axis: str
    size: int
    method: str
    confidence: str
    why: str
    communicators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GridRow:
    """Ranks of one replica of one pipeline stage in the order of their places beside each other (context, then tensor)."""

    stage: int | None
    replica: int | None
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepRow:
    """Microbatches of a step, model chunks of a stage (None: not known), and the schedules that its passes fit.

    `method` is calls or configured; `confidence` inferred or assumed.
    """

    microbatches: int | None
    chunks: int | None
    schedules: tuple[str, ...]
    method: str
    confidence: str


@dataclass(frozen=True, slots=True)
class LayoutRow:
    """Axes of all communicators; ranks by pipeline stage, and by what that is known (None: no stages are).

    `grid` are all ranks of which a place is known, by stage and replica; `step` is how a step is made up, None not known.
    """

    axes: tuple[AxisRow, ...]
    stages: tuple[tuple[int, ...], ...]
    stage_method: str | None
    grid: tuple[GridRow, ...] = ()
    step: StepRow | None = None
