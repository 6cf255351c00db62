"""Since when steps are longer: shown by few steps before, by a longer record beside a short one, and for whom it counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.several_windows import named_once
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, dated, judge
from tests.unit.frontier.jobs import job, judged


def part(whole: StageMatrix, steps: slice, ranks: list[int]) -> StageMatrix:
    """What a window of some steps and ranks holds of a job."""
    assert whole.ends is not None
    return replace(
        whole, steps=whole.steps[steps], ranks=tuple(ranks), durations=whole.durations[steps][:, :, ranks],
        walls=whole.walls[steps][:, ranks], begins=whole.begins[steps][:, ranks], ends=whole.ends[steps][:, :, ranks],
        missing=tuple(sorted(set(whole.ranks) - set(ranks))),
    )  # fmt: skip


def slow_from(step: int, steps: int = 45, first: int = 500, delay_ms: float = 120) -> StageMatrix:
    made = job("data", steps=steps, when=lambda number: number >= step, delay_ms=delay_ms)
    return replace(made, steps=made.steps + first)


@pytest.mark.parametrize(
    ("made", "onset"),
    [
        (slow_from(4), 504), (slow_from(4, delay_ms=35), 504), (slow_from(3), 503), (slow_from(3, first=0), None),
        (slow_from(2), None), (slow_from(3, delay_ms=10), None), (slow_from(3, steps=12), None),
    ],
    ids=["sharply", "by an eighth", "steps, not rows", "a job that begins", "too few before", "too little", "too few behind"],
)  # fmt: skip
def test_few_steps_show_what_was_usual_where_all_of_them_are_shorter(made: StageMatrix, onset: int | None) -> None:
    (window,) = dated([FrontierWindow(made)])
    assert judge(window, Gates()).attribution.onset == onset


def test_three_steps_are_what_a_stage_of_all_ranks_is_held_against() -> None:
    made = job("backward", steps=45, who=lambda _: slice(None), when=lambda step: step >= 3)
    (window,) = dated([FrontierWindow(replace(made, steps=made.steps + 500))])
    found = judge(window, Gates()).attribution.culprits
    assert [(each.stage, each.ranks, each.baseline, each.onset) for each in found] == [("backward", (), "history", 503)]


@pytest.mark.parametrize(("slow", "onset"), [("backward", 8), (None, None)], ids=["slower since", "none"])
def test_several_steps_of_a_start_hide_no_change(slow: str | None, onset: int | None) -> None:
    made = job(slow, steps=45, who=lambda _: slice(None), when=lambda step: step >= 8)
    longer = (np.maximum(3.0 - made.steps, 0) * 400e6)[:, None]
    assert made.ends is not None
    ends = made.ends + np.cumsum(longer, axis=0)[:, None].astype(np.int64)
    begins = made.begins + (np.cumsum(longer, axis=0) - longer).astype(np.int64)
    durations = made.durations + longer[:, None] * (np.arange(5) == 2)[None, :, None]
    assert (
        judged(replace(made, durations=durations, walls=made.walls + longer, begins=begins, ends=ends)).attribution.onset
        == onset
    )


def test_steps_of_a_start_hide_a_change_and_make_none() -> None:
    made = slow_from(4)
    assert made.ends is not None
    late = made.ends + np.where(made.steps >= 502, 150_000_000, 0)[:, None, None]
    assert judged(replace(made, ends=late)).attribution.onset is None


def windows(whole: StageMatrix) -> tuple[FrontierWindow, ...]:
    """The record of rank 3 ends at step 22."""
    everybody = list(range(len(whole.ranks)))
    others = [rank for rank in everybody if rank != 3]
    return tuple(FrontierWindow(part(whole, slice(0, end), ranks)) for end, ranks in ((22, everybody), (45, others)))


def test_a_rank_that_is_late_in_the_last_steps_of_its_record_is_named_where_the_others_stay_longer() -> None:
    made = windows(slow_from(19))
    said = [(each.stage, each.ranks, each.onset) for window in made for each in judge(window, Gates()).attribution.culprits]
    assert [each[:2] for each in said] == [("backward", ())]  # where the others wait
    known = named_once([judge(window, Gates()) for window in dated(made)])
    assert [(each.stage, each.ranks, each.onset) for one in known for each in one.attribution.culprits] == [("data", (3,), 519)]


def test_a_rank_that_was_late_before_the_change_is_not_what_changed() -> None:
    """The first rank logs for all, and the job became slower for something else."""
    always, later = (
        job(stage, rank=0, who=who, when=when, delay_ms=ms, steps=60, arrivals=True)
        for stage, who, when, ms in (
            ("callbacks", None, lambda step: True, 30),
            ("backward", lambda step: slice(None), lambda step: step >= 40, 80),
        )
    )
    usual = job(steps=60, arrivals=True)
    assert always.ends is not None and later.ends is not None and usual.ends is not None
    assert always.arrived is not None and later.arrived is not None and usual.arrived is not None
    made = replace(
        always, durations=always.durations + later.durations - usual.durations, walls=always.walls + later.walls - usual.walls,
        begins=always.begins + later.begins - usual.begins, ends=always.ends + later.ends - usual.ends,
        arrived={name: always.arrived[name] + later.arrived[name] - own for name, own in usual.arrived.items()},
    )  # fmt: skip
    found = judged(made).attribution.culprits
    assert [(each.stage, each.ranks, each.onset) for each in found] == [("backward", (), 40), ("callbacks", (0,), None)]
