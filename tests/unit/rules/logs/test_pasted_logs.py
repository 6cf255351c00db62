"""Logs pasted without anything else: who is named, and where nobody may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Outcome
from tests.recordings.verdicts import named, pasted, verdict_of

STALL = (
    "[2026-03-21 02:04:11.204417: W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, "
    "gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. "
)
DESYNC = " - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
TIMEOUT = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={0}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
AGENT = "E0321 02:07:08.1 4711 torch/distributed/elastic/api.py:869] failed (exitcode: {0}) local_rank: {1} (pid: 99)"


def timed_out(rank: int, number: int = 40) -> str:
    said = TIMEOUT.format(number) + "Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
    return f"[rank{rank}]:[E321 02:07:08.465224069 ProcessGroupNCCL.cpp:683] [Rank {rank}] {said}\n"


def table(*rows: tuple[int, int, str], root: int | None = None, local: dict[int, int] | None = None) -> str:
    """torchrun's table of (rank, exit code, seconds); `root` stands under the root cause."""
    lines = ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=" * 60, "train.py FAILED", "-" * 60]
    lines.append("Failures:")
    for index, (rank, code, second) in enumerate(sorted(rows, key=lambda row: row[0] == root)):
        if rank == root:
            lines += ["-" * 60, "Root Cause (first observed failure):"]
        lines += [f"[{index}]:", f"  time      : 2026-03-21_02:07:{second}", "  host      : gpu-001"]
        lines += [f"  rank      : {rank} (local_rank: {(local or {}).get(rank, rank)})"]
        lines += [
            f"  exitcode  : {code} (pid: {900 + rank})",
            "  error_file: <N/A>",
            "  traceback : To enable traceback see: ...",
        ]
    return "\n".join([*lines, "=" * 60, ""])


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (STALL + "\nMissing ranks:\n2: [allreduce.a, allreduce.b]\n", {2}),
        (STALL + "\nStalled ranks:\n2!: [allreduce.a, allreduce.b ...]\n3!: [allreduce.a, allreduce.b ...]\n", {2, 3}),
        (STALL + "Missing ranks: 2: [allreduce.a, allreduce.b]\n", {2}),
        (STALL + "Stalled ops:grad_a [missing ranks: 1]\ngrad_b [missing ranks: 1]\n", {1}),
        (STALL + "Stalled ops: grad_a [ready ranks: 0, 3, 2], grad_b [ready ranks: 2, 0, 3]\n", {1}),
        (STALL + "Stalled ops: loss [ready ranks: 1], grad_b [ready ranks: 0, 2, 3]\n", {1}),
    ],
)
def test_ranks_that_horovod_misses(tmp_path: Path, text: str, ranks: set[int]) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == (ranks, Outcome.HANG)


@pytest.mark.parametrize(
    "text",
    [
        STALL + "Stalled ops: a [ready ranks: 0], b [ready ranks: 1]\n",
        STALL + "Stalled ops: a [missing ranks: 1, 2, 3]\n",
        STALL + "Stalled ops: a [missing ranks: 1]\n" + STALL + "Stalled ops: b [missing ranks: 2]\n",
        STALL + "\nMissing ranks:\n0: [a]\n1: [b]\n",
        STALL + "Stalled ops: a [ready ranks: 0, 1, 2, 3",
    ],
)
def test_horovod_between_equals_or_in_passing_names_nobody(tmp_path: Path, text: str) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == (set(), Outcome.HANG)


STEPS = "".join(f"{10 * n}\timages/sec: 211.{n} +/- 0.1 (jitter = 1.4)\t7.8\n" for n in range(1, 8))


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (STALL + "Stalled ops: a [missing ranks: 1]\n" + STEPS, set()),
        (STALL + "Stalled ops: a [missing ranks: 1]\n" + STEPS + STALL + "Stalled ops: a [missing ranks: 1]\n" + STEPS, set()),
        (STEPS + STALL + "Stalled ops: a [missing ranks: 1]\n", {1}),
        (2 * (STALL + "Stalled ops: a [missing ranks: 1]\n") + STEPS, {1}),
    ],
    ids=["once", "now and then", "and no step since", "all along, and the end of what was not written yet"],
)
def test_a_stall_of_horovod_that_passes(tmp_path: Path, text: str, ranks: set[int]) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome is Outcome.HANG) == (ranks, bool(ranks))


