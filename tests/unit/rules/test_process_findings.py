"""Processes that are gone or stopped while their peers wait, and the cases that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Outcome
from tests.recordings.collection import Collection, pid_of, whole
from tests.recordings.job import SECOND, Job
from tests.recordings.places import ALL_REDUCE, FORWARD, HOST_CODE, LOADER_QUEUE, TEARDOWN
from tests.recordings.verdicts import leaders, named, stated, verdict_of, victims

LOST_PEER = (
    "Traceback (most recent call last):",
    '  File "/srv/job/pretrain.py", line 97, in <module>',
    "RuntimeError: [/src/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:9114. This is typically caused "
    "by a remote worker crashing.",
)
MAIN = '"/srv/job/pretrain.py", line 9, in <module>'
OUT_OF_MEMORY = (
    "Traceback (most recent call last):",
    '  File "/srv/job/pretrain.py", line 97, in <module>',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
)


def stuck(absent: int = 2, world: int = 4) -> Job:
    job = Job(world)
    job.steps(12)
    job.hang({absent})
    return job


def with_rank_gone(state: str = "absent", *, exit_signal: int | None = None, exit_code: int | None = None) -> Collection:
    """Rank 2 has no process (any more); the others wait for it."""
    job = stuck()
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in (0, 1, 3):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[ALL_REDUCE] * 3)
        found.dump(job, rank)
    found.rank(2, state, exit_signal=exit_signal, exit_code=exit_code)
    return found


@pytest.mark.parametrize("state", ["absent", "zombie"])
def test_a_rank_without_a_living_process_is_named(tmp_path: Path, state: str) -> None:
    verdict = verdict_of(with_rank_gone(state).write(tmp_path))
    (first,) = verdict.suspects
    assert (first.ranks, first.cause, first.confidence) == ((2,), Cause.PROCESS_DEAD, Confidence.CONFIRMED)
    assert victims(verdict) == {0: (2,), 1: (2,), 3: (2,)}


def test_an_exit_without_error_is_a_missing_collective(tmp_path: Path) -> None:
    """The rank ran out of work and left while its peers went on."""
    verdict = verdict_of(with_rank_gone(exit_code=0).write(tmp_path))
    assert verdict.suspects[0].ranks == (2,)
    assert verdict.suspects[0].cause is Cause.EXTRA_OR_MISSING_COLLECTIVE


def test_the_exception_that_ended_it_is_the_cause(tmp_path: Path) -> None:
    found = with_rank_gone(exit_code=1)
    found.log(2, *OUT_OF_MEMORY)
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects[0].cause is Cause.PYTHON_EXCEPTION
    assert "CUDA out of memory" in stated(verdict)


@pytest.mark.parametrize(
    ("frames", "stage"),
    [
        ((MAIN, '"/opt/x/site-packages/torch/nn/modules/linear.py", line 4, in forward'), "forward"),
        ((MAIN, '"/opt/x/site-packages/torch/optim/adamw.py", line 4, in step'), "optimizer"),
        ((MAIN,), "unknown"),
        ((), "unknown"),
    ],
)  # fmt: skip
def test_the_traceback_tells_the_stage(frames: tuple[str, ...], stage: str, tmp_path: Path) -> None:
    found = with_rank_gone(exit_code=1)
    found.log(2, OUT_OF_MEMORY[0], *(f"  File {frame}" for frame in frames), OUT_OF_MEMORY[-1])
    assert verdict_of(found.write(tmp_path)).suspects[0].stage.name == stage


def test_a_kill_outweighs_an_exception_in_the_log(tmp_path: Path) -> None:
    found = with_rank_gone("zombie", exit_signal=9)
    found.log(2, *OUT_OF_MEMORY)
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects[0].cause is Cause.PROCESS_DEAD
    assert "SIGKILL" in stated(verdict)


def test_the_first_to_die_is_named_and_those_that_lost_it_are_victims(tmp_path: Path) -> None:
    """Rank 2 was killed; rank 1 raised because its peer was gone and died of it."""
    job = stuck()
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in (0, 3):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[ALL_REDUCE] * 3)
        found.dump(job, rank)
    found.rank(2, "absent", exit_signal=9)
    found.rank(1, "absent", exit_code=1)
    found.log(1, *LOST_PEER)
    verdict = verdict_of(found.write(tmp_path))
    assert named(verdict) == {2}
    assert 1 in victims(verdict)


def test_a_rank_that_lives_on_in_teardown_after_losing_a_peer_is_a_victim(tmp_path: Path) -> None:
    found = with_rank_gone(exit_signal=9)
    found.stacks(1, *[TEARDOWN] * 3)
    found.log(1, *LOST_PEER)
    verdict = verdict_of(found.write(tmp_path))
    assert named(verdict) == {2}


def test_everybody_dead_is_a_fail_stop(tmp_path: Path) -> None:
    found = Collection(4, stuck().now_ns + 60 * SECOND)
    found.rank(2, "absent", exit_signal=11)
    for rank in (0, 1, 3):
        found.rank(rank, "absent", exit_signal=6)
        found.log(rank, *LOST_PEER)
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.outcome is Outcome.FAILSTOP
    assert verdict.suspects[0].ranks == (2,)


def test_the_launchers_signal_is_weaker_than_a_crash(tmp_path: Path) -> None:
    """The launcher ends all ranks with SIGTERM after the first failure."""
    found = Collection(4, stuck().now_ns + 60 * SECOND)
    for rank in range(4):
        found.rank(rank, "absent", exit_signal=11 if rank == 1 else 15)
    verdict = verdict_of(found.write(tmp_path))
    assert leaders(verdict)[0].ranks == (1,)


def test_an_out_of_memory_kill_in_the_kernel_log_is_evidence(tmp_path: Path) -> None:
    found = with_rank_gone("zombie", exit_signal=9)
    found.kernel_log(
        f"[1711.123456] Out of memory: Killed process {pid_of(2)} (python) total-vm:1431024kB, anon-rss:919684kB, "
        "file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:2000kB oom_score_adj:0"
    )
    assert "OOM killer" in stated(verdict_of(found.write(tmp_path)))


def test_an_unknown_process_is_not_a_dead_one(tmp_path: Path) -> None:
    """The collector could not look: that is no evidence against the rank's process."""
    verdict = verdict_of(with_rank_gone("unknown").write(tmp_path))
    assert all(suspect.cause is not Cause.PROCESS_DEAD for suspect in verdict.suspects)
    assert named(verdict) <= {2}


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_process_is_named(tmp_path: Path, state: str) -> None:
    found = whole(stuck(), {2: FORWARD})
    found.samples(2, state)
    verdict = verdict_of(found.write(tmp_path))
    (first,) = verdict.suspects
    assert (first.ranks, first.cause, first.confidence) == ((2,), Cause.PROCESS_STOPPED, Confidence.CONFIRMED)
    assert victims(verdict) == {0: (2,), 1: (2,), 3: (2,)}


