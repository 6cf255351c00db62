"""Dumps that are not of this job are left out, said so, and never turned into an accusation."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Outcome
from tests.recordings.collection import loose, write
from tests.recordings.job import SECOND, Job, as_json, as_pickle
from tests.recordings.verdicts import named, verdict_of, warned

HOUR = 3600 * SECOND


def hung(world: int = 4, absent: int = 2, steps: int = 20) -> Job:
    job = Job(world)
    job.steps(steps)
    job.hang({absent})
    return job


def another_program(world: int) -> Job:
    """The same groups at the same time, but other operations."""
    job = Job(world)
    for step in range(20):
        job.call(job.everyone, "all_gather", shapes=((step + 1, 7),))
    return job


def refused(*paths: Path) -> dict[str, str]:
    """Files that were turned away, with the reason."""
    rows = open_case(list(paths)).execute("SELECT path, reason FROM sources WHERE status = 'rejected'").fetchall()
    return dict(rows)


def test_a_dump_from_hours_ago_is_left_out(tmp_path: Path) -> None:
    loose(hung(), tmp_path, ranks=(0, 1, 2))
    folder = loose(hung(), tmp_path, ranks=(3,), skew_ns={3: -5 * HOUR})
    ((path, (message,)),) = warned(verdict_of(folder)).items()
    assert path == "nccl_trace_rank_3" and "hours" in message


def test_a_stale_dump_of_the_hung_rank_leaves_it_without_evidence(tmp_path: Path) -> None:
    """Rank 2 left nothing this time: it stays the suspect, and the old dump does not excuse it or its peers."""
    loose(hung(), tmp_path, ranks=(0, 1, 3))
    verdict = verdict_of(loose(hung(absent=1, steps=40), tmp_path, ranks=(2,), skew_ns={2: -9 * HOUR}))
    assert verdict.suspects[0].ranks == (2,)
    assert named(verdict) == {2}


def test_skewed_clocks_of_one_job_are_no_reason(tmp_path: Path) -> None:
    assert refused(loose(hung(), tmp_path, skew_ns={1: 40 * SECOND, 2: -35 * SECOND})) == {}


def test_a_dump_of_another_program_at_the_same_time_is_left_out(tmp_path: Path) -> None:
    loose(hung(), tmp_path, ranks=(0, 1, 2))
    """It is warned of by name, and counts as evidence that is not there."""
    verdict = verdict_of(loose(another_program(4), tmp_path, ranks=(3,)))
    ((path, (message,)),) = warned(verdict).items()
    assert path == "nccl_trace_rank_3"
    assert message.startswith("left out: ") and "another job" in message
    recorder = next(row for row in verdict.coverage if row.kind == "flight recorder")
    assert (recorder.present, [subject for subject, _ in recorder.absent]) == (("0", "1", "2"), ["3"])


def test_a_rank_that_mismatches_once_is_no_other_program(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(20)
    job.call(job.everyone, "broadcast", (2,), done=False)
    job.call(job.everyone, "all_reduce", (0, 1, 3), done=False)
    assert refused(loose(job, tmp_path)) == {}


def test_of_two_processes_with_one_rank_the_one_among_its_peers_stays(tmp_path: Path) -> None:
    """A restarted attempt left a dump of rank 1 from minutes before."""
    job = hung()
    files = {f"nccl_trace_rank_{rank}": as_pickle(job.dump(rank)) for rank in range(4)}
    files["old/nccl_trace_rank_1"] = as_pickle(hung(absent=3, steps=12).dump(1, skew_ns=-600 * SECOND))
    folder = write(tmp_path, files)
    verdict = verdict_of(folder)
    ((path, (message,)),) = warned(verdict).items()
    assert path == "old/nccl_trace_rank_1" and "nccl_trace_rank_1" in message
    assert named(verdict) == {2}


def test_a_dump_of_the_same_time_under_the_number_of_another_rank_may_be_of_a_missing_one(tmp_path: Path) -> None:
    """Ranks 2 and 3 left dumps, under names that say 0 and 1: neither is called silent for that."""
    job = Job(4, "gloo")
    job.call(job.everyone, "all_gather", shapes=((1,),))
    job.steps(20)
    job.hang({2, 3})
    dumps = {rank: job.dump(rank) for rank in range(4)}
    for dump in dumps.values():
        dump["entries"][0]["output_sizes"] = [[4, 1]]
    files = {f"{rank}_{sample}.json": as_json(dumps[rank]) for rank in dumps for sample in range(2)}
    verdict = verdict_of(write(tmp_path, files))
    assert set(warned(verdict)) & {"2_0.json", "3_1.json"}
    assert named(verdict) == set()


def test_two_dumps_of_one_process_are_two_looks(tmp_path: Path) -> None:
    job = hung()
    files = {f"rank{rank}.fr.0.json": as_json(job.dump(rank)) for rank in range(4)}
    job.steps(1)
    files |= {f"rank{rank}.fr.1.json": as_json(job.dump(rank)) for rank in range(4)}
    with open_case([write(tmp_path, files)]) as connection:
        rows = connection.execute("SELECT DISTINCT rank, snapshot FROM operations ORDER BY ALL").fetchall()
    assert rows == [(rank, number) for rank in range(4) for number in (0, 1)]


def test_of_two_camps_of_equal_size_neither_is_taken_for_the_job(tmp_path: Path) -> None:
    """Nothing shows which of the two is meant: nobody is accused, and every file is stated."""
    loose(hung(), tmp_path, ranks=(0, 1))
    verdict = verdict_of(loose(hung(), tmp_path, ranks=(2, 3), skew_ns={2: -7 * HOUR, 3: -7 * HOUR}))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert named(verdict) == set()
    assert set(warned(verdict)) == {f"nccl_trace_rank_{rank}" for rank in range(4)}


def test_the_newest_of_two_attempts_of_all_ranks_is_the_job(tmp_path: Path) -> None:
    """Where it runs again, an attempt leaves its dumps beside those of the one before; one rank left none this time."""
    before = Job(4)
    before.steps(9)
    loose(before, tmp_path, name="old/nccl_trace_rank_{rank}", skew_ns=dict.fromkeys(range(4), -24 * HOUR))
    folder = loose(hung(), tmp_path, ranks=(0, 1, 2))
    verdict = verdict_of(folder)
    assert set(warned(verdict)) == {f"old/nccl_trace_rank_{rank}" for rank in range(4)}
    assert named(verdict) == {2}


def test_a_few_later_dumps_are_of_another_job(tmp_path: Path) -> None:
    loose(hung(), tmp_path)
    later = Job(4)
    later.steps(20)
    ahead = dict.fromkeys(range(2), 24 * HOUR)
    folder = loose(later, tmp_path, ranks=(0, 1), name="later/nccl_trace_rank_{rank}", skew_ns=ahead)
    verdict = verdict_of(folder)
    assert set(warned(verdict)) == {"later/nccl_trace_rank_0", "later/nccl_trace_rank_1"}
    assert named(verdict) == {2}


@pytest.mark.parametrize(("hours", "is_left_out"), [(-24, True), (0, False)])
def test_dumps_from_before_the_logs_are_of_an_earlier_attempt(hours: int, is_left_out: bool, tmp_path: Path) -> None:
    logs = Path(__file__).parents[3] / "fixtures/scenarios/behind-in-shim-logs/bundle.tar.zst"
    job = Job(4)
    job.steps(20)
    ((begin,),) = open_case([logs]).execute("SELECT max(end_ns) FROM coverage WHERE kind = 'shim_log'").fetchall()
    skew = dict.fromkeys(range(4), begin - job.now_ns + hours * HOUR)
    folder = loose(job, tmp_path, skew_ns=skew)
    verdict = verdict_of(folder, logs)
    left_out = [message for messages in warned(verdict).values() for message in messages if message.startswith("left out: ")]
    assert len(left_out) == (4 if is_left_out else 0)
    assert named(verdict) == ({1} if is_left_out else set())


ENDED = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/w/train.py", line 9, in <module>
[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered
"""
WAITED = (
    "[rank{0}]:[E1209 11:48:22.67 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=912, OpType=ALLREDUCE, NumelIn=54, NumelOut=54, Timeout(ms)=600000) ran for 600019 milliseconds "
    "before timing out.\n"
)


def slurm_logs(folder: Path, jobs: tuple[int, ...]) -> None:
    """Rank 1 ends by an error of its own, the others give up waiting."""
    for rank, job in enumerate(jobs):
        end = ENDED if rank == 1 else WAITED.format(rank)
        (folder / f"out_{rank}.txt").write_text(f"SLURM_JOB_ID={job} SLURM_PROCID={rank}\n{end}")


@pytest.mark.parametrize(
    ("jobs", "blamed"), [((5530, 5530, 5530, 5530), {1}), ((5530, 5531, 5530, 5530), {1}), ((5530, 5112, 5530, 5530), set())]
)
def test_a_log_of_another_job_is_left_out(tmp_path: Path, jobs: tuple[int, ...], blamed: set[int]) -> None:
    slurm_logs(tmp_path, jobs)
    assert named(verdict_of(tmp_path)) == blamed
    assert set(refused(tmp_path)) == (set() if blamed else {"out_1.txt"})
    assert bool(warned(verdict_of(tmp_path))) is not bool(blamed)


def test_logs_of_two_jobs_without_a_majority_are_kept(tmp_path: Path) -> None:
    slurm_logs(tmp_path, (5530, 5112, 5530, 5112))
    assert not refused(tmp_path)