def test_an_error_of_all_ranks_whose_labels_the_table_of_the_launcher_explains(tmp_path: Path) -> None:
    said = "".join(f"[default{rank}]:AssertionError: world size (4) is not divisible by 3\n" for rank in range(4))
    ended = table(*((rank, 1, "09") for rank in (0, 1, 3)), (2, 1, "08"), root=2)
    assert named(pasted(tmp_path, said + ended)) == set()
    one = "[default2]:AssertionError: world size (4) is not divisible by 3\n[default0]:step 3\n"
    assert named(pasted(tmp_path, one + table((2, 1, "08"), (3, -15, "09"), root=2))) == {2}


PASSED = "============ 3 passed, 1 skipped in 41.22s (0:00:41) ============\n"


def test_what_tests_print_that_passed(tmp_path: Path) -> None:
    text = "world_size=4\ntest_c10d.py::test_timeout\n" + timed_out(0) + timed_out(1) + timed_out(3) + "PASSED\n"
    passed = pasted(tmp_path, text + PASSED)
    assert (named(passed), passed.outcome) == (set(), Outcome.INCONCLUSIVE)
    for other in (
        PASSED.replace(" 3", " 1 failed, 3"),
        "[rank0] all checks passed in 3.2s\n",
        "8 passed in 3s of the barrier\n",
    ):
        assert named(pasted(tmp_path, text + other)) == {2}
    assert pasted(tmp_path, text + PASSED + timed_out(1, 60)).outcome is Outcome.HANG, "a job behind them"


def test_a_desync_report(tmp_path: Path) -> None:
    text = (
        timed_out(0)
        + "[rank0]:[E321 ProcessGroupNCCL.cpp:1937] Rank 0\n\t - [0] Timeout at collective: ALLREDUCE, #40\n\t"
        + DESYNC
    )
    text += "\t     [2] finished collective #38, but didn't join collective #39 (count from 1)\n"
    text += "\t - Snapshot of ranks' latest states:\n\t   #38 finished ranks:\n\t     [2] finished ALLREDUCE\n"
    text += "\t   #40 started ranks:\n\t     [0, 1, 3] started ALLREDUCE\n"
    assert named(pasted(tmp_path, text)) == {2}
    assert named(pasted(tmp_path, text.replace("\n\t", " "))) == {2}, "a report that lost its line ends"


def test_a_desync_report_of_a_group_that_is_not_the_default_one(tmp_path: Path) -> None:
    text = timed_out(4) + f"\t - [1] Timeout at collective: ALLREDUCE, #40\n\t{DESYNC}"
    text += "\t     [0] finished collective #38, but didn't join collective #39 (count from 1)\n"
    other = "[rank4]:[E321 ProcessGroupNCCL.cpp:1] [PG ID 3 PG GUID 7(TENSOR) Rank 1] failure detected by watchdog at work\n"
    assert named(pasted(tmp_path, other + text)) == set()


