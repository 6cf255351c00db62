"""Which stage and rank the group lost its time to: cut where ranks meet, and only what recurs is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.frontier.culprits import attribute
from forensics.rules.reductions.frontier.cut import Cut
from forensics.rules.reductions.frontier.duties import duty_of
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import Column
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, judge, regimes
from forensics.rules.reductions.frontier.waits import Waiting
from tests.unit.frontier.jobs import MS, blamed, job, judged


@pytest.mark.parametrize("ranks", [4, 8, 32])
@pytest.mark.parametrize("stage", ["data", "forward", "callbacks", "optimizer", "other"])
def test_every_stage_of_one_rank_is_found_before_and_after_the_meeting(stage: str, ranks: int) -> None:
    found = judged(job(stage, ranks=ranks, steps=60))
    (culprit,) = found.attribution.culprits
    assert (culprit.stage, culprit.ranks, found.attribution.sync) == (stage, (3,), "backward")
    assert 0.25 < culprit.share < 0.45


@pytest.mark.parametrize("seed", range(20))
def test_the_stage_before_a_wait_is_recovered(seed: int) -> None:
    stage = ("data", "forward", "callbacks", "optimizer")[seed % 4]
    assert blamed(job(stage, rank=seed % 8, seed=seed, steps=40)) == [(stage, (seed % 8,))]


def test_inside_the_meeting_the_rank_needs_arrivals_or_collectives() -> None:
    assert blamed(job("backward")) == []
    assert blamed(job("backward", arrivals=True)) == [("backward", (3,))]
    slow = job("backward", arrivals=True)
    own = (slow.arrived or {})["backward"]
    waits = np.zeros_like(slow.durations)
    waits[:, 2] = slow.durations[:, 2] - own - 15 * MS
    known = judge(FrontierWindow(replace(slow, arrived=None), Waiting(waits, 2)), Gates())
    assert [(c.stage, c.ranks) for c in known.attribution.culprits] == [("backward", (3,))]
    assert known.attribution.waits == "collectives"


def test_a_late_onset_names_the_stage_even_where_the_rank_is_not_seen() -> None:
    found = judged(job("backward", when=lambda step: step >= 60)).attribution
    (culprit,) = found.culprits
    assert (culprit.stage, culprit.ranks, culprit.onset) == ("backward", (), 60)


def test_all_ranks_becoming_slow_is_nobodys_fault() -> None:
    found = judged(job("forward", when=lambda step: step >= 50, who=lambda _: slice(None))).attribution
    (culprit,) = found.culprits
    assert (culprit.stage, culprit.ranks, culprit.onset) == ("forward", (), 50)


def test_changing_ranks_name_the_stage_and_no_rank() -> None:
    chance = np.random.default_rng(5)
    late = chance.integers(0, 8, 120)
    (culprit,) = judged(job("data", who=lambda step: int(late[step]))).attribution.culprits
    assert (culprit.stage, culprit.ranks, culprit.changing) == ("data", (), True)


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_that_somebody_is_always_last_says_nothing_in_few_steps(steps: int) -> None:
    """One rank that recurs is another matter."""
    assert blamed(job("data", delay_ms=300, steps=steps, who=lambda step: step)) == []
    assert blamed(job("data", delay_ms=300, steps=steps)) == [("data", (3,))]


def test_a_spike_every_tenth_step_is_seen_and_its_rhythm_stated() -> None:
    (culprit,) = judged(job("callbacks", delay_ms=700, when=lambda step: step % 10 == 0)).attribution.culprits
    assert (culprit.stage, culprit.ranks, culprit.pattern) == ("callbacks", (3,), "every 10 steps")


def test_a_delay_that_the_device_hides_stays_unnamed() -> None:
    assert blamed(job("callbacks", absorbed=True, delay_ms=60, when=lambda step: step % 3 == 0)) == []


def test_a_small_delay_is_no_charge() -> None:
    assert blamed(job("data", delay_ms=6)) == []


def test_ranks_of_several_hosts_have_no_common_clock() -> None:
    found = judged(job("data", one_clock=False)).attribution
    assert found.method in ("regular", "assumed")
    assert [(c.stage, c.ranks) for c in found.culprits] == [("data", (3,))]


def test_without_times_nobody_is_named() -> None:
    found = judged(replace(job("data"), ends=None)).attribution
    assert found.culprits == () and found.reason


def test_steps_since_a_change_have_an_account_of_their_own() -> None:
    window = FrontierWindow(job("data", when=lambda step: step >= 80))
    whole, late = regimes(window, Gates())
    shares = [dict(zip(each.examined.stages, each.examined.shares or (), strict=True)) for each in (whole, late)]
    assert late.matrix.steps[0] == 80 and late.attribution is whole.attribution
    assert shares[0]["data"] < shares[1]["data"] == pytest.approx(125 / 326, abs=0.03)
    assert len(regimes(FrontierWindow(job("data")), Gates())) == 1


def test_device_work_since_a_change_is_what_counts() -> None:
    slow = job("backward", when=lambda step: step >= 90)
    device = np.full((120, 8), 50 * MS)
    device[90:, 3] += 120 * MS
    beside = {"optimizer": np.full((120, 8), np.nan), "forward": device}
    found = judged(replace(slow, device=beside, asked={"forward": 960, "optimizer": 960})).attribution
    assert [(c.stage, c.ranks, c.device) for c in found.culprits] == [("forward", (3,), True)]


@pytest.mark.parametrize(
    ("is_slow", "rows", "named"),
    [(True, 4, [("backward", (3,), True)]), (True, 3, [("optimizer", (3,), False)]), (False, 4, [])],
    ids=["in every step", "in some", "nobody else says so"],
)
def test_kernels_of_few_steps_tell_the_pass_of_a_rank_that_is_late(
    is_slow: bool, rows: int, named: list[tuple[str, tuple[int, ...], bool]]
) -> None:
    """A trace holds every kernel; sequences that are longer on one rank for a step or two accuse nobody."""
    late = job("optimizer", steps=4, when=lambda _: is_slow)
    device = {stage: np.full((4, 8), 50 * MS) for stage in ("forward", "backward")}
    device["forward"][:rows, 3] += 60 * MS
    device["backward"][:rows, 3] += 90 * MS
    device["backward"][rows:, 2] = device["forward"][rows:, 2] = 300 * MS
    found = judged(replace(late, device=device, asked={})).attribution
    assert [(c.stage, c.ranks, c.device) for c in found.culprits] == named


@pytest.mark.parametrize(("rank", "usual"), [(3, False), (0, True)])
def test_kernels_in_no_stage_tell_a_slow_device_and_may_be_a_duty_of_the_first_rank(rank: int, usual: bool) -> None:
    device = np.full((6, 8), 50 * MS)
    device[:, rank] += 60 * MS
    (found,) = judged(replace(job(steps=6), device={"other": device}, asked={})).attribution.culprits
    assert (found.stage, found.ranks, found.device) == ("other", (rank,), True)
    assert (duty_of(found, {0}, 0.4) is not None) is usual


@pytest.mark.parametrize(("slow", "named"), [((2, 5), (2, 5)), ((1, 2, 5), (1,))], ids=["two", "more than a quarter"])
def test_devices_that_are_alike_slow_are_named_together(slow: tuple[int, ...], named: tuple[int, ...]) -> None:
    """The steps end no sooner without one of them alone; where many are, the slowest is the one that it begins with."""
    device = np.full((6, 8), 50 * MS)
    device[:, slow] += 60 * MS
    device[:, slow[0]] += 5 * MS
    found = judged(replace(job(steps=6), device={"backward": device}, asked={})).attribution
    assert [(c.stage, c.ranks) for c in found.culprits] == [("backward", named)]


def test_device_work_that_shows_later_goes_back_to_its_stage_and_rank() -> None:
    slow = job("backward")
    device = np.full((120, 8), 50 * MS)
    device[:, 3] += 120 * MS
    device[1::2] = np.nan
    found = judged(replace(slow, device={"forward": device}, asked={"forward": 480})).attribution
    assert [(c.stage, c.ranks, c.device) for c in found.culprits] == [("forward", (3,), True)]


def of_equals(ranks: int, *, host: int = 0, slower: float = 0.0, seed: int = 0) -> list[tuple[int, ...]]:
    """The ranks named in a window of equal ranks whose passes vary, from step to step and from board to board, by 3 %.

    The first `host` ranks, on a host of their own, are slower by a part of their time.
    """
    chance = np.random.default_rng(seed)
    usual = np.array([10e6, 100e6, 250e6])[None, :, None] * (1 + 0.03 * chance.standard_normal((100, 3, ranks)))
    work = usual * (1 + 0.03 * chance.standard_normal((1, 1, ranks)))
    work[:, :, :host] *= 1 + slower
    columns = tuple(map(Column, ("data", "forward", "backward")))
    lengths, segments = work.sum(axis=1).max(axis=1), (slice(0, 3),)
    found = Cut(
        "backward", "collectives", "collectives", columns, segments, work, np.arange(100), lengths, tuple(range(ranks)), True
    )
    return [culprit.ranks for culprit in attribute(job(ranks=ranks, steps=100), found, Gates()).culprits if culprit.ranks]


@pytest.mark.parametrize(("ranks", "host", "slower"), [(128, 0, 0.0), (128, 8, 0.03), (32, 8, 0.03), (512, 0, 0.0)])
def test_of_many_equal_ranks_somebody_is_always_last(ranks: int, host: int, slower: float) -> None:
    """Taking out those that are last most often wins little: the next ones are nearly as late."""
    assert [named for seed in range(3) for named in of_equals(ranks, host=host, slower=slower, seed=seed)] == []


@pytest.mark.parametrize("host", [1, 8])
def test_ranks_that_are_later_than_all_that_vary_are_named(host: int) -> None:
    assert of_equals(128, host=host, slower=0.4) == [tuple(range(host))] * 2
