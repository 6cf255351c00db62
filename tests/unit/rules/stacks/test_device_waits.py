"""Ranks that wait for their devices: who launches a collective waits for it in the next call that needs a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Members, Outcome
from tests.recordings.collection import Collection
from tests.recordings.job import SECOND
from tests.recordings.places import ALL_REDUCE, GRADIENT_HOOK, HOST_CODE, JOB, LOADER_QUEUE, SITE, Place
from tests.recordings.verdicts import named, verdict_of

SYNCHRONIZE: Place = (("synchronize", f"{SITE}torch/cuda/__init__.py", 954), ("train_step", JOB, 60), ("<module>", JOB, 97))
VALUE: Place = (("ArrayImpl._value", f"{SITE}jax/_src/array.py", 623), ("train_step", JOB, 60), ("<module>", JOB, 97))


def _collected(tmp_path: Path, *places: Place) -> Path:
    """One rank a place; threads that wait for a device are woken again and again, as drivers ask it."""
    found = Collection(len(places), 60 * SECOND)
    for rank, place in enumerate(places):
        found.rank(rank)
        found.samples(rank, moving=place in (SYNCHRONIZE, VALUE))
        found.stacks(rank, place, place, place)
    return found.write(tmp_path)


@pytest.mark.parametrize("waits", [SYNCHRONIZE, VALUE])
@pytest.mark.parametrize("place", [LOADER_QUEUE, HOST_CODE])
def test_who_is_elsewhere_is_what_the_devices_of_the_others_wait_for(waits: Place, place: Place, tmp_path: Path) -> None:
    verdict = verdict_of(_collected(tmp_path, waits, waits, place, GRADIENT_HOOK if waits is SYNCHRONIZE else waits))
    assert (verdict.outcome, named(verdict)) == (Outcome.HANG, {2})


@pytest.mark.parametrize("places", [(VALUE,) * 4, (VALUE, VALUE, ALL_REDUCE, VALUE), (VALUE, VALUE, ALL_REDUCE, ALL_REDUCE)])
def test_no_rank_alone_is_named_where_all_wait_for_devices_or_for_others(places: tuple[Place, ...], tmp_path: Path) -> None:
    """Several devices at fault at once are less likely than a collective that one of the ranks has not entered."""
    suspects = verdict_of(_collected(tmp_path, *places)).suspects
    assert all((each.ranks, each.members) == ((0, 1, 2, 3), Members.ONE_OF) for each in suspects)