def test_a_desync_report_in_which_all_joined_and_one_in_which_a_root_ran_ahead(tmp_path: Path) -> None:
    text = f"{timed_out(0)}{DESYNC}   - [0, 1, 2, 3] joined but didn't finish collective #40 (count from 1)\n"
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == (set(), Outcome.HANG)
    text = f"{timed_out(1)}{DESYNC}   - [1, 2, 3] joined but didn't finish collective #40 (count from 1)\n"
    text += " #40 started ranks:\n   [1, 2, 3] started BROADCAST\n #41 started ranks:\n   [0] started ALLREDUCE\n"
    assert named(pasted(tmp_path, text)) == set()


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("RuntimeError: [Rank 0]: Rank 3 failed to pass monitoredBarrier in 1800000 ms\n", {3}),
        ("RuntimeError: [Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 1800000 ms\n", {3, 5}),
        ("RuntimeError: [Rank 0]: Ranks 1, 2, 3 failed to pass monitoredBarrier in 1800000 ms\n", set()),
        (
            "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv\n",
            set(),
        ),
        (
            "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 9 ms\n"
            "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv\n",
            set(),
        ),
    ],
)
def test_a_monitored_barrier(tmp_path: Path, text: str, ranks: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == ranks


def test_the_barrier_in_the_store_names_the_one_that_none_of_the_others_is(tmp_path: Path) -> None:
    said = "RuntimeError: Timed out initializing process group in store based barrier on rank: {0}, for key: "
    said += "store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)\n"
    assert named(pasted(tmp_path, "".join(map(said.format, (0, 1, 3))))) == {2}
    assert named(pasted(tmp_path, "".join(map(said.format, (0, 3))))) == set(), "one of those that came said nothing"


def test_the_analyzer_of_dumps_as_text(tmp_path: Path) -> None:
    text = "Not all ranks joining collective, sequence number: 1016\ninternal record id: 9\ngroup info: 0:default_pg\n"
    text += "collective: nccl:all_reduce\nmissing ranks: {3}\ninput sizes: [[8]]\nworld size: 4\nexpected ranks: {0, 1, 2, 3}\n"
    assert named(pasted(tmp_path, "[rank0]: x\n" + text)) == {3}


def test_a_watchdog_alone_is_a_hang_of_nobody(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, timed_out(3))
    assert (named(verdict), verdict.outcome) == (set(), Outcome.HANG)


def test_the_table_of_torchrun_in_its_forms(tmp_path: Path) -> None:
    killed = table((3, -9, "05"), (0, -15, "09"), (1, 1, "08"), root=3)
    assert named(pasted(tmp_path, killed)) == {3}
    assert named(pasted(tmp_path, " ".join(killed.split()))) == {3}, "in one line"
    row = "  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 77)\n"
    assert named(pasted(tmp_path, row)) == {3}


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (table((0, 1, "05"), (1, 1, "05"), (2, 1, "05"), root=0), set()),
        (table((0, 1, "05"), (1, -9, "05"), (2, 1, "05"), root=0), {1}),
        (table((0, -9, "05"), (1, -9, "05"), root=0), set()),
        (table((0, -15, "05"), root=0), set()),
        (table((0, 143, "05"), root=0), set()),
        (table((3, -9, "05"), root=3) + table((9, -9, "05"), root=9, local={9: 1}), set()),
        (timed_out(2) + table((2, 1, "05"), root=2), set()),
    ],
)
def test_tables_that_tie_and_ranks_that_were_stated_to_end(tmp_path: Path, text: str, ranks: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == ranks


def test_the_earliest_of_several_tables(tmp_path: Path) -> None:
    (tmp_path / "node0.log").write_text(table((3, -9, "09"), root=3))
    (tmp_path / "node1.log").write_text(table((9, -9, "05"), root=9, local={9: 1}))
    assert named(verdict_of(tmp_path)) == {9}


@pytest.mark.parametrize(
    "beside", ["--nnodes=2 --node_rank=1", "[rank12]: x", "rank      : 12 (local_rank: 4)", "group_rank=1"]
)
def test_a_local_rank_is_a_rank_on_one_node_only(tmp_path: Path, beside: str) -> None:
    agent = AGENT.format(-9, 3)
    verdict = pasted(tmp_path, f"starting\n{agent}\n")
    assert (named(verdict), verdict.suspects[0].confidence) == ({3}, Confidence.LIKELY)
    assert named(pasted(tmp_path, f"{beside}\n{agent}\n")) == set()


def test_two_agents_in_one_log_count_the_same_numbers(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, f"{AGENT.format(-9, 3)}\n{AGENT.format(1, 0)}\n")
    assert (named(verdict), verdict.outcome) == (set(), Outcome.FAILSTOP)


def test_a_local_rank_whose_log_speaks_of_a_lost_peer(tmp_path: Path) -> None:
    raised = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\nConnectionResetError: [Errno 104]\n'
    assert named(pasted(tmp_path, f"{raised}{AGENT.format(1, 3)}\n")) == set()


MPICH = "Abort(1) on node {0} (rank {0} in comm 0): application called MPI_Abort(MPI_COMM_WORLD, -1) - process {0}\n"


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("mpirun noticed that process rank 2 with PID 77 on node gpu-001 exited on signal 11 (Segmentation fault).", {2}),
        ("prterun noticed that process rank 2 with PID 77 on node gpu-001 exited on signal 15 (Terminated).", set()),
        ("The first process to do so was:\n\n  Process name: [[29973,1],2]\n  Exit code:    1\n", {2}),
        ("The first process to do so was:\nProcess name: 2\nExit code: 1\n", {2}),
        ("=   RANK 2 PID 77 RUNNING AT gpu-001\n=   KILLED BY SIGNAL: 9 (Killed)\n", {2}),
        ("=   PID 77 RUNNING AT gpu-001\n=   EXIT CODE: 9\n", set()),
        ("MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n", {2}),
        (MPICH.format(2), {2}),
        (MPICH.format(2) + MPICH.format(0), set()),
        ("[1] [ERROR] [launch.py:434:sigkill_handler] ['python', 'x.py', '--local_rank=0'] exits with return code = -9", {0}),
        ("[1] [ERROR] [launch.py:434:sigkill_handler] ['python', 'x.py', '--local_rank=7'] exits with return code = -9", set()),
        ("subprocess.CalledProcessError: Command '['python', '--local_rank=3']' died with <Signals.SIGKILL: 9>.", set()),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGKILL", {2}),
        ("srun: error: gpu-001: task 2: Segmentation fault (core dumped)\nsrun: error: gpu-001: tasks 0-1: Terminated", {2}),
        ("srun: error: gpu-001: tasks 0-7: Exited with exit code 1", set()),
        ("srun: error: gpu-001: task 0: Exited with exit code 1", set()),
        ("srun: error: gpu-001: task 1: Killed", set()),
        ("-- Process 0 terminated with the following error:", set()),
        (AGENT.format(1, 0), set()),
        ("Sending process 98 closing signal SIGTERM\n" + AGENT.format(1, 0), {0}),
        ("[1]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 77)\n", set()),
    ],
)
def test_launchers(tmp_path: Path, text: str, ranks: set[int]) -> None:
    verdict = pasted(tmp_path, text + "\n")
    assert (named(verdict), verdict.outcome if ranks else None) == (ranks, Outcome.FAILSTOP if ranks else None)


