"""Whom the rule of slow stages names over several windows."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from forensics.case.database import insert_rows, new_case
from forensics.rules.engine import find, supply_of, thresholds
from forensics.rules.interface import Thresholds
from forensics.rules.reductions.calls.positions import Communicator, Communicators
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.messages import Messengers
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.several_windows import wait_for_another, wait_for_named
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, judge
from forensics.rules.reductions.frontier.waits import Waiting
from forensics.rules.reductions.pipeline.own_work import Excess, OwnWork
from forensics.vocabulary import Cause
from tests.unit.frontier.jobs import MS, job

STAGES = ("forward", "callbacks", "optimizer", "data")


def named(ranks: int) -> set[tuple[str, tuple[int, ...]]]:
    """Of as many windows of a job of eight ranks, in each another one is slow."""
    rule = find("FX170")
    assert rule is not None
    windows = tuple(FrontierWindow(job(STAGES[rank % 4], rank=rank, seed=rank)) for rank in range(ranks))
    given: dict[object, object] = {FrontierWindows: FrontierWindows(windows), Thresholds: thresholds(rule, {})}
    findings = supply_of(new_case(), None).call(rule.evaluate, given)
    return {(str(finding.stage.name), finding.ranks) for finding in findings if finding.impact}


def test_ranks_that_are_slow_in_different_windows_are_named() -> None:
    assert named(4) == {(stage, (rank,)) for rank, stage in enumerate(STAGES)}


@pytest.mark.parametrize(("delay_ms", "by_design"), [(14.0, True), (40.0, False)], ids=["a slower model", "a slow host"])
def test_ranks_of_a_host_that_cost_less_than_the_gate_are_no_suspects(delay_ms: float, by_design: bool) -> None:
    """Hosts of one job differ: all ranks of one launch their forward pass later, in each step."""
    rule = find("FX170")
    assert rule is not None
    window = FrontierWindow(job("forward", delay_ms=delay_ms, who=lambda _: [2, 3], seed=3))
    given: dict[object, object] = {FrontierWindows: FrontierWindows((window,)), Thresholds: thresholds(rule, {})}
    (finding,) = (each for each in supply_of(new_case(), None).call(rule.evaluate, given) if each.impact)
    assert (finding.ranks, finding.by_design is not None) == ((2, 3), by_design)


EXCESS = Excess(3, (0, 1, 2), 20, 20, 2e8, 1e9, 4e9, None, "3.fr#entry=0")


@pytest.mark.parametrize(
    ("compared", "found", "by_design"),
    [
        (range(8), (), True),
        (range(3), (), False),
        (range(8), (EXCESS,), False),
    ],
    ids=["it works as long as they", "it was not compared", "it works longer"],
)
def test_a_host_that_waits_in_a_stage_is_shown_by_the_work_of_its_rank(
    compared: range, found: tuple[Excess, ...], by_design: bool
) -> None:
    """Hosts that run ahead wait where they meet their device: that is no work of the rank."""
    rule = find("FX170")
    assert rule is not None
    window = FrontierWindow(job("optimizer", rank=3, seed=3))
    given: dict[object, object] = {
        FrontierWindows: FrontierWindows((window,)),
        OwnWork: OwnWork(found, frozenset(compared)),
        Thresholds: thresholds(rule, {}),
    }
    (finding,) = [each for each in supply_of(new_case(), None).call(rule.evaluate, given) if each.impact]
    assert (finding.ranks, bool(finding.by_design)) == ((3,), by_design)


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize(
    ("steps", "seldom", "by_design"), [(2, range(8), True), (2, range(3), False), (12, range(8), False)],
    ids=["a short trace", "longest in the recorders too", "a long trace"],
)  # fmt: skip
def test_who_is_long_in_a_short_trace_alone_may_have_had_more_data(
    steps: int, seldom: range, by_design: bool, device: bool
) -> None:
    rule = find("FX170")
    assert rule is not None
    made = job("data", rank=3, seed=3, steps=steps, delay_ms=300)
    times = np.full((steps, 8), 50 * MS)
    times[:, 3] += 300 * MS
    made = replace(made, device={"forward": times}) if device else made
    given: dict[object, object] = {
        FrontierWindows: FrontierWindows((FrontierWindow(made),)),
        OwnWork: OwnWork(seldom_longest=frozenset(seldom)),
        Thresholds: thresholds(rule, {}),
    }
    found = [each for each in supply_of(new_case(), None).call(rule.evaluate, given) if each.impact]
    assert {(finding.ranks, bool(finding.by_design)) for finding in found} == {((3,), by_design)}


def of_one_window(made: StageMatrix, ranks: int) -> list[tuple[tuple[int, ...], bool]]:
    """The ranks of each finding on one window of eight ranks of a pipeline of so many, and whether a sound job may be so."""
    rule = find("FX170")
    assert rule is not None
    connection = new_case()
    insert_rows(connection, "ranks", "source_id rank host", [(rank, rank, "host") for rank in range(ranks)])
    windows, known = FrontierWindows((FrontierWindow(made),)), Messengers(frozenset(range(ranks)))
    given: dict[object, object] = {FrontierWindows: windows, Messengers: known, Thresholds: thresholds(rule, {})}
    findings = supply_of(connection, None).call(rule.evaluate, given)
    return [(finding.ranks, finding.by_design is not None) for finding in findings if finding.impact]


def test_a_rank_that_is_long_alone_in_a_pass_is_named_in_a_pipeline_too() -> None:
    assert of_one_window(job("forward", rank=3, seed=1), 8) == [((3,), False)]


@pytest.mark.parametrize("delay_ms", [25, 120])
def test_it_may_wait_for_one_that_is_not_seen(delay_ms: float) -> None:
    """The slow rank may be of another stage: then the pass of every rank behind it is long."""
    assert of_one_window(job("forward", rank=3, seed=1, delay_ms=delay_ms), 16) == [((3,), True)]


def test_since_the_pass_became_longer_the_job_is_slow() -> None:
    assert of_one_window(job("forward", rank=3, seed=1, when=lambda step: step >= 60), 16) == [((), False)]


def test_its_data_is_its_own() -> None:
    assert of_one_window(job("data", rank=3, seed=1), 16) == [((3,), False)]


def test_where_most_ranks_would_be_named_none_is() -> None:
    assert named(5) == {(stage, ()) for stage in STAGES}


@pytest.mark.parametrize(
    ("ranks", "confidence", "size", "waits"),
    [
        ((1, 2, 3), "read", 4, True),
        ((0, 1, 2, 3), "read", 4, False),
        ((1, 2), "read", 4, False),
        ((1, 2, 3), "inferred", 4, False),
        ((1, 2, 3), "read", 5, False),
        ((5,), "read", 4, False),
    ],
    ids=["all but one", "all", "half", "members not known", "one not heard of", "one of a pair"],
)
def test_all_members_but_one_wait_for_it(ranks: tuple[int, ...], confidence: str, size: int, waits: bool) -> None:
    groups = (Communicator("1:dp", (0, 1, 2, 3), confidence, {}, size=size), Communicator("2:tp", (4, 5), "read", {}))
    assert wait_for_another(Communicators(groups), ranks) is waits


@pytest.mark.parametrize(
    ("ranks", "stage", "late_ms", "members", "awaited"),
    [
        ((1, 2), "forward", 120, (1, 2, 3), (3,)),
        ((1, 2), "data", 120, (1, 2, 3), ()),
        ((1, 2), "forward", 300, (1, 2, 3), ()),
        ((1, 2), "forward", 120, (1, 2), ()),
        ((1, 2), "forward", 120, tuple(range(8)), ()),
        ((3,), "forward", 120, (1, 2, 3), ()),
    ],
    ids=["mates", "in no pass", "longer than it is late", "no mates", "a group of all", "its own"],
)
def test_who_is_long_in_a_pass_may_wait_for_a_mate_whose_batch_is_late(
    ranks: tuple[int, ...], stage: str, late_ms: float, members: tuple[int, ...], awaited: tuple[int, ...]
) -> None:
    """Batches of rank 3 are 120 ms late; tokens of its group are exchanged in forward."""
    known = judge(FrontierWindow(job("data", rank=3, seed=1)), Gates())
    (late,) = known.attribution.culprits
    long = replace(late, stage=stage, ranks=ranks, typical_ns=late_ms * MS)
    groups = Communicators((Communicator("1:ep", members, "read", {}), Communicator("0:all", tuple(range(8)), "read", {})))
    assert wait_for_named(groups, long, [known]) == awaited


@pytest.mark.parametrize(
    ("later_ms", "noted", "cause"),
    [(0.0, 1.0, Cause.COMPUTE_SLOW), (100.0, 1.0, Cause.UNKNOWN), (0.0, 0.5, Cause.UNKNOWN), (0.0, 0.0, Cause.UNKNOWN)],
    ids=["with the others", "later", "half of the notes are lost", "not noted"],
)
def test_a_device_is_late_where_its_host_had_launched_with_the_others(later_ms: float, noted: float, cause: Cause) -> None:
    """Collectives tell how long each rank worked in the backward pass, and notes when its host had launched it."""
    rule = find("FX170")
    assert rule is not None
    slow = job("backward", arrivals=True)
    waits = np.zeros_like(slow.durations)
    waits[:, 2] = slow.durations[:, 2] - (slow.arrived or {})["backward"] - 15 * MS
    launched = 30 * MS * (1 + 0.03 * np.random.default_rng(1).standard_normal(slow.walls.shape))
    launched[:, 3] += later_ms * MS
    launched[round(noted * len(launched)) :] = np.nan
    made = replace(slow, arrived={"backward": launched} if noted else None, asked={"forward": 100})
    given: dict[object, object] = {
        FrontierWindows: FrontierWindows((FrontierWindow(made, Waiting(waits, 2)),)),
        Thresholds: thresholds(rule, {}),
    }
    (finding,) = [each for each in supply_of(new_case(), None).call(rule.evaluate, given) if each.impact]
    assert (finding.ranks, finding.stage.name, finding.cause) == ((3,), "backward", cause)


@pytest.mark.parametrize(
    ("early_ms", "later_ms", "known", "stage", "cause"),
    [
        (0.0, 0.0, 1.0, "backward", Cause.COMPUTE_SLOW),
        (110.0, 0.0, 1.0, "unknown", Cause.COMPUTE_SLOW),
        (110.0, 100.0, 1.0, "backward", Cause.UNKNOWN),
        (110.0, 0.0, 0.3, "backward", Cause.UNKNOWN),
    ],
    ids=["late behind the first call", "late to the first call", "so is its host", "most calls are not recorded"],
)
def test_a_device_that_is_late_to_the_first_collective_may_be_late_by_forward(
    early_ms: float, later_ms: float, known: float, stage: str, cause: Cause
) -> None:
    """Rank 3 works 120 ms longer in backward, or its device did in forward, by calls that a recorder dates."""
    rule = find("FX170")
    assert rule is not None
    slow = job("backward", arrivals=True)
    waits = np.zeros_like(slow.durations)
    waits[:, 2] = slow.durations[:, 2] - (slow.arrived or {})["backward"] - 15 * MS
    chance = np.random.default_rng(1)
    first, launched = (ms * MS * (1 + 0.03 * chance.standard_normal(slow.walls.shape)) for ms in (early_ms, 30))
    first[:, 3], launched[:, 3] = 0, launched[:, 3] + later_ms * MS
    for each in (first, launched):
        each[: round((1 - known) * len(each))] = np.nan
    made = replace(slow, arrived=None, asked={"forward": 100})
    given: dict[object, object] = {
        FrontierWindows: FrontierWindows((FrontierWindow(made, Waiting(waits, 2, first=first, launched=launched)),)),
        Thresholds: thresholds(rule, {}),
    }
    (finding,) = [each for each in supply_of(new_case(), None).call(rule.evaluate, given) if each.impact]
    assert (finding.ranks, finding.stage.name, finding.cause) == ((3,), stage, cause)


def test_what_a_step_would_take_without_a_slow_rank_is_said() -> None:
    """Steps of 206 ms or so, 120 ms of which one rank costs."""
    rule = find("FX170")
    assert rule is not None
    windows = FrontierWindows((FrontierWindow(job("forward")),))
    given: dict[object, object] = {FrontierWindows: windows, Thresholds: thresholds(rule, {})}
    (finding,) = [each for each in supply_of(new_case(), None).call(rule.evaluate, given) if each.impact]
    said = re.search(r"a step takes (\d+) ms, without that (\d+) ms", finding.evidence[0].statement)
    assert said is not None and 105 < int(said[1]) - int(said[2]) < 135 and 190 < int(said[2]) < 240
