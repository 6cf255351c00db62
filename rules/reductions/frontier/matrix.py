"""The stage matrix of a window: consecutive steps of one group of ranks that agree on members and ordered stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from forensics.rules.reductions.frontier.accounting import Floats, Ints

REST = "the rest of the step"
"""Name of the column behind the last stage, where ranks meet there."""
RESIDUAL = "other"


@dataclass(frozen=True, slots=True, order=True)
class Column:
    """One ordered stage: its broad stage, what its name says beyond that, and its number among repetitions in a step."""

    stage: str
    substage: str = ""
    substep: int = 0

    @property
    def label(self) -> str:
        """The column as text."""
        repeat = f"#{self.substep}" if self.substep else ""
        return f"{self.stage}{f'/{self.substage}' if self.substage else ''}{repeat}"


@dataclass(frozen=True, slots=True, eq=False)
class StageMatrix:
    """One window. Arrays are in ns; `[step, stage, rank]`, stages in order and without the residual.

    `ends` are ends of stages and `begins`, `walls` (`[step, rank]`) those of steps, on the clock of the rank's host less
    `epoch_ns`; `ends` is None when the source has no times. `device` holds sampled device times by stage (NaN: none) and
    `asked` how many there should be of each; `arrived` how long each rank was in its own work of a stage before it only waited
    (NaN: unknown), `barriers` by number of the column how long its host was in it before a barrier. `missing` are ranks that
    the group should have. `one_clock` shows whether all ranks share a host. `unrecognised` names kernels, where none of them
    is known to communicate; `messages` says that hosts wait for messages of other ranks inside these stages.
    """

    group: str
    role: str | None
    source: str
    steps: Ints
    ranks: tuple[int, ...]
    columns: tuple[Column, ...]
    durations: Floats
    walls: Floats
    begins: Ints
    ends: Ints | None
    epoch_ns: int = 0
    device: Mapping[str, Floats] | None = None
    asked: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, Floats] | None = None
    missing: tuple[int, ...] = ()
    one_clock: bool = True
    is_ordered: bool = True
    collapsed: bool = False
    paths: tuple[str, ...] = ()
    unrecognised: str | None = None
    messages: bool = False
    barriers: Mapping[int, Floats] = field(default_factory=dict)

    def path(self, rank: int | None = None) -> str | None:
        """The artefact of a rank, of the first one without a rank."""
        known = dict(zip(self.ranks, self.paths, strict=False))
        return known.get(self.ranks[0] if rank is None else rank)

    def since(self, step: int) -> StageMatrix:
        """The same window from a step on."""
        rows = self.steps >= step
        device = None if self.device is None else {stage: values[rows] for stage, values in self.device.items()}
        arrived = None if self.arrived is None else {stage: values[rows] for stage, values in self.arrived.items()}
        return replace(
            self, steps=self.steps[rows], durations=self.durations[rows], walls=self.walls[rows], begins=self.begins[rows],
            ends=None if self.ends is None else self.ends[rows], device=device, arrived=arrived,
            barriers={column: own[rows] for column, own in self.barriers.items()},
            asked={stage: round(count * float(rows.mean())) for stage, count in self.asked.items()},
        )  # fmt: skip

    @property
    def residual(self) -> Floats:
        """Signed closure error of each step and rank in ns: wall time less the stages."""
        return np.asarray(self.walls - self.durations.sum(axis=1))

    def closed(self) -> Floats:
        """Durations with the residual as the last stage: what the accounting is of."""
        rest = np.maximum(self.residual, 0.0)[:, None, :]
        return np.concatenate([self.durations, rest], axis=1)

    def stage_list(self) -> tuple[str, ...]:
        """Broad stages in the order of their first column, the residual last."""
        return tuple(dict.fromkeys((*(column.stage for column in self.columns), RESIDUAL)))

    def members(self, stage: str) -> list[int]:
        """Columns of a broad stage in `closed()`."""
        found = [index for index, column in enumerate(self.columns) if column.stage == stage]
        return [*found, len(self.columns)] if stage == RESIDUAL else found


def merged_order(lists: Sequence[Sequence[Column]]) -> tuple[tuple[Column, ...], bool]:
    """One order for the stages of all ranks, and whether it keeps the order of each."""
    mean: dict[Column, list[float]] = {}
    after: dict[Column, set[Column]] = {}
    for each in lists:
        for place, column in enumerate(each):
            mean.setdefault(column, []).append(place / max(len(each), 1))
            after.setdefault(column, set()).update(each[:place][-1:])
    order = sorted(mean, key=lambda column: (sum(mean[column]) / len(mean[column]), column))
    placed: list[Column] = []
    is_ordered = True
    while order:
        free = next((column for column in order if not (after[column] & set(order)) - {column}), None)
        is_ordered &= free is not None
        chosen = free or order[0]
        placed.append(chosen)
        order.remove(chosen)
    return tuple(placed), is_ordered