OOM = "[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def test_one_rank_that_failed_by_itself_and_peers_that_followed(tmp_path: Path) -> None:
    lost = "[rank1]: torch.distributed.DistBackendError: NCCL error in: x.cpp:9, remote process exited\n"
    verdict = pasted(tmp_path, OOM.format(2) + lost + timed_out(0))
    assert (named(verdict), verdict.suspects[0].cause, verdict.outcome) == ({2}, Cause.PYTHON_EXCEPTION, Outcome.FAILSTOP)


def test_a_device_that_failed_under_the_watchdog(tmp_path: Path) -> None:
    died = "[E ProcessGroupNCCL.cpp:916] [Rank {0}] NCCL watchdog thread terminated with exception: CUDA error: {1}\n"
    verdict = pasted(
        tmp_path, died.format(1, "uncorrectable ECC error encountered") + died.format(0, "unspecified launch failure")
    )
    assert (named(verdict), verdict.suspects[0].cause) == ({1}, Cause.GPU_FAULT)
    assert (
        named(pasted(tmp_path, died.format(1, "an illegal memory access") + died.format(0, "an illegal memory access")))
        == set()
    )


@pytest.mark.parametrize(
    "text",
    [
        OOM.format(0) + OOM.format(1),
        OOM.format(0),
        timed_out(0) + "[rank2]: RuntimeError: CUDA error: unspecified launch failure\n",
        "[rank2]: KeyboardInterrupt\n",
        "[rank2]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.\n",
        "slurmstepd: error: *** JOB 4711 ON gpu-000 CANCELLED AT 2026-03-21T02:20:00 ***\n" + OOM.format(2),
        OOM.format(2).replace("[rank2]: ", ""),
    ],
)
def test_errors_of_several_of_peers_or_after_the_end_name_nobody(tmp_path: Path, text: str) -> None:
    assert named(pasted(tmp_path, text)) == set()


TABLE = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-03-0{day}_04:00:11
  host      : node-1
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 42{rank}0)
  error_file: <N/A>
