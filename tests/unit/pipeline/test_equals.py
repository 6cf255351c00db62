"""Ranks of other pipeline stages end their passes at other times; those of one tensor-parallel group do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.rules.reductions.arrivals.lateness import Lateness
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.equals import is_of_equals, is_of_stages
from forensics.rules.reductions.pipeline.layout import AxisOf, Layout
from forensics.rules.reductions.pipeline.places import Place

LATE = Lateness(0, "group", "all_reduce", (0, 4), 9, 9, 9_000, 0.5, 1_000, "fr#entry=1", on_own_clocks=True)


def layout_of(axis: Axis, *stages: int | None) -> Layout:
    """Ranks 0, 4, 8 ... are in these stages."""
    return Layout({"group": AxisOf(axis, "name")}, places={4 * rank: Place(stage=stage) for rank, stage in enumerate(stages)})


@pytest.mark.parametrize(
    ("axis", "stages", "apart"),
    [
        (Axis.EMBEDDING, (), True),
        (Axis.UNKNOWN, (0, 3), True),
        (Axis.UNKNOWN, (0, 0), False),
        (Axis.UNKNOWN, (0, None), False),
        (Axis.DATA, (), False),
    ],
)
def test_members_of_other_stages_end_their_passes_by_the_schedule(axis: Axis, stages: tuple[int, ...], apart: bool) -> None:
    assert is_of_stages(LATE, layout_of(axis, *stages)) is apart


def test_one_of_a_stage_beside_its_equals_is_compared() -> None:
    late = replace(LATE, members=(0, 4, 8))
    assert not is_of_stages(late, layout_of(Axis.WORLD, 0, 0, 1))
    assert is_of_stages(late, layout_of(Axis.WORLD, 0, 1, 1))


def test_equals_are_tensor_parallel_ranks_with_exact_times() -> None:
    assert is_of_equals(LATE, layout_of(Axis.TENSOR))
    assert not is_of_equals(replace(LATE, is_bound=True), layout_of(Axis.TENSOR))
    assert not is_of_equals(LATE, layout_of(Axis.EMBEDDING))
