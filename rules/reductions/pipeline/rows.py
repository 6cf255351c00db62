"""The layout as rows of the verdict."""

from __future__ import annotations

from collections import defaultdict

from forensics.model import AxisRow, GridRow, LayoutRow
from forensics.parallel_layout import StepRow
from forensics.rules.reductions.pipeline.layout import AxisOf, Layout
from forensics.rules.reductions.pipeline.step_shape import StepShape


def layout_row(layout: Layout, shape: StepShape) -> LayoutRow | None:
    """Axes, stages and how a step is made up; None where nothing is known of any communicator or rank."""
    if not layout and layout.stage_method is None:
        return None
    alike: dict[tuple[AxisOf, int], list[str]] = defaultdict(list)
    for label, known in layout.axes.items():
        alike[known, len(layout.members[label])].append(label)
    axes = [
        AxisRow(known.axis, size, known.method, known.confidence, known.why, tuple(sorted(labels)))
        for (known, size), labels in alike.items()
    ]
    stages: dict[int, list[int]] = defaultdict(list)
    for rank, place in sorted(layout.places.items()):
        if place.stage is not None:
            stages[place.stage].append(rank)
    ordered = tuple(tuple(ranks) for _, ranks in sorted(stages.items()))
    by_name = tuple(sorted(axes, key=lambda row: row.communicators))
    return LayoutRow(by_name, ordered, layout.stage_method, _grid(layout), _step(shape))


def _step(shape: StepShape) -> StepRow | None:
    if shape.method == "nothing":
        return None
    return StepRow(shape.microbatches, shape.chunks, tuple(map(str, shape.schedules)), shape.method, shape.confidence)


def _grid(layout: Layout) -> tuple[GridRow, ...]:
    """Ranks by stage and replica; one of which a coordinate is not known stands behind those of which it is."""
    rows: dict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    beside = sorted(
        layout.places, key=lambda rank: (*map(_known, (layout.places[rank].context, layout.places[rank].tensor)), rank)
    )
    for rank in beside:
        rows[layout.places[rank].stage, layout.places[rank].replica].append(rank)
    ordered = sorted(rows.items(), key=lambda row: tuple(map(_known, row[0])))
    return tuple(GridRow(stage, replica, tuple(ranks)) for (stage, replica), ranks in ordered)


def _known(place: int | None) -> tuple[bool, int]:
    return place is None, place or 0