============================================================
"""
STEPS = "".join(
    f" iteration {number:8}/ 900 | elapsed time per iteration (ms): 812.1 | lm loss: 4.1\n" for number in (12, 13, 14)
)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (TABLE.format(day=1, rank=1, code=-11), {1}),
        (TABLE.format(day=1, rank=1, code=-11) + STEPS, set()),
        (TABLE.format(day=1, rank=1, code=-11) + STEPS + TABLE.format(day=3, rank=3, code=-11), {3}),
        (STEPS + TABLE.format(day=3, rank=3, code=-11), {3}),
    ],
)
def test_steps_after_the_end_of_a_process_are_another_attempt(text: str, right: set[int], tmp_path: Path) -> None:
    assert named(pasted(tmp_path, text)) == right


def test_who_only_gave_up_waiting_for_others_to_connect(tmp_path: Path) -> None:
    """The launcher saw nobody else fail: whoever never came left no line."""
    error = 'Traceback (most recent call last):\n  File "/srv/run.py", line 6, in <module>\n    main()\n'
    waited = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 7/8 clients joined.\n"
    table = TABLE.format(day=1, rank=0, code=1)
    assert not named(pasted(tmp_path, error + waited + table))
    assert named(pasted(tmp_path, error + "ValueError: no such tokenizer\n" + "[rank0]: " + table)) <= {0}


def test_a_file_of_one_rank_in_which_several_give_up(tmp_path: Path) -> None:
    """The name says whose file it is, and its lines are of all: copied or renamed, it says the same."""
    lines = "".join(
        f"[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800572 milliseconds\n"
        for rank in (1, 2, 3)
    )
    for name in ("job.log", "tokenizer_rank0.log"):
        path = tmp_path / name
        path.write_text("Num processes: 4\n" + lines)
        assert named(verdict_of(path)) == {0}


@pytest.mark.parametrize(("days", "right"), [(0, {2}), (6, set())])
def test_an_error_of_days_before_is_of_another_job(days: int, right: set[int], tmp_path: Path) -> None:
    """Nobody waits for a day: the job that ends in these timeouts began after it."""
    front = "[2024-02-{0:02}T21:{1:02}:19.706901Z] [rank{2}]: "
    raised = ("Traceback (most recent call last):", '  File "/srv/train.py", line 126, in <module>', "    fetch(rows)")
    error = "".join(f"{front.format(27 - days, 5, 2)}{line}\n" for line in (*raised, "ValueError: no such shard"))
    later = "".join(f"[2024-02-27T21:35:19.706901Z] {timed_out(rank)}" for rank in (0, 1, 3))
    assert named(pasted(tmp_path, error + later)) == right


def nccl_warning(rank: int, text: str) -> str:
    """A process whose rank the line of its communicator tells, and what it warns of."""
    front = f"gn30:{4000 + rank}:{5000 + rank} [{rank}] "
    start = f"NCCL INFO comm 0x55a5{rank} rank {rank} nranks 3 cudaDev {rank} busId {rank}1000 commId 0x77 - Init START\n"
    return f"{front}{start}{front}{text}\n"


MEMORY = "include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'"
LOST = "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer gn30-ib.cluster<51159>"
DRIVER = "init.cc:90 NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ({1: MEMORY, 0: LOST, 2: LOST}, {1}),
        ({0: MEMORY, 1: MEMORY, 2: MEMORY}, set()),
        ({1: DRIVER, 0: LOST, 2: LOST}, set()),
    ],
)
def test_the_one_process_whose_device_failed(said: dict[int, str], right: set[int], tmp_path: Path) -> None:
    assert named(pasted(tmp_path, "".join(nccl_warning(rank, text) for rank, text in said.items()))) == right


def test_a_device_error_after_a_watchdog_gave_up_is_no_cause(tmp_path: Path) -> None:
    stopped = nccl_warning(1, "x.cc:7 NCCL WARN Cuda failure 'unspecified launch failure'")
    assert not named(pasted(tmp_path, timed_out(0) + timed_out(1) + timed_out(2) + stopped))


@pytest.mark.parametrize(
    ("members", "ranks"),
    [({0: 0, 1: 1, 3: 3}, {2}), ({0: 0, 1: 1, 2: 2}, set()), ({0: 0, 1: 1, 3: 2}, set())],
    ids=["as many as the job", "the last was not heard", "counted otherwise"],
)
def test_a_group_whose_numbers_are_those_of_the_whole_job(tmp_path: Path, members: dict[int, int], ranks: set[int]) -> None:
    status = "failure detected by watchdog at work sequence id: 40 PG status: last enqueued work: 43, last completed work: 39"
    lines = "".join(
        timed_out(rank) + f"[rank{rank}]:[E321 ProcessGroupNCCL.cpp:2268] [PG ID 1 PG GUID 1 Rank {number}]  {status}\n"
        for rank, number in members.items()
    )
    assert named(pasted(tmp_path, "world_size=4\n" + lines)) == ranks
