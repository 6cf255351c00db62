"""Jobs of which only logs are left: how processes ended, and who lost the connection to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Confidence
from tests.recordings.rank_logs import RankLogs, one_behind
from tests.recordings.verdicts import blamed, named, stated, verdict_of


def torchrun(*failed: tuple[int, int]) -> str:
    """Its table of failed ranks (rank, exit code), the root cause last."""
    rows = ["Traceback (most recent call last):", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "]
    rows.append("Failures:")
    for index, (rank, code) in enumerate(failed):
        if index == len(failed) - 1:
            rows.append("Root Cause (first observed failure):")
        rows += [f"[{index}]:", f"  rank      : {rank} (local_rank: {rank})", f"  exitcode  : {code} (pid: {900 + rank})"]
    return "\n".join(rows) + "\n"


def test_the_root_cause_of_torchrun_is_named_and_those_it_ended_are_not(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text(torchrun((0, -15), (2, -15), (1, -9)))
    verdict = verdict_of(tmp_path)
    (first,) = verdict.suspects
    assert (first.ranks, first.cause, first.rules) == ((1,), Cause.PROCESS_DEAD, ("FX101",))
    assert "saw rank 1 fail first" in stated(verdict)


def test_an_exit_that_nothing_explains_is_a_suspicion_and_an_abort_not_even_that(tmp_path: Path) -> None:
    for code, suspects in ((1, {1}), (-6, set())):
        (tmp_path / "launcher.log").write_text(torchrun((0, -15), (2, 1), (1, code)))
        verdict = verdict_of(tmp_path)
        assert (named(verdict), blamed(verdict)) == (suspects, set())


def test_a_root_cause_with_an_exception_of_its_own(tmp_path: Path) -> None:
    logs = RankLogs()
    logs.say(1, "[rank1]: Traceback (most recent call last):", '[rank1]:   File "x.py", line 1, in f', "[rank1]: KeyError: 'a'")
    logs.write(tmp_path)
    (tmp_path / "launcher.log").write_text(torchrun((0, -15), (2, 1), (1, 1)))
    (first,) = verdict_of(tmp_path).suspects
    assert (first.ranks, first.cause, first.confidence) == ((1,), Cause.PYTHON_EXCEPTION, Confidence.CONFIRMED)


def test_a_root_cause_that_only_gave_up_waiting_is_a_victim(tmp_path: Path) -> None:
    logs = one_behind()
    logs.write(tmp_path)
    (tmp_path / "launcher.log").write_text(torchrun((0, -15), (4, -6)))
    verdict = verdict_of(tmp_path)
    assert [suspect.ranks for suspect in verdict.suspects] == [(3,)]


def test_a_root_cause_that_lost_its_peer_is_a_victim(tmp_path: Path) -> None:
    logs = RankLogs()
    logs.say(
        4,
        "Traceback (most recent call last):",
        '  File "/srv/job/pretrain.py", line 97, in <module>',
        "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.3]:9114",
    )
    logs.write(tmp_path)
    (tmp_path / "launcher.log").write_text(torchrun((4, 1)))
    assert named(verdict_of(tmp_path)) == set()


def four_hosts() -> RankLogs:
    logs = RankLogs()
    for rank in range(32):
        logs.nccl(rank, f"Bootstrap: Using eth0:10.0.0.{rank // 8}<0>")
        logs.started(rank, 32)
    return logs


def test_the_host_that_all_lost_and_that_lost_nobody(tmp_path: Path) -> None:
    logs = four_hosts()
    logs.lost(0, "10.0.0.2", status=12)
    logs.lost(9, "10.0.0.2", status=12)
    logs.lost(3, "gpu-001")
    logs.lost(27, "gpu-000")
    (first,) = verdict_of(logs.write(tmp_path)).suspects
    assert (first.ranks, first.members, first.hosts) == (tuple(range(16, 24)), "one_of", ("gpu-002",))
    assert (first.cause, first.confidence, first.rules) == (Cause.NETWORK_DOWN, Confidence.LIKELY, ("FX152",))


def test_two_hosts_that_lost_each_other(tmp_path: Path) -> None:
    logs = four_hosts()
    logs.lost(0, "10.0.0.2", status=12)
    logs.lost(17, "10.0.0.0", status=12)
    assert named(verdict_of(logs.write(tmp_path))) == set()


def test_one_witness_of_a_lost_connection_makes_a_suspicion(tmp_path: Path) -> None:
    logs = four_hosts()
    logs.lost(0, "10.0.0.2", status=12)
    assert blamed(verdict_of(logs.write(tmp_path))) == set()


def test_an_address_that_no_log_explains(tmp_path: Path) -> None:
    logs = four_hosts()
    logs.lost(0, "10.9.9.9", status=12)
    logs.lost(9, "10.9.9.9", status=12)
    assert named(verdict_of(logs.write(tmp_path))) == set()


def test_connections_that_closed_after_a_cancel(tmp_path: Path) -> None:
    logs = four_hosts()
    for rank in (0, 9):
        logs.say(rank, "slurmstepd: error: *** STEP 4711.0 ON gpu-000 CANCELLED AT 2026-03-21T02:20:00 ***")
        logs.lost(rank, "gpu-002")
    assert named(verdict_of(logs.write(tmp_path))) == set()


RAISED = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "m.py", line 4, in step\n[rank0]: ValueError: width -3\n'
TIME = "  time      : 2025-09-11_10:02:{}\n  rank      : "


@pytest.mark.parametrize(
    ("before", "table", "expected"),
    [
        (RAISED, torchrun((1, -9)), {0}),
        ("", torchrun((1, -9)), {1}),
        (RAISED, torchrun((0, 1), (1, -9)), {1}),
        (RAISED.replace("ValueError: width -3", "torch.distributed.DistBackendError: NCCL error"), torchrun((1, -9)), {1}),
        (RAISED + "Out of memory: Killed process 901 (python) total-vm:9kB\n", torchrun((1, -9)), {1}),
    ],
    ids=["a peer failed", "nobody else", "a peer ended later", "a peer lost it", "for memory"],
)
def test_a_rank_that_a_failed_peer_killed_is_a_victim(tmp_path: Path, before: str, table: str, expected: set[int]) -> None:
    for second, rank in ((11, 1), (15, 0)):
        table = table.replace(f"  rank      : {rank} ", TIME.format(second) + f"{rank} ")
    (tmp_path / "train.log").write_text(before + table)
    assert blamed(verdict_of(tmp_path)) == expected


def first_of_node(rank: int, time: str, code: int = 1) -> str:
    """What the launcher of one node says of the rank that it saw fail first."""
    return (
        f"fit.py FAILED\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n  time      : {time}\n"
        f"  host      : n{rank}\n  rank      : {rank} (local_rank: 0)\n  exitcode  : {code} (pid: 91{rank})\n"
    )


LATER = first_of_node(0, "2026-03-02_08:10:45")


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (LATER + first_of_node(4, "2026-03-02_08:09:50"), {4}),
        (LATER + first_of_node(4, "2026-03-02_05:09:50"), {0, 4}),
        (first_of_node(0, "2026-03-02_08:10:45", -11) + first_of_node(4, "2026-03-02_08:09:50"), {0, 4}),
    ],
    ids=["the earlier node", "another run", "a signal of its own"],
)
def test_of_the_tables_of_two_nodes_in_one_text_the_earlier_failure_counts(tmp_path: Path, text: str, ranks: set[int]) -> None:
    (tmp_path / "slurm.out").write_text(text)
    assert named(verdict_of(tmp_path)) == ranks


BROKEN = (
    "[E ProcessGroupNCCL.cpp:916] [Rank {0}] NCCL watchdog thread terminated with exception: CUDA error: unspecified launch "
)


@pytest.mark.parametrize(
    ("pods", "ranks"), [((("a", 0), ("a", 1)), {1}), ((("a", 0), ("b", 1)), {1}), ((("a", 1), ("b", 1)), set())]
)
def test_numbers_of_ranks_behind_the_name_of_a_pod(tmp_path: Path, pods: tuple[tuple[str, int], ...], ranks: set[int]) -> None:
    """Where two pods have the same number they count anew."""
    (first, other), (last, rank) = pods
    waited = f"[pod/job-{first}/torch] [E ProcessGroupNCCL.cpp:563] [Rank {other}] Watchdog caught collective operation timeout"
    failed = BROKEN.format(rank) + "failure: uncorrectable ECC error encountered"
    (tmp_path / "pods.log").write_text(f"[pod/job-{last}/torch] {failed}\n{waited}: WorkNCCL(SeqNum=7, OpType=BROADCAST\n")
    assert named(verdict_of(tmp_path)) == ranks
