"""A rank that alone works in rounds of stacks is where to begin, in a job of which nothing shows that it is slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.recordings.collection import Collection
from tests.recordings.job import START_NS
from tests.recordings.places import ALL_REDUCE, BARRIER, FORWARD, HOST_CODE, OTHER_CODE, Place
from tests.recordings.verdicts import verdict_of

ALONE = (FORWARD, OTHER_CODE, HOST_CODE)


def _first_lead(busy: Mapping[int, Sequence[Place]], world: int, tmp_path: Path) -> str:
    found = Collection(world, START_NS)
    for rank in range(world):
        found.rank(rank)
        places = busy.get(rank, [ALL_REDUCE] * len(busy[min(busy)]))
        found.samples(rank, count=len(places), moving=True)
        found.stacks(rank, *places)
    verdict = verdict_of(found.write(tmp_path))
    assert not verdict.suspects
    return next(iter(verdict.leads), "")


@pytest.mark.parametrize(
    ("rounds", "often"),
    [(ALONE, "3 of 3"), ((*ALONE, ALL_REDUCE), "3 of 4"), ((ALL_REDUCE, *ALONE), "3 of 4")],
    ids=["always", "waits at last", "waits at first"],
)
def test_who_works_alone_is_where_to_begin(rounds: Sequence[Place], often: str, tmp_path: Path) -> None:
    lead = _first_lead({2: rounds}, 4, tmp_path)
    assert lead.startswith(f"what takes rank 2 long: in {often} rounds of stacks it alone is at work (3 times in ")
    assert "(pretrain.py:" in lead


def test_rounds_in_which_all_work_count_for_nobody(tmp_path: Path) -> None:
    together = {rank: (FORWARD, *[ALL_REDUCE] * 3) for rank in (0, 1, 3)}
    assert "rank 2 long: in 3 of 4 rounds" in _first_lead({2: (FORWARD, *ALONE), **together}, 4, tmp_path)


@pytest.mark.parametrize(
    ("busy", "world"),
    [
        ({2: ALONE[:2]}, 4),
        ({2: (*ALONE, ALL_REDUCE), 1: (*[ALL_REDUCE] * 3, HOST_CODE)}, 4),
        ({1: ALONE}, 2),
        ({0: ALONE, **dict.fromkeys((1, 2, 3), (BARRIER,) * 3)}, 4),
    ],
    ids=["two rounds of four ranks", "in turns", "two ranks", "late to a barrier"],
)
def test_a_sound_job_has_no_such_rank(busy: Mapping[int, Sequence[Place]], world: int, tmp_path: Path) -> None:
    assert "rounds of stacks" not in _first_lead(busy, world, tmp_path)