def test_a_stopped_process_cannot_answer_and_is_named_without_a_dump(tmp_path: Path) -> None:
    job = stuck()
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in range(4):
        found.rank(rank)
        found.samples(rank, "T" if rank == 2 else "S")
        if rank != 2:
            found.stacks(rank, *[ALL_REDUCE] * 3)
            found.dump(job, rank)
    verdict = verdict_of(found.write(tmp_path))
    assert named(verdict) == {2}
    assert verdict.suspects[0].cause is Cause.PROCESS_STOPPED


def test_a_tracer_is_stated(tmp_path: Path) -> None:
    found = whole(stuck(), {2: FORWARD})
    found.samples(2, "t", tracer=31337)
    verdict = verdict_of(found.write(tmp_path))
    assert "31337" in stated(verdict)
    assert any("debugger" in step for step in verdict.suspects[0].next_steps)


def test_stopped_in_one_look_only_is_a_sampler_at_work(tmp_path: Path) -> None:
    """py-spy stops a process for a moment; a sample that falls into it is no finding."""
    found = whole(stuck(), {2: LOADER_QUEUE})
    found.samples(0, "T", 1)
    verdict = verdict_of(found.write(tmp_path))
    assert named(verdict) == {2}
    assert verdict.suspects[0].cause is Cause.DATALOADER_STALL


def test_living_processes_rule_death_and_stopping_out(tmp_path: Path) -> None:
    verdict = verdict_of(whole(stuck(), {2: HOST_CODE}).write(tmp_path))
    cleared = {outcome.rule for outcome in verdict.ruled_out if outcome.status == "ruled_out"}
    assert {"FX101", "FX102"} <= cleared


def test_a_stopped_bystander_that_nobody_waits_for_is_distinguished_from_the_hang(tmp_path: Path) -> None:
    """A direct record is reported, but a rank that blocks the others is there too."""
    job = Job(4)
    low, high = job.group((0, 1), "LOW"), job.group((2, 3), "HIGH")
    for _ in range(8):
        job.call(low)
        job.call(high)
    job.hang({1}, low)
    found = whole(job, {1: LOADER_QUEUE, 2: FORWARD, 3: FORWARD})
    found.samples(3, "T")
    verdict = verdict_of(found.write(tmp_path))
    assert {suspect.ranks: suspect.cause for suspect in leaders(verdict)} == {
        (3,): Cause.PROCESS_STOPPED,
        (1,): Cause.DATALOADER_STALL,
    }


@pytest.mark.parametrize(("later_steps", "is_gone"), [(4, False), (1, True), (0, True)])
def test_a_process_that_the_collector_missed_is_not_gone(tmp_path: Path, later_steps: int, is_gone: bool) -> None:
    """Collectives that peers finished after the collector had looked needed the rank; the last of them may be an older one."""
    job = Job(4)
    job.steps(12)
    found = Collection(4, job.now_ns)
    found.rank(2, "absent")
    found.log(2, "step 12")
    for rank in (0, 1, 3):
        found.rank(rank)
        found.samples(rank, moving=True)
        found.stacks(rank, *[ALL_REDUCE] * 3)
        found.dump(job, rank, 0, at_ns=found.at_ns + SECOND)
    for _ in range(later_steps):
        job.call(job.everyone, "all_reduce")
    job.hang({2})
    for rank in (0, 1, 3):
        found.dump(job, rank, 1, at_ns=found.at_ns + 3 * SECOND)
    verdict = verdict_of(found.write(tmp_path))
    assert any(suspect.cause is Cause.PROCESS_DEAD for suspect in verdict.suspects) == is_gone
