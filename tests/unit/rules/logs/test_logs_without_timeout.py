"""A rank whose own log is there, and has no timeout while those of all its peers have one."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Granularity, Outcome
from tests.recordings.verdicts import named, stated, verdict_of

STEPS = "".join(f"2026-11-20 05:1{minute}:02 INFO step {minute}0 loss 2.{9 - minute}\n" for minute in range(5))
WORK = "WorkNCCL(SeqNum=412, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000)"


def timeout(rank: int) -> str:
    head = f"[rank{rank}]:[E1120 05:25:01.{rank}00000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] "
    return f"{head}Watchdog caught collective operation timeout: {WORK} ran for 600{rank:03d} milliseconds before timing out.\n"


def write(folder: Path, ends: dict[int, str], name: str = "rank{}.log", ranks: int = 8) -> Path:
    for rank in range(ranks):
        path = folder / name.format(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STEPS + ends.get(rank, timeout(rank)))
    return folder


@pytest.mark.parametrize("name", ["rank{}.log", "job_x/attempt_0/{}/stderr.log", "rank_{}.txt"])
@pytest.mark.parametrize("ranks", [4, 8])
def test_the_one_that_did_not_give_up_is_suspected(tmp_path: Path, name: str, ranks: int) -> None:
    verdict = verdict_of(write(tmp_path, {2: ""}, name, ranks))
    (first,) = verdict.suspects
    assert (first.ranks, first.confidence, first.cause, verdict.outcome) == (
        (2,),
        Confidence.SUSPECT,
        Cause.UNKNOWN,
        Outcome.HANG,
    )
    assert "rank 2 (its log does not say that it waits there)" in stated(verdict)


def test_an_earlier_attempt_is_not_asked(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(range(8), ""), "job_x/attempt_0/{}/stderr.log")
    write(tmp_path, {}, "job_x/attempt_1/{}/stderr.log", ranks=7)
    assert named(verdict_of(tmp_path)) == set()


@pytest.mark.parametrize(
    "own",
    [
        "2026-11-20 05:10:02 WARNING clipped\n",
        STEPS.replace(" 05:", " 09:"),
        STEPS + STEPS.replace(" 05:", " 06:").replace("step ", "step 1"),
    ],
    ids=["no time in common", "hours later", "it goes on with steps that its peers did not reach"],
)
def test_a_log_that_may_be_of_another_run_says_nothing(tmp_path: Path, own: str) -> None:
    write(tmp_path, {})
    (tmp_path / "rank5.log").write_text(own)
    assert named(verdict_of(tmp_path)) == set()


def test_a_log_of_another_kind_may_not_be_where_timeouts_stand(tmp_path: Path) -> None:
    write(tmp_path, {}, "{}/stderr.log", ranks=7)
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stdout.log").write_text(STEPS)
    assert named(verdict_of(tmp_path)) == set()


@pytest.mark.parametrize(
    "ends",
    [
        dict.fromkeys(range(4), ""),
        dict.fromkeys(range(1, 8), ""),
        {5: "", 2: "[rank2]: Traceback (most recent call last):\n[rank2]: KeyError: 'loss'\n"},
    ],
    ids=["half", "only the first", "beside an error"],
)
def test_where_many_say_nothing_or_another_ended_nobody_is_suspected_for_silence(tmp_path: Path, ends: dict[int, str]) -> None:
    assert named(verdict_of(write(tmp_path, ends))) <= {2}


def test_a_file_of_all_ranks_shows_as_much(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: {line}\n" for rank in range(8) for line in (STEPS + timeout(rank) * (rank != 5)).splitlines()]
    (tmp_path / "job.log").write_text("".join(lines))
    verdict = verdict_of(tmp_path)
    assert named(verdict) == {5}
    assert "rank 5 (no line of its watchdog is here)" in stated(verdict)


COMPLETION = (
    "gpu-01:7101:7240 [{rank}] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.3.1.14<41002> with "
    "status={status} opcode=0 len=0 vendor err 129 (Send) localGid fe80::1 remoteGids fe80::2 hca mlx5_3\n"
)


@pytest.mark.parametrize(("status", "cause"), [(12, Cause.NETWORK_DOWN), (13, Cause.NETWORK_DOWN), (5, Cause.UNKNOWN)])
def test_a_transfer_of_its_own_that_nobody_answered_is_the_cause(tmp_path: Path, status: int, cause: Cause) -> None:
    """Status 5 is a request that an earlier failure flushed."""
    (first,) = verdict_of(write(tmp_path, {2: COMPLETION.format(rank=2, status=status)})).suspects
    assert (first.ranks, first.cause, first.confidence) == ((2,), cause, Confidence.SUSPECT)
    broken = cause is Cause.NETWORK_DOWN
    assert first.granularity is (Granularity.LINK if broken else Granularity.RANK)
    assert (first.resource.nic if first.resource else None) == ("mlx5_3" if broken else None)
    assert any("one end cannot tell" in item.statement for item in first.evidence if not item.supports) is broken


def test_a_failed_transfer_in_the_log_of_one_that_waits_accuses_nobody(tmp_path: Path) -> None:
    assert named(verdict_of(write(tmp_path, {2: COMPLETION.format(rank=2, status=12) + timeout(2)}))) == set()


STUCK = (
    "[rank{0}]:[E1120 05:24:01.100000 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank {0}] ProcessGroupNCCL's "
    "watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n"
)


@pytest.mark.parametrize(("stuck", "right"), [({5}, {5}), ({2, 5}, {2, 5}), (set(range(5)), set())])
def test_a_watchdog_that_was_stuck_could_not_give_up(tmp_path: Path, stuck: set[int], right: set[int]) -> None:
    for rank in range(8):
        (tmp_path / f"rank{rank}.err").write_text(STUCK.format(rank) if rank in stuck else timeout(rank))
    verdict = verdict_of(tmp_path)
    assert named(verdict) == right and all(each.confidence is Confidence.SUSPECT for each in verdict.suspects)
