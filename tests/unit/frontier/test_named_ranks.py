"""Whom the rule of slow stages names over several windows."""

from __future__ import annotations

import pytest

from forensics.case.database import insert_rows, new_case
from forensics.rules.engine import find, supply_of, thresholds
from forensics.rules.interface import Thresholds
from forensics.rules.reductions.calls.positions import Communicator, Communicators
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.messages import Messengers
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.slow.stage_slow import wait_for_another
from tests.unit.frontier.jobs import job

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
