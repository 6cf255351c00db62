"""Barriers that a job makes itself, of files it looks for or keys of a store: most ranks rest at one line, one is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.model import Confidence, Verdict
from tests.recordings.collection import Collection
from tests.recordings.job import START_NS
from tests.recordings.places import ALL_REDUCE, HOST_CODE, LOADER_QUEUE, Place
from tests.recordings.verdicts import named, verdict_of, victims

MEET: Place = (("meet", "/srv/job/meeting.py", 17), *HOST_CODE[1:])


def seen(folder: Path, places: Mapping[int, tuple[Place, str]], *, runs: int | None = None) -> Verdict:
    """Three rounds of stacks of four ranks, and in what the kernel has their main threads asleep."""
    found = Collection(4, START_NS)
    for rank, (place, wchan) in places.items():
        found.rank(rank)
        found.samples(rank, wchan=wchan, moving=wchan == "hrtimer_nanosleep" or rank == runs)
        found.stacks(rank, *[place] * 3)
    return verdict_of(found.write(folder))


@pytest.mark.parametrize("wchan", ["hrtimer_nanosleep", "wait_woken"], ids=["looks again and again", "reads from a store"])
def test_the_rank_that_is_elsewhere_is_a_suspect(wchan: str, tmp_path: Path) -> None:
    places = dict.fromkeys((0, 1, 3), (MEET, wchan)) | {2: (HOST_CODE, "futex_do_wait")}
    verdict = seen(tmp_path, places)
    assert named(verdict) == {2} and verdict.suspects[0].confidence is Confidence.SUSPECT
    assert victims(verdict) == dict.fromkeys((0, 1, 3), (2,))


def test_ranks_that_read_while_another_one_waits_for_them_are_no_victims(tmp_path: Path) -> None:
    places = dict.fromkeys((0, 1, 3), (MEET, "wait_woken")) | {2: (ALL_REDUCE, "futex_do_wait")}
    assert 2 not in named(seen(tmp_path, places))


@pytest.mark.parametrize(
    "places",
    [
        dict.fromkeys(range(4), (MEET, "hrtimer_nanosleep")),
        dict.fromkeys((0, 1), (MEET, "wait_woken")) | dict.fromkeys((2, 3), (HOST_CODE, "wait_woken")),
        dict.fromkeys((0, 1, 3), (LOADER_QUEUE, "wait_woken")) | {2: (HOST_CODE, "wait_woken")},
    ],
    ids=["all", "half", "they load data"],
)
def test_what_is_no_barrier_accuses_nobody(places: Mapping[int, tuple[Place, str]], tmp_path: Path) -> None:
    assert not named(seen(tmp_path, places))


def test_a_sound_job_whose_ranks_pause_in_each_step(tmp_path: Path) -> None:
    """Looks find most of them in the pause; the other one has run in between."""
    places = dict.fromkeys((0, 1, 3), (MEET, "hrtimer_nanosleep")) | {2: (HOST_CODE, "futex_do_wait")}
    assert not named(seen(tmp_path, places, runs=2))
