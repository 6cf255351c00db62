"""Raised and swallowed, held interpreter locks, receives without a sender, and ranks that are only late."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Anomaly, Cause, Members
from tests.recordings.collection import Collection, loose, whole, write
from tests.recordings.job import MILLISECOND, SECOND, Job, as_json
from tests.recordings.places import (
    ALL_REDUCE,
    BARRIER,
    CHECKPOINT,
    FORWARD,
    HOST_CODE,
    LOADER_QUEUE,
    OTHER_CODE,
    RECV,
    SEND,
    Place,
)
from tests.recordings.verdicts import blamed, leaders, named, stated, verdict_of, victims

RAISED = ("Traceback (most recent call last):", '  File "/srv/job/pretrain.py", line 9, in main', "KeyError: 'tokens'")


def stuck(absent: int = 2, world: int = 4) -> Job:
    job = Job(world)
    job.steps(12)
    job.hang({absent})
    return job


def test_a_rank_that_raised_and_idles_is_named_with_its_exception(tmp_path: Path) -> None:
    found = whole(stuck(), {2: HOST_CODE})
    found.log(2, *RAISED)
    verdict = verdict_of(found.write(tmp_path))
    assert (verdict.suspects[0].ranks, verdict.suspects[0].cause) == ((2,), Cause.PYTHON_EXCEPTION)
    assert "KeyError" in stated(verdict)


def test_an_exception_that_every_rank_logs_explains_nobody(tmp_path: Path) -> None:
    found = whole(stuck(), {2: HOST_CODE})
    for rank in range(4):
        found.log(rank, *RAISED)
    verdict = verdict_of(found.write(tmp_path))
    assert {suspect.cause for suspect in verdict.suspects} == {Cause.HOST_STALL}
    assert named(verdict) == {2}


def test_an_exception_of_a_waiting_rank_does_not_accuse_it(tmp_path: Path) -> None:
    found = whole(stuck(), {2: LOADER_QUEUE})
    found.log(1, *RAISED)
    verdict = verdict_of(found.write(tmp_path))
    assert named(verdict) == {2}
    assert verdict.suspects[0].cause is Cause.DATALOADER_STALL


def test_a_lock_held_at_one_place_in_every_sample_is_the_cause(tmp_path: Path) -> None:
    found = whole(stuck(), {2: HOST_CODE})
    found.stacks(2, *[HOST_CODE] * 3, owns_gil=True)
    verdict = verdict_of(found.write(tmp_path))
    assert (verdict.suspects[0].ranks, verdict.suspects[0].cause) == ((2,), Cause.GIL_HELD)
    assert {suspect.fault for suspect in verdict.suspects} == {1}


def test_a_lock_held_at_different_places_is_a_program_that_runs(tmp_path: Path) -> None:
    found = whole(stuck(), {2: HOST_CODE})
    found.stacks(2, HOST_CODE, OTHER_CODE, HOST_CODE, owns_gil=True)
    verdict = verdict_of(found.write(tmp_path))
    assert named(verdict) <= {2}
    assert all(suspect.cause is not Cause.GIL_HELD for suspect in verdict.suspects)


def test_a_waiting_rank_that_owns_the_lock_is_not_accused(tmp_path: Path) -> None:
    found = whole(stuck(), {2: LOADER_QUEUE})
    found.stacks(0, *[ALL_REDUCE] * 3, owns_gil=True)
    assert named(verdict_of(found.write(tmp_path))) == {2}


def test_a_read_that_blocks_with_the_lock_held_is_still_a_read(tmp_path: Path) -> None:
    found = whole(stuck(), {2: LOADER_QUEUE})
    found.stacks(2, *[LOADER_QUEUE] * 3, owns_gil=True)
    assert verdict_of(found.write(tmp_path)).suspects[0].cause is Cause.DATALOADER_STALL


def test_two_ranks_that_both_receive_are_the_root(tmp_path: Path) -> None:
    """gloo records no receive: the stacks of 1 and 2 show one each, and everybody else waits for them."""
    job = Job(4)
    job.steps(8)
    job.hang({1, 2})
    verdict = verdict_of(whole(job, {1: RECV, 2: RECV}).write(tmp_path))
    assert named(verdict) == {1, 2}
    assert leaders(verdict)[0].cause in (Cause.DEADLOCK, Cause.P2P_UNMATCHED)
    assert {0, 3} <= set(victims(verdict))


@pytest.mark.parametrize(
    ("places", "members"),
    [((SEND, RECV, RECV), Members.ONE_OF), ((RECV, RECV, RECV), Members.EACH), ((SEND, RECV), Members.EACH)],
    ids=["a chain", "all receive", "a pair"],
)
def test_of_a_chain_of_sends_and_receives_one_is_at_fault(tmp_path: Path, places: tuple[Place, ...], members: Members) -> None:
    found = Collection(len(places), Job(len(places)).now_ns)
    for rank, place in enumerate(places):
        found.rank(rank)
        found.samples(rank, count=6)
        found.stacks(rank, *[place] * 6)
    (suspect, *_) = leaders(verdict_of(found.write(tmp_path)))
    assert (set(suspect.ranks), suspect.members) == ({*range(len(places))}, members)


def test_a_receive_whose_sender_is_busy_is_its_senders(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(8)
    job.hang({1, 2})
    assert named(verdict_of(whole(job, {1: LOADER_QUEUE, 2: RECV}).write(tmp_path))) == {1}


def moving(late_ms: int, steps: int = 12) -> Collection:
    """Two captures of a job on one host; before each reduction rank 2 needs `late_ms` longer than the others."""
    job = Job(4)
    found = Collection(4, job.now_ns)
    for number in range(2):
        for _ in range(steps):
            job.clocks[2] += late_ms * MILLISECOND
            job.call(job.everyone)
        found.at_ns = job.now_ns + SECOND // 1000
        for rank in range(4):
            found.dump(job, rank, number, found.at_ns)
    for rank in range(4):
        found.rank(rank)
        found.stacks(rank, *[FORWARD if rank == 2 else ALL_REDUCE] * 2)
    return found


def test_a_rank_that_the_others_always_wait_for_is_slow_and_not_stuck(tmp_path: Path) -> None:
    verdict = verdict_of(moving(late_ms=40).write(tmp_path))
    assert verdict.outcome != "hang"
    assert [(suspect.ranks, suspect.anomaly) for suspect in leaders(verdict)] == [((2,), Anomaly.FAIL_SLOW)]


def test_who_works_while_the_others_wait_is_where_to_begin_at_an_even_speed_that_nothing_compares(tmp_path: Path) -> None:
    """A first rank that saves before each barrier is no suspect: whether that should take so long, somebody has to judge."""
    job = Job(4)
    found = Collection(4, job.now_ns)
    for number in range(2):
        for _ in range(12):
            job.call(job.everyone)
            job.clocks[0] += 400 * MILLISECOND
            job.call(job.everyone, "barrier")
        found.at_ns = job.now_ns + SECOND // 1000
        for rank in range(4):
            found.dump(job, rank, number, found.at_ns)
    for rank in range(4):
        found.rank(rank)
        found.stacks(rank, *([CHECKPOINT] * 4 + [HOST_CODE] if rank == 0 else [BARRIER] * 4 + [ALL_REDUCE]))
    verdict = verdict_of(found.write(tmp_path))
    assert not verdict.suspects and verdict.outcome == "inconclusive"
    assert verdict.leads and verdict.leads[0].startswith("what takes rank 0 long: in 5 of 5 rounds"), verdict.leads


def test_a_millisecond_is_not_slow(tmp_path: Path) -> None:
    verdict = verdict_of(moving(late_ms=1).write(tmp_path))
    assert verdict.outcome == "healthy"
    assert not verdict.suspects


@pytest.mark.parametrize("skew_ms", [-80, 80])
def test_a_clock_that_is_ahead_does_not_make_its_rank_late(tmp_path: Path, skew_ms: int) -> None:
    """Files without a host may come from several machines, whose clocks are not compared."""
    job = Job(4)
    job.steps(12)
    skew = {2: skew_ms * MILLISECOND}
    first = loose(job, tmp_path / "first", form="json", name="rank{rank}.fr.0.json", skew_ns=skew)
    job.steps(12)
    second = loose(job, tmp_path / "second", form="json", name="rank{rank}.fr.1.json", skew_ns=skew)
    verdict = verdict_of(first, second)
    assert verdict.outcome == "inconclusive" and "nothing here compares all ranks" in verdict.summary
    assert not verdict.suspects


def test_a_job_with_ranks_that_left_no_record_is_not_called_healthy(tmp_path: Path) -> None:
    """A rank that was slow before the records began delays all others alike."""
    job = Job(4)
    job.steps(12)
    first = loose(job, tmp_path / "first", [0, 1, 3], form="json", name="rank{rank}.fr.0.json")
    job.steps(12)
    second = loose(job, tmp_path / "second", [0, 1, 3], form="json", name="rank{rank}.fr.1.json")
    verdict = verdict_of(first, second)
    assert verdict.outcome == "inconclusive"
    assert "no record of rank 2, whose speed is not known" in verdict.summary


def test_work_that_one_rank_does_now_and_then_is_not_slowness(tmp_path: Path) -> None:
    """Rank 0 logs and evaluates every sixth step."""
    job = Job(4)
    files: dict[str, bytes] = {}
    for number in range(2):
        for step in range(12):
            job.clocks[0] += (200 if step % 6 == 0 else 0) * MILLISECOND
            job.call(job.everyone)
        files |= {f"node-1/rank{rank}.fr.{number}.json": as_json(job.dump(rank)) for rank in range(4)}
    verdict = verdict_of(write(tmp_path, files))
    assert not blamed(verdict)
