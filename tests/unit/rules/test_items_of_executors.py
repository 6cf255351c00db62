"""Collectives that run in an executor while the main thread waits for the future: an asynchronous checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause
from forensics.rules.reductions.stacks.activity import activity
from forensics.rules.reductions.stacks.call_paths import frame
from forensics.rules.reductions.stacks.working_thread import working_thread
from tests.recordings.collection import Collection
from tests.recordings.job import SECOND
from tests.recordings.places import ALL_REDUCE, CHECKPOINT, HOST_CODE, JOB, LIB, Place
from tests.recordings.verdicts import blamed, leaders, verdict_of

FUTURE: Place = (
    ("Condition.wait", f"{LIB}threading.py", 320),
    ("Future.result", f"{LIB}concurrent/futures/_base.py", 445),
    ("main", JOB, 88),
    ("<module>", JOB, 97),
)
ITEM: Place = (
    ("_WorkItem.run", f"{LIB}concurrent/futures/thread.py", 58),
    ("_worker", f"{LIB}concurrent/futures/thread.py", 83),
    ("Thread.run", f"{LIB}threading.py", 975),
)
GATHERS: Place = (*ALL_REDUCE[:2], *ITEM)
WRITES: Place = (*CHECKPOINT[:2], *ITEM)
UPLOADS: Place = (*HOST_CODE[:1], *ITEM)


def collected(tmp_path: Path, main: Place, item: Place) -> Path:
    """Threads of ranks 0, 1 and 3 gather while their main threads wait for the future; rank 2 is at these places."""
    found = Collection(4, 60 * SECOND)
    for rank in range(4):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[item if rank == 2 else GATHERS] * 3, main=main if rank == 2 else FUTURE)
    return found.write(tmp_path)


def test_the_rank_whose_item_writes_holds_up_those_whose_items_gather(tmp_path: Path) -> None:
    (first,) = leaders(verdict_of(collected(tmp_path, FUTURE, WRITES)))
    assert (first.ranks, first.cause, first.rules) == ((2,), Cause.CHECKPOINT_STALL, ("FX111",))


def test_all_that_gather_name_nobody(tmp_path: Path) -> None:
    assert not blamed(verdict_of(collected(tmp_path, FUTURE, GATHERS)))


def number(main: Place, *threads: Place) -> int | None:
    """Number of the thread that stands for the rank, of one sample."""
    paths = [activity(tuple(frame(*entry) for entry in place)) for place in (main, *threads)]
    return working_thread(paths[:1], {thread: [each] for thread, each in enumerate(paths[1:], 1)})


@pytest.mark.parametrize(
    ("main", "threads", "expected"),
    [
        (FUTURE, (GATHERS,), 1),
        (FUTURE, (GATHERS, ALL_REDUCE), 1),
        (FUTURE, (GATHERS, UPLOADS), None),
        (FUTURE, (UPLOADS,), None),
        (FUTURE, (ALL_REDUCE,), None),
        (HOST_CODE, (GATHERS,), None),
    ],
    ids=["an item", "beside a thread", "two items", "one that works", "a thread", "a main thread at work"],
)
def test_only_the_one_item_can_be_what_a_future_is_of(main: Place, threads: tuple[Place, ...], expected: int | None) -> None:
    assert number(main, *threads) == expected
