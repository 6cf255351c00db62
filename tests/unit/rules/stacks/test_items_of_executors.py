"""Work in an executor or a pool for whose result the main thread waits: an asynchronous checkpoint, a tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause
from forensics.rules.reductions.stacks.activity import activity
from forensics.rules.reductions.stacks.call_paths import frame
from forensics.rules.reductions.stacks.working_thread import working_thread
from tests.recordings.collection import Collection
from tests.recordings.job import SECOND
from tests.recordings.places import ALL_REDUCE, CHECKPOINT, HOST_CODE, JOB, LIB, SITE, Place
from tests.recordings.verdicts import blamed, leaders, verdict_of

FUTURE: Place = (
    ("Condition.wait", f"{LIB}threading.py", 320),
    ("Future.result", f"{LIB}concurrent/futures/_base.py", 445),
    ("main", JOB, 88),
    ("<module>", JOB, 97),
)
SERVES: Place = (*FUTURE[:2], ("Worker.main_loop", f"{SITE}actors/worker.py", 1069))
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


MAPS: Place = (
    ("Condition.wait", f"{LIB}threading.py", 320),
    ("ApplyResult.get", f"{LIB}multiprocessing/pool.py", 768),
    ("Pool.map", f"{LIB}multiprocessing/pool.py", 367),
    ("main", JOB, 80),
    ("<module>", JOB, 97),
)


def tokenizes(line: int) -> Place:
    """A worker of the pool, forked from the rank."""
    return (
        ("tokenize", "/srv/job/tokens.py", line),
        ("worker", f"{LIB}multiprocessing/pool.py", 125),
        ("BaseProcess._bootstrap", f"{LIB}multiprocessing/process.py", 314),
        *MAPS[-2:],
    )


@pytest.mark.parametrize(("lines", "is_shown"), [((9, 9, 9), True), ((9, 11, 9), False)], ids=["stays", "goes on"])
def test_the_worker_that_stays_in_code_of_the_job_is_shown(tmp_path: Path, lines: tuple[int, ...], is_shown: bool) -> None:
    found = Collection(4, 60 * SECOND)
    for rank in range(4):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[MAPS if rank == 2 else ALL_REDUCE] * 3)
    for sample, line in enumerate(lines):
        found.child(2, tokenizes(line), 9001, sample)
    (first,) = leaders(verdict_of(found.write(tmp_path)))
    assert (first.ranks, first.rules) == ((2,), ("FX117",))
    shown = [each.statement for each in first.evidence if each.statement.startswith("child process 9001 of rank 2 at tokenize")]
    assert (len(shown), "child process 9001" in first.next_steps[0]) == (is_shown, is_shown)


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
        (SERVES, (HOST_CODE,), 1),
    ],
    ids=[
        "an item",
        "beside a thread",
        "two items",
        "one that works",
        "a thread",
        "at work",
        "a library that waits",
    ],
)
def test_only_the_one_item_can_be_what_a_future_is_of(main: Place, threads: tuple[Place, ...], expected: int | None) -> None:
    assert number(main, *threads) == expected
