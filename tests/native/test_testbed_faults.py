"""Each fault of the test bed hangs, breaks or slows the job where its physics says, and nowhere else."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.native.testbed import Job, Shape, Step, built, start

pytestmark = pytest.mark.slow

# Two stages and two replicas, a host per rank: 0 and 1 are the replicas of the first stage, 2 and 3 of the second.
SQUARE = Shape(pp=2, dp=2, per_host=1)


def unfinished(job: Job, rank: int, *, is_send: bool, peer: int | None = None) -> list[Step]:
    """Operations of a rank's proxy that are posted at least in part and not done; the peer is a rank of the communicator."""
    steps = [step for step in job.steps(rank) if step.done < step.total and step.is_send == is_send]
    return [step for step in steps if peer is None or step.peer == peer]


def reached(job: Job, step: int, doing: str, rank: int) -> bool:
    place = job.places()[rank]
    return place.step == step and place.doing == doing


def hung(tmp_path: Path, fault: str, step: int, rank: int, doing: str, env: dict[str, str] | None = None) -> Job:
    """A job that hangs with a rank at a given place; the caller kills it."""
    job = start(built(), tmp_path / "job", SQUARE, fault, env=env)
    try:
        job.until_hung(lambda: reached(job, step, doing, rank))
    except BaseException:
        job.kill()
        raise
    return job


def test_a_rank_that_never_calls(tmp_path: Path) -> None:
    with hung(tmp_path, "never_calls:rank=1,step=1", 1, 1, "blocked") as job:
        assert not job.stuck(1)
        assert [work.func for work in job.stuck(0)] == ["AllReduce"], "its replica waits in the gradients"
        assert len(job.works(1)) < len(job.works(0))
        sends = unfinished(job, 0, is_send=True, peer=1)
        assert sends and all(step.ready > step.transmitted for step in sends if step.ready), "ready, without credit"


def test_compute_that_stalls(tmp_path: Path) -> None:
    with hung(tmp_path, "compute_stall:rank=2,step=1", 1, 2, "backward") as job:
        assert not job.stuck(2), "no collective of it is the obstacle"
        assert [work.func for work in job.stuck(0)] == ["SendRecv"], "the first stage waits for the gradient"
        assert all(step.ready == 0 for step in unfinished(job, 2, is_send=True)), "its GPU made nothing ready"


def test_credit_that_is_withheld(tmp_path: Path) -> None:
    with hung(tmp_path, "credit_withheld:rank=2,step=1", 1, 0, "forward") as job:
        (first, *_) = unfinished(job, 0, is_send=True)
        assert first.ready > first.transmitted == first.done, "data ready, no credit from the peer"
        (waits, *_) = unfinished(job, 2, is_send=False)
        assert waits.posted == 0


def test_a_link_that_drops_in_one_direction(tmp_path: Path) -> None:
    with hung(tmp_path, "link_down:rank=0,peer=2,step=1,oneway=1", 1, 0, "forward") as job:
        (first, *_) = unfinished(job, 0, is_send=True)
        assert first.transmitted == first.ready > first.done == 0, "handed to the device and not acknowledged"
        (waits, *_) = unfinished(job, 2, is_send=False)
        assert waits.posted > waits.received == 0
        assert not any(pair.errors for rank in range(4) for pair in job.pairs(rank)), "the silence comes first"


def test_a_dead_link_ends_in_an_error_and_a_flush_storm(tmp_path: Path) -> None:
    fault = "link_down:rank=0,peer=2,step=1,oneway=1,ms=200"
    with hung(tmp_path, fault, 1, 0, "forward") as job:
        job.until(lambda: any(pair.errors for pair in job.pairs(0)))
        broken = [pair for pair in job.pairs(0) if pair.errors]
        assert broken and all(pair.first_status == 12 and pair.other == 2 for pair in broken)
        assert all(pair.errors > 1 for pair in broken), "everything behind it is flushed"
        assert not any(pair.errors for rank in (1, 2, 3) for pair in job.pairs(rank))


def test_a_watchdog_sees_the_error_that_the_network_reports(tmp_path: Path) -> None:
    shape = Shape(pp=2, steps=3, more={"watchdog": 1})
    with start(built(), tmp_path / "job", shape, "link_down:rank=0,peer=1,step=1,ms=200") as job:
        job.until(lambda: any(process.poll() is not None for process in job.processes))
        ended = [rank for rank, process in enumerate(job.processes) if process.poll() is not None]
        assert all(job.processes[rank].poll() == 4 for rank in ended)
        assert all("network error" in job.log(rank) for rank in ended)


@pytest.mark.parametrize("status", [4, 10])
def test_a_completion_with_an_error(status: int, tmp_path: Path) -> None:
    fault = f"cqe_error:rank=0,peer=2,step=1,status={status},after=3"
    with hung(tmp_path, fault, 1, 0, "forward") as job:
        broken = [pair for pair in job.pairs(0) if pair.errors]
        assert broken and {pair.first_status for pair in broken} == {status}
        assert all(pair.executed >= 3 and pair.sends > pair.executed for pair in broken)
        assert not any(pair.errors for rank in (1, 2, 3) for pair in job.pairs(rank))


def test_a_killed_rank(tmp_path: Path) -> None:
    with hung(tmp_path, "kill:rank=2,step=1", 1, 2, "backward", {"TESTBED_RETRY_MS": "200"}) as job:
        assert job.processes[2].wait(30) == -9
        assert all(job.processes[rank].poll() is None for rank in (0, 1, 3))
        assert job.stuck(0) and job.stuck(3)
        errors = {pair.first_status for rank in (0, 1, 3) for pair in job.pairs(rank) if pair.errors}
        assert errors <= {12}
        assert all(pair.other == 2 for rank in (0, 1, 3) for pair in job.pairs(rank) if pair.errors)


