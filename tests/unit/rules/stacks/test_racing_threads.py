"""Two threads of each rank that make calls in one communicator: which call comes first is chance, nobody skipped one."""

from __future__ import annotations

from pathlib import Path

from forensics.model import Cause, Verdict
from tests.recordings.collection import loose
from tests.recordings.job import MAIN_THREAD, Job
from tests.recordings.verdicts import leaders, named, stated, verdict_of

METRIC = ((1,),)
WRITER, AUTOGRAD = "python 139992000000001", "pt_autograd_0 139992000000002"


def crossed(folder: Path, second: str, *, main_goes_on: bool = True) -> Verdict:
    """Rank 0 makes the gather of the thread `second` before its reduction, the others after theirs."""
    job = Job(3)
    job.steps(30)
    job.call(job.everyone, "all_gather", (0,), done=False, shapes=METRIC, thread=second)
    job.call(job.everyone, "all_reduce", (1, 2), done=False)
    if main_goes_on:
        job.call(job.everyone, "all_reduce", (0,), done=False)
    job.call(job.everyone, "all_gather", (1, 2), done=False, shapes=METRIC, thread=second)
    return verdict_of(loose(job, folder))


def test_threads_that_share_a_communicator_are_no_fault_of_the_rank_whose_thread_was_first(tmp_path: Path) -> None:
    verdict = crossed(tmp_path, WRITER)
    (first,) = leaders(verdict)
    assert (first.ranks, first.cause, first.rules) == ((0, 1, 2), Cause.COLLECTIVE_MISMATCH, ("FX121",))
    assert "ranks 1-2 issued all_reduce from one thread, then all_gather from another, from number 31" in stated(verdict)


def test_calls_of_one_thread_have_one_order_and_a_rank_may_have_left_it(tmp_path: Path) -> None:
    verdict = crossed(tmp_path, MAIN_THREAD)
    assert named(verdict) == {0}


def test_the_main_thread_waits_for_threads_of_autograd(tmp_path: Path) -> None:
    assert named(crossed(tmp_path, AUTOGRAD)) == {0}


def test_a_rank_that_never_makes_the_other_call_may_have_skipped_it(tmp_path: Path) -> None:
    assert named(crossed(tmp_path, WRITER, main_goes_on=False)) == {0}
