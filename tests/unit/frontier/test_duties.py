"""Work for all by the first rank, or pauses of all ranks every so many steps, is no fault; a rank that is slow by much is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.frontier.duties import duty_of, first_ranks, is_unstaged, may_wait, small_of
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.losses import Culprit
from forensics.rules.reductions.frontier.matrix import RESIDUAL, Column, StageMatrix

HOSTS = {rank: f"host{rank // 8}" for rank in range(16)}
SMALL = Culprit("callbacks", None, (0,), 1e9, 0.05, 80, 100, 2e7, "peers", "throughout")
RHYTHMIC = replace(SMALL, share=0.3, affected=10, pattern="every 10 steps")
IN_TURN = replace(SMALL, stage="backward", ranks=(), changing=True, share=0.33)
PAUSE = Culprit("checkpoint", None, (), 6e10, 0.9, 3, 29, 2e10, "usual", "every 8 steps")
SAVES = replace(SMALL, stage="checkpoint", share=0.48, affected=3, steps=5)


def is_duty(culprit: Culprit, sync: str | None = None) -> bool:
    return duty_of(culprit, first_ranks(HOSTS), Gates().most_share_of_first, sync=sync) is not None


@pytest.mark.parametrize(("sync", "usual"), [("optimizer", True), ("backward", False)])
def test_lengths_that_change_from_rank_to_rank_show_where_hosts_wait_for_their_devices(sync: str, usual: bool) -> None:
    assert is_duty(replace(IN_TURN, stage="optimizer"), sync) is usual


def test_the_first_ranks_are_those_of_the_job_and_of_its_hosts() -> None:
    assert first_ranks(HOSTS) == {0, 8}
    assert first_ranks(dict.fromkeys(range(4))) == {0}
    assert first_ranks({rank: f"host{rank}" for rank in range(4)}) == {0}


@pytest.mark.parametrize(
    "culprit",
    [
        SMALL, replace(SMALL, share=0.16), replace(SMALL, stage="other"), replace(SMALL, ranks=(0, 8)), RHYTHMIC,
        replace(RHYTHMIC, stage="eval"), PAUSE, IN_TURN, SAVES,
        replace(SAVES, ranks=(4, 5, 6, 7)), replace(SAVES, stage="eval", pattern="now and then"),
    ],
    ids=[
        "small", "short steps", "not annotated", "one of each host", "rhythmic", "evaluates", "all ranks save",
        "passes in turn", "saves in most of few steps", "one replica saves", "evaluates now and then",
    ],
)  # fmt: skip
def test_work_for_all_is_a_duty(culprit: Culprit) -> None:
    assert is_duty(culprit)


@pytest.mark.parametrize(
    "culprit",
    [
        replace(SMALL, share=0.3),
        replace(SAVES, affected=5),
        replace(SAVES, onset=3),
        replace(SAVES, stage="callbacks"),
        replace(SAVES, ranks=(5,)),
        replace(SAVES, ranks=(4, 5, 6, 7), onset=3),
        replace(SMALL, onset=40),
        replace(SMALL, pattern="now and then"),
        replace(SMALL, stage="forward"),
        replace(SMALL, stage="data"),
        replace(SMALL, ranks=(5,)),
        replace(SMALL, ranks=(0, 1)),
        replace(SMALL, ranks=(8,)),
        replace(RHYTHMIC, ranks=(5,)),
        replace(PAUSE, baseline="history", onset=20),
        replace(PAUSE, stage="data"),
        replace(IN_TURN, onset=40),
        replace(IN_TURN, pattern="now and then"),
        replace(IN_TURN, stage="data"),
        replace(IN_TURN, changing=False),
        replace(IN_TURN, device=True),
    ],
    ids=[
        "slow by much", "saves in each step", "saving became slower then", "a hook in most of few steps",
        "one rank saves for long", "one replica saves since a step for longer",
        "became slow", "no rhythm", "a pass", "data", "another rank", "its neighbour too", "of one host",
        "another rank with a rhythm", "saving became slower", "data of all ranks",
        "became longer in turn", "now and then in turn", "data in turn", "a pass of all ranks", "device time in turn",
    ],
)  # fmt: skip
def test_what_a_sound_job_does_not_show_is_none(culprit: Culprit) -> None:
    assert not is_duty(culprit)


@pytest.mark.parametrize(
    ("stage", "ranks", "alone", "waits"),
    [
        ("forward", (5,), True, False),
        ("forward", (5,), False, True),
        ("forward", (5, 7), False, True),
        ("backward", (5,), True, True),
        ("optimizer", (5,), False, False),
        ("forward", (12,), False, False),
    ],
    ids=["its own work", "another is long too", "those behind it too", "where all wait", "no messages there", "no messages"],
)
def test_ranks_of_a_pipeline_may_wait_in_their_passes(stage: str, ranks: tuple[int, ...], alone: bool, waits: bool) -> None:
    culprit = replace(SMALL, stage=stage, ranks=ranks)
    assert may_wait(culprit, set(range(8)), "backward", alone=alone) is waits


@pytest.mark.parametrize(("changing", "messengers", "waits"), [(True, {0}, True), (True, set(), False), (False, {0}, False)])
def test_ranks_that_are_long_in_turn_may_wait_too(changing: bool, messengers: set[int], waits: bool) -> None:
    culprit = replace(SMALL, stage="forward", ranks=(), changing=changing)
    assert may_wait(culprit, messengers, "backward", alone=False) is waits


@pytest.mark.parametrize(("in_stages_ms", "unstaged"), [(10, True), (90, False)])
def test_what_no_stage_holds_has_the_passes_where_nobody_annotated_them(in_stages_ms: float, unstaged: bool) -> None:
    walls = np.full((2, 4), 100e6)
    durations = np.full((2, 1, 4), in_stages_ms * 1e6)
    matrix = StageMatrix(
        "all ranks", None, "kineto", np.arange(2), tuple(range(4)), (Column("forward"),), durations, walls,
        np.zeros((2, 4), np.int64), None,
    )  # fmt: skip
    in_turn = replace(IN_TURN, stage=RESIDUAL)
    assert is_unstaged(matrix) is unstaged
    assert (duty_of(in_turn, {0}, 0.25, unstaged=unstaged) is not None) is unstaged


@pytest.mark.parametrize(
    ("culprit", "small"),
    [
        (replace(SMALL, stage=RESIDUAL, typical_ns=2.6e6), True),
        (replace(SMALL, stage=RESIDUAL, typical_ns=2e7), False),
        (replace(SMALL, stage=RESIDUAL, typical_ns=2.6e6, onset=4), False),
        (replace(SMALL, stage=RESIDUAL, typical_ns=2.6e6, device=True), False),
        (replace(SMALL, stage="data", typical_ns=2.6e6), False),
    ],
    ids=["a slice of the scheduler", "longer", "since some step", "of its device", "in a stage"],
)
def test_a_thread_that_is_ready_waits_for_a_core_by_milliseconds(culprit: Culprit, small: bool) -> None:
    assert (small_of(replace(culprit, ranks=(2,), share=0.3), 0.1) is not None) is small