def test_a_stopped_rank_keeps_its_device(tmp_path: Path) -> None:
    with hung(tmp_path, "stop:rank=2,step=1", 1, 2, "backward", {"TESTBED_RETRY_MS": "200"}) as job:
        assert all(process.poll() is None for process in job.processes)
        assert not any(pair.errors for rank in range(4) for pair in job.pairs(rank)), "what was posted is still acknowledged"
        assert job.stuck(0)
        job.processes[2].send_signal(18)
        job.until(lambda: job.places()[2].doing != "backward" or job.places()[2].microbatch > 0)


def test_a_skipped_collective(tmp_path: Path) -> None:
    with hung(tmp_path, "skip:rank=1,step=1", 1, 1, "barrier") as job:
        (ahead,), (behind,) = job.stuck(1), job.stuck(0)
        assert ahead.comm != behind.comm, "one is in the loss already, its replica in the gradients"
        assert len(job.calls(1)) == len(job.calls(0)) - 1


def test_reordered_collectives(tmp_path: Path) -> None:
    with hung(tmp_path, "reorder:rank=1,step=1", 1, 1, "barrier") as job:
        (one,), (other,) = job.stuck(1), job.stuck(0)
        assert one.comm != other.comm
        last = {rank: [call.elements for call in job.calls(rank)[-2:]] for rank in (0, 1)}
        assert last[1] == last[0][::-1]


def test_a_skipped_exchange(tmp_path: Path) -> None:
    with start(built(), tmp_path / "job", Shape(pp=2), "skip:rank=0,step=1,pair=1") as job:
        job.until_hung(lambda: all(place.step == 1 for place in job.places()))
        sent = [call for call in job.calls(0) if call.func == "Send"]
        awaited = [call for call in job.calls(1) if call.func == "Recv"]
        assert len(awaited) == len(sent) + 1
        assert job.stuck(1), "it waits for what was never sent, with the later activations in the wrong places"


@pytest.mark.parametrize(("fault", "hangs"), [("reorder:step=1,pair=2", True), ("reorder:rank=0,step=1,pair=2", False)])
def test_reordered_exchanges_hang_when_both_sides_receive_first(fault: str, hangs: bool, tmp_path: Path) -> None:
    with start(built(), tmp_path / "job", Shape(pp=2), fault) as job:
        if not hangs:
            assert job.finish() == [0, 0]
            return
        job.until_hung(lambda: all(place.step == 1 for place in job.places()))
        for rank in (0, 1):
            assert [work.func for work in job.stuck(rank)] == ["Recv"]
            assert [call.func for call in job.calls(rank)[-2:]] == ["Recv", "Send"]


@pytest.mark.parametrize("moment", [0.0, 0.004, 0.011, 0.023])
def test_a_rank_that_is_killed_at_any_moment_holds_nobody_up_but_its_partners(moment: float, tmp_path: Path) -> None:
    with start(built(), tmp_path / "job", Shape(pp=2, dp=2, per_host=2, steps=10**6)) as job:
        job.until(lambda: all(place.step >= 1 for place in job.places()))
        time.sleep(moment)
        job.processes[2].send_signal(signal.SIGKILL)
        job.processes[2].wait()
        job.until_hung()
        first, last = sorted((job.places()[rank] for rank in (1, 3)), key=lambda place: place.step)
        assert first.doing == "barrier", "their own pipeline ran to the end of the step"
        assert last.doing == "barrier" or last.step == first.step + 1, "of the last ring one had all it needed"


def test_a_collective_with_a_wrong_size(tmp_path: Path) -> None:
    with hung(tmp_path, "wrong_size:rank=1,step=1", 1, 1, "barrier") as job:
        counts = {rank: max(call.elements for call in job.calls(rank)) for rank in range(4)}
        assert counts[1] == 4 * counts[0] == 4 * counts[2]
        (work,) = job.stuck(1)
        assert 0 < work.moved < work.total, "what the peer sent is used, then it waits for more"


@pytest.mark.parametrize(
    "fault",
    [
        "link_slow:rank=0,peer=2,step=1,us=1500",
        "late:rank=1,step=1,us=20000",
        "jitter:us=3000",
        "late:rank=3,step=0,us=1000;jitter:us=500",
    ],
)
def test_what_only_slows_ends_well(fault: str, tmp_path: Path) -> None:
    with start(built(), tmp_path / "job", SQUARE, fault) as job:
        assert job.finish() == [0] * 4
        assert not any(pair.errors for rank in range(4) for pair in job.pairs(rank))


def test_a_fault_that_passes_is_survived(tmp_path: Path) -> None:
    with start(built(), tmp_path / "job", SQUARE, "late:rank=1,step=1,until=1,us=300000") as job:
        assert job.finish() == [0] * 4


def test_a_rank_that_never_comes_blocks_the_creation_of_the_communicator(tmp_path: Path) -> None:
    job = start(built(), tmp_path / "job", Shape(dp=2))
    with job:
        assert job.finish() == [0, 0]
    alone = start(built(), tmp_path / "alone", Shape(dp=2))
    alone.processes[1].kill()
    with alone:
        alone.until_hung(lambda: alone.places()[0].doing == "starting")
        assert not alone.works(0)


@pytest.mark.parametrize("spec", ["nonsense:rank=1", "late:rank", "late:color=3"])
def test_a_fault_that_cannot_be_read_is_refused(spec: str, tmp_path: Path) -> None:
    with start(built(), tmp_path / "job", Shape(), spec) as job:
        assert job.finish() == [70]
        assert "TESTBED_FAULT" in job.log(0)
