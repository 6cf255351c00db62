"""A rank that works in every round of stacks while its peers wait, in a job that became slower; and what looks alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Outcome, StageName
from tests.recordings.paper_stacks import became_slower
from tests.recordings.places import ALL_REDUCE, BARRIER, CHECKPOINT, FORWARD, HOST_CODE, LOADER_QUEUE, Place
from tests.recordings.verdicts import verdict_of

ALONE = (FORWARD, FORWARD, FORWARD)


@pytest.mark.parametrize(
    ("places", "cause", "stage"),
    [
        (ALONE, Cause.UNKNOWN, StageName.FORWARD),
        ((ALL_REDUCE, *ALONE), Cause.UNKNOWN, StageName.FORWARD),
        ((LOADER_QUEUE,) * 3, Cause.DATALOADER_STALL, StageName.DATA),
    ],
    ids=["always", "all wait once", "loads data"],
)
def test_the_rank_that_alone_works_is_a_suspect(
    places: Sequence[Place], cause: Cause, stage: StageName, tmp_path: Path
) -> None:
    verdict = verdict_of(became_slower({2: places}, 4).write(tmp_path))
    (first,) = verdict.suspects
    assert (verdict.outcome, first.ranks, first.rules) == (Outcome.SLOWDOWN, (2,), ("FX176",))
    assert (first.cause, first.stage.name, first.confidence) == (cause, stage, Confidence.SUSPECT)


@pytest.mark.parametrize(
    ("busy", "world", "slower"),
    [
        ({2: ALONE}, 4, 1.0),
        ({2: (FORWARD, ALL_REDUCE, FORWARD)}, 4, 3.0),
        ({2: ALONE, 1: (ALL_REDUCE, HOST_CODE, ALL_REDUCE)}, 4, 3.0),
        ({2: (FORWARD, FORWARD, ALL_REDUCE), 1: (ALL_REDUCE, ALL_REDUCE, FORWARD)}, 4, 3.0),
        ({1: ALONE}, 2, 3.0),
        ({0: (CHECKPOINT,) * 3, **dict.fromkeys((1, 2, 3), (BARRIER,) * 3)}, 4, 3.0),
    ],
    ids=["even speed", "two rounds of four ranks", "another works too", "in turns", "two ranks", "late to a barrier"],
)
def test_what_looks_alike_is_not_called_slow(
    busy: Mapping[int, Sequence[Place]], world: int, slower: float, tmp_path: Path
) -> None:
    verdict = verdict_of(became_slower(busy, world, slower).write(tmp_path))
    assert not [suspect for suspect in verdict.suspects if "FX176" in suspect.rules]


@pytest.mark.parametrize(("shared", "named"), [(1, [2]), (2, [])], ids=["one moment of another", "two at work as often as not"])
def test_another_one_may_be_met_at_work_once_in_five_rounds(shared: int, named: list[int], tmp_path: Path) -> None:
    beside = (HOST_CODE,) * shared + (ALL_REDUCE,) * (5 - shared)
    verdict = verdict_of(became_slower({2: (FORWARD,) * 5, 1: beside}, 4).write(tmp_path))
    assert [rank for suspect in verdict.suspects if "FX176" in suspect.rules for rank in suspect.ranks] == named


def test_two_rounds_are_enough_of_sixteen_ranks(tmp_path: Path) -> None:
    verdict = verdict_of(became_slower({5: (FORWARD, ALL_REDUCE, FORWARD)}, 16).write(tmp_path))
    assert [suspect.ranks for suspect in verdict.suspects] == [(5,)]
