"""Whom the rule of slow stages names over several windows."""

from __future__ import annotations

import pytest

from forensics.case.database import new_case
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


def of_one_window(made: StageMatrix, messengers: set[int]) -> list[tuple[tuple[int, ...], str | None]]:
    """The ranks of each finding on one window of a job whose messengers are known, and why it accuses nobody."""
    rule = find("FX170")
    assert rule is not None
    windows, known = FrontierWindows((FrontierWindow(made),)), Messengers(frozenset(messengers))
    given: dict[object, object] = {FrontierWindows: windows, Messengers: known, Thresholds: thresholds(rule, {})}
    findings = supply_of(new_case(), None).call(rule.evaluate, given)
    return [(finding.ranks, finding.by_design) for finding in findings if finding.impact]


@pytest.mark.parametrize(("stage", "messengers"), [("forward", set()), ("forward", {4}), ("optimizer", {3})])
def test_a_rank_that_waits_for_no_message_in_the_stage_is_named(stage: str, messengers: set[int]) -> None:
    assert of_one_window(job(stage, rank=3, seed=1), messengers) == [((3,), None)]


def test_a_rank_that_may_wait_for_messages_in_its_passes_is_not() -> None:
    """Its pass is as long where the rank that it receives from is the slow one."""
    ((ranks, why),) = of_one_window(job("forward", rank=3, seed=1), {3})
    assert ranks == (3,) and why is not None


def test_since_its_passes_became_longer_the_stage_is_told_without_it() -> None:
    assert of_one_window(job("forward", rank=3, seed=1, when=lambda step: step >= 60), {3}) == [((), None)]


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
