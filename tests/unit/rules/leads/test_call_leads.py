"""A message that gloo refused for its size: who aborted is stated, and nobody is accused of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.collection import Collection, loose, write
from tests.recordings.job import START_NS, Job
from tests.recordings.places import ALL_REDUCE, FORWARD, GRADIENT_HOOK, OTHER_CODE, Place
from tests.recordings.verdicts import named, pasted, verdict_of
from tests.unit.rules.logs.test_given_up_waits import CLOSED, ended, raised

REFUSED = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    "  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. "
    "8 vs 2. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?\n"
)
OTHERS = raised(0, CLOSED, line=31) + raised(2, CLOSED)


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        (REFUSED + OTHERS + ended(r1=-6, r0=-15, r2=-15, r3=-15), True),
        (REFUSED + OTHERS + ended(r0=-15, r2=-15), False),
        (REFUSED + REFUSED + OTHERS + ended(r1=-6, r3=-6), False),
        (OTHERS + ended(r1=-6, r0=-15), False),
    ],
    ids=["one", "who is not known", "two", "another abort"],
)
def test_where_to_look_after_a_message_that_did_not_fit(tmp_path: Path, text: str, stated: bool) -> None:
    verdict = pasted(tmp_path, text)
    said = " ".join(verdict.would_change)
    assert ("rank 1 received more bytes" in said) is stated
    assert not stated or "rank 0 at fit.py:31, rank 2 at fit.py:20" in said
    assert not named(verdict)


def unnamed(folder: Path, job: Job, ranks: int = 4) -> str:
    """The first lead of dumps whose names hold no rank; `b` is of rank 1."""
    loose(job, folder / "raw", form="json", name="{rank}")
    found = {f"dump-{'abcd'[rank]}.json": (folder / f"raw/{rank}").read_bytes() for rank in range(ranks)}
    verdict = verdict_of(write(folder / "handed_in", found))
    assert not verdict.suspects
    return next((lead for lead in verdict.leads if "name no rank" in lead), "")


def test_a_dump_without_a_rank_that_lacks_a_call_is_where_to_begin(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(3)
    job.hang({1})
    assert unnamed(tmp_path, job).startswith(
        "whose dump dump-b.json is: of 4 dumps that name no rank it alone lacks all_reduce"
    )
    assert not unnamed(tmp_path / "two", job, ranks=2), "of two either may be the odd one"


def test_a_dump_without_a_rank_whose_call_differs_is_where_to_begin(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(3)
    job.hang({1})
    job.hang({0, 2, 3}, kind="broadcast")
    assert "dump-b.json is: of 4 dumps that name no rank it alone made broadcast" in unnamed(tmp_path, job)


@pytest.mark.parametrize("absent", [{0, 1}, set()], ids=["two lack it", "all are in it"])
def test_dumps_without_ranks_of_which_none_stands_alone_say_nothing(tmp_path: Path, absent: set[int]) -> None:
    job = Job(4)
    job.steps(3)
    job.hang(absent)
    assert not unnamed(tmp_path, job)


def test_a_dump_of_a_moving_job_that_was_taken_first_is_not_behind(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(3)
    loose(job, tmp_path / "early", [1], form="json", name="dump-b.json")
    for rank, name in ((0, "a"), (2, "c"), (3, "d")):
        job.steps(2)
        loose(job, tmp_path / "early", [rank], form="json", name=f"dump-{name}.json")
    assert not any("name no rank" in lead for lead in verdict_of(tmp_path / "early").leads)


@pytest.mark.parametrize(
    ("main", "second", "said"),
    [(GRADIENT_HOOK, ALL_REDUCE, True), (FORWARD, ALL_REDUCE, False), (GRADIENT_HOOK, OTHER_CODE, False)],
    ids=["both wait", "the main thread works", "the second thread works"],
)
def test_two_threads_in_calls_may_share_a_group(tmp_path: Path, main: Place, second: Place, said: bool) -> None:
    found = Collection(3, START_NS)
    for rank in range(3):
        found.rank(rank)
        found.samples(rank, count=3)
        found.stacks(rank, *[second] * 3, main=main)
    verdict = verdict_of(found.write(tmp_path))
    assert not named(verdict)
    assert any(lead.startswith("the process groups of ranks 0-2: thread") for lead in verdict.leads) is said
