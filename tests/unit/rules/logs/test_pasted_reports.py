"""Reports in pasted logs of who did not come, differed or died, and what looks like them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Outcome
from tests.recordings.verdicts import named, pasted, verdict_of
from tests.unit.rules.logs.test_pasted_logs import timed_out

FIRST_CALL = (
    "{0}torch.distributed.DistBackendError: [{1}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via "
    "c10d key-value store by key '0', but store->get('0') got error: {2}\n"
)


def first_call(*ranks: int, error: str = "Socket Timeout", own: int | None = None) -> str:
    return "".join(FIRST_CALL.format(f"[rank{rank if own is None else own}]: ", rank, error) for rank in ranks)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (first_call(1, 2, 3), {0}),
        (FIRST_CALL.format("", 1, "Timed out after 600s"), {0}),
        (first_call(1, 2, 3, error="Connection reset by peer"), set()),
        (first_call(1, 2) + first_call(3, error="Broken pipe"), set()),
        (first_call(0, 1, 2), set()),
        (first_call(1, own=9), set()),
    ],
    ids=["it did not come", "without its number", "its host is gone", "one lost it", "all wait", "a smaller group"],
)
def test_the_rank_that_did_not_come_to_the_first_call(tmp_path: Path, text: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == right


def begun(*ranks: int) -> str:
    """What NCCL says when a rank of 4 begins to set up its communicator."""
    return "".join(
        f"n{rank}:{4000 + rank}:{5000 + rank} [0] NCCL INFO ncclCommInitRank comm 0x55a5{rank} rank {rank} nranks 4 cudaDev 0 "
        f"nvmlDev 0 busId 1000 commId 0x77 - Init START\n"
        for rank in ranks
    )


@pytest.mark.parametrize(("ranks", "right"), [((0, 1, 2), {3}), ((1, 2), {0})])
def test_a_rank_that_handed_out_its_id_did_come(tmp_path: Path, ranks: tuple[int, ...], right: set[int]) -> None:
    assert named(pasted(tmp_path, begun(*ranks) + first_call(3))) == right


@pytest.mark.parametrize("completed", [-1, 811], ids=["nothing was done", "lines are missing"])
def test_inits_in_logs_that_were_cut(tmp_path: Path, completed: int) -> None:
    """Ranks that did calls together have completed their init, whatever their logs still tell of it."""
    last = f"last enqueued NCCL work: {completed + 1}, last completed NCCL work: {completed}."
    gave_up = "".join(
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either an error or "
        f"timeout) detected by watchdog at work: {completed + 1}, {last}\n"
        for rank in range(3)
    )
    causes = {suspect.cause for suspect in pasted(tmp_path, begun(0, 1, 2) + gave_up).suspects}
    assert (Cause.INIT_STALL in causes) == (completed < 0)


def analysed(*errors: tuple[int, str], error: str = "SIZE_OR_SYNTAX_MISMATCH", what: str = "input sizes") -> str:
    said = ", ".join(
        f"Culprit rank {rank}; Error type: {error}, Expected {what}: '[[2, 8]]' does not match found {what}: '{found}'"
        for rank, found in errors
    )
    lines = ("Collective sequence number: 29 has errors", "internal record id: 1", "group info: 3:mesh_tp")
    return "\n".join((*lines, "collective: nccl:all_gather", "expected ranks: {0, 1, 2, 3}", f"error msg: {said}", ""))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (analysed((2, "[[2, 7]]")), {2}),
        # The analyzer compares with the first rank: it is the odd one where all others differ from it.
        (analysed((1, "[[2, 7]]"), (2, "[[2, 7]]"), (3, "[[2, 7]]")), {0}),
        (analysed((2, "nccl:all_reduce"), error="COLLECTIVE_TYPE_MISMATCH", what="collective type"), {2}),
        (analysed((2, "scheduled"), error="COLLECTIVE_STATE_MISMATCH", what="state"), set()),
        (analysed((1, "[[2, 7]]"), (2, "[[2, 7]]")), set()),
    ],
    ids=["size", "first is odd", "kind", "a state is no call", "two and two"],
)
def test_calls_that_an_analyzer_compared(tmp_path: Path, text: str, right: set[int]) -> None:
    verdict = pasted(tmp_path, text)
    assert {rank for suspect in verdict.suspects if suspect.members == "each" for rank in suspect.ranks} == right


ACTOR = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: W\n\tpid: {0}\n"
    "\tip: 10.2.0.9\n"
)
WORKERS = "".join(f"(Worker pid={800 + rank}, ip=10.2.0.9) rank {rank} / world 4\n" for rank in range(4))


def test_the_actor_that_ray_saw_die(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, WORKERS + ACTOR.format(802))) == {2}
    assert not named(pasted(tmp_path, WORKERS + ACTOR.format(999))), "of no rank"
    assert not named(pasted(tmp_path, WORKERS + "(Worker pid=802) rank 1 / world 4\n" + ACTOR.format(802))), "of two ranks"


SNIPPET = "(TrainController pid=6) [Rank 1 Error Snippet]:\n(TrainController pid=6) {0}\n(TrainController pid=6) \tpid: 884\n"


def test_what_ray_train_quotes_of_a_rank(tmp_path: Path) -> None:
    workers = "(C pid=6) - (ip=10.2.0.9, pid=884) world_rank=1, local_rank=0\n"
    assert named(pasted(tmp_path, workers + SNIPPET.format("The actor died unexpectedly before finishing this task."))) == {1}
    assert not named(pasted(tmp_path, workers + SNIPPET.format("ValueError: 3")))


QUOTED = 'Traceback (most recent call last):\n  File "fit.py", line 9, in train_func\n{0}\n'


@pytest.mark.parametrize(
    ("stated", "right"),
    [
        ((("3", "ValueError: 3"),), {3}),
        (
            (("3", "ValueError: bad row"), ("0,1,2", "RuntimeError: NCCL communicator was aborted, connection closed by peer")),
            {3},
        ),
        ((("0,1,2,3", "ValueError: bad row"),), set()),
        ((("0", "ValueError: bad row"), ("2", "ValueError: bad row")), set()),
    ],
    ids=["one", "before who lost it", "one error of all", "alike"],
)
def test_tracebacks_that_ray_train_quotes_of_ranks(tmp_path: Path, stated: Sequence[tuple[str, str]], right: set[int]) -> None:
    text = "".join(f"[Rank {ranks} Error Snippet]:\n{QUOTED.format(error)}" for ranks, error in stated)
    assert named(pasted(tmp_path, text)) == right


POD = """Name:             j-worker-2
Containers:
  pytorch:
    State:          Terminated
      Reason:       OOMKilled
      Exit Code:    137
    Limits:
      nvidia.com/gpu:  {0}
    Environment:
      WORLD_SIZE:  4
      RANK:        3
"""
STEPS = "".join(f"step {number} loss 2.1\n" for number in range(10, 60, 10))


def test_a_pod_whose_description_holds_its_rank(tmp_path: Path) -> None:
    """Descriptions are pasted anywhere: steps below are no sign of another attempt."""
    verdict = pasted(tmp_path, POD.format(1) + STEPS + timed_out(0) + timed_out(1) + timed_out(2))
    assert (named(verdict), verdict.outcome) == ({3}, Outcome.FAILSTOP)
    several = pasted(tmp_path, POD.format(8) + STEPS)
    assert not named(several), "of a pod with several devices the number is that of the node"


def test_a_pod_in_the_list_of_pods(tmp_path: Path) -> None:
    ready = "".join(f"[pod/j-worker-{n}/pytorch] Init rank {n}/3\n" for n in range(3))
    row = "j-worker-{0}   {1}   {2}   0   3h\n"
    killed = ready + row.format(1, "0/1", "OOMKilled") + row.format(2, "1/1", "Running")
    assert named(pasted(tmp_path, killed)) == {1}
    assert not named(pasted(tmp_path, killed + row.format(0, "0/1", "OOMKilled"))), "two of them"
    assert not named(pasted(tmp_path, ready + row.format(1, "0/1", "Error"))), "anything may end a pod"


ABORTED = """[default1]:[rank1]:[W TCPStore.cpp:106] recvValueWithTimeout failed
{0}W1210 elastic/multiprocessing/api.py:897] Sending process 401 closing signal SIGTERM
E1210 elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 2 (pid: 402) of binary: python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  time      : 2024-12-10_06:18:40
  rank      : 2 (local_rank: 2)
  exitcode  : -6 (pid: 402)
"""
TIMEOUT_OF_ALL = "".join(
    f"[rank{rank}]:[E1210 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before\n"
    for rank in range(4)
)
FAULT = "[default{0}]:Memory access fault by GPU node-8 (Agent handle: 0x1d) on address 0x7e. Reason: Unknown.\n"


@pytest.mark.parametrize(
    ("fault", "confidence"),
    [
        ("Memory access fault by GPU node-8 (Agent handle: 0x1d) on address 0x7e. Reason: Unknown.\n", Confidence.LIKELY),
        ("HW Exception by GPU node-8 (Agent handle: 0x1d) reason :GPU Hang\n", Confidence.CONFIRMED),
        (
            "  3%| | 4/90 [12:01<6:14, 17.6s/it]HW Exception by GPU node-8 (Agent handle: 0x1d) reason :GPU Hang\n",
            Confidence.CONFIRMED,
        ),
    ],
)
def test_a_fault_that_a_kernel_of_the_program_causes_too_is_no_proof_of_a_bad_gpu(
    tmp_path: Path, fault: str, confidence: Confidence
) -> None:
    (suspect,) = pasted(tmp_path, ABORTED.format(fault)).suspects
    doubted = any(not each.supports and "kernel of the program" in each.statement for each in suspect.evidence)
    assert (suspect.ranks, suspect.cause, suspect.confidence) == ((2,), Cause.GPU_FAULT, confidence)
    assert doubted is (confidence is Confidence.LIKELY)


def test_an_abort_that_a_device_explains(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, ABORTED.format(FAULT.format(2)))) == {2}
    assert not named(pasted(tmp_path, ABORTED.format(""))), "most aborts are those of a watchdog"
    assert not named(pasted(tmp_path, ABORTED.format("torchrun nnodes=2\n" + FAULT.format(0)))), "of another node perhaps"


def test_an_abort_by_glibc_is_that_of_the_one_rank_that_aborted(tmp_path: Path) -> None:
    corrupted, timeout = "corrupted size vs. prev_size\n", TIMEOUT_OF_ALL
    (suspect,) = pasted(tmp_path, ABORTED.format(corrupted)).suspects
    assert (suspect.ranks, suspect.confidence) == ((2,), Confidence.LIKELY)
    assert not named(pasted(tmp_path, ABORTED.format(2 * corrupted))), "two processes aborted"
    assert not named(pasted(tmp_path, ABORTED.format(timeout + corrupted))), "on the way down"
    assert not named(pasted(tmp_path, ABORTED.format("terminate called after throwing an instance of 'c10::Error'\n")))


def test_a_witness_may_only_tell_its_progress(tmp_path: Path) -> None:
    error = "[rank2]: AssertionError: row 88412: 4096 ids but 4095 labels\n"
    steps = "".join(f"[2024-10-08 11:25:{n},118] [INFO] [Rank 0] step={n}, skipped=0\n" for n in range(10, 60, 10))
    verdict = pasted(tmp_path, steps + error)
    assert (named(verdict), verdict.suspects[0].cause) == ({2}, Cause.PYTHON_EXCEPTION)
    assert not named(pasted(tmp_path, error)), "all may have met it"


def test_lines_that_a_terminal_cut_beside_a_bar_of_wide_characters(tmp_path: Path) -> None:
    lines = timed_out(1) + timed_out(2) + "[rank0]: validating\n" + "Epoch 2: 100%|" + "█" * 24 + "| 3120/3120 [41:30<00:00]\n"
    cut = "\n".join(line[at : at + 80] for line in lines.splitlines() for at in range(0, len(line), 80))
    (tmp_path / "job.log").write_text(cut + "\n")
    assert [group.sequence for group in verdict_of(tmp_path).groups] == [40]


SCHEDULER = """[2025-10-29 11:24:51 TP{0}] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/srt/managers/scheduler.py", line 2702, in run_scheduler_process
    scheduler.event_loop_normal()
{1}

[2025-10-29 11:24:52] Received sigquit from a child process. It usually means the child failed.
"""
SERVES = "[2025-10-29 11:24:20 {0}] Decode batch. #running-req: 30, #token: 96430, #queue-req: 1\n"
SERVER_START = "[2025-10-29 11:31:02] server_args=ServerArgs(model_path='m', tp_size=8)\n"
OUT_OF_RANGE = "IndexError: index 151 is out of bounds for dimension 0 with size 8"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (SCHEDULER.format(6, OUT_OF_RANGE), {6}),
        (SCHEDULER.format(0, OUT_OF_RANGE) + SCHEDULER.format(1, OUT_OF_RANGE), set()),
        (SCHEDULER.format(6, "torch.distributed.DistBackendError: NCCL error: remote process exited"), set()),
        (SCHEDULER.format("6 PP1", OUT_OF_RANGE), set()),
        (
            SCHEDULER.format(6, OUT_OF_RANGE)
            .replace("Scheduler hit", "TpModelWorkerClient hit")
            .replace("process.", "proces."),
            {6},
        ),
        (SCHEDULER.format("6 EP6", OUT_OF_RANGE).replace("Received sigquit", "SIGQUIT received. signum=3, frame=None."), {6}),
        (
            SERVES.format("DP0 TP0") + SERVES.format("DP1 TP4") + SCHEDULER.format("6", OUT_OF_RANGE).replace("TP", "DP1 TP"),
            {6},
        ),
        (SCHEDULER.format("6 MOE_DP1", OUT_OF_RANGE).replace("TP6 MOE_DP1", "ATTN_CP0 MOE_DP1 TP6"), {6}),
        (
            SERVES.format("DP0 TP0") + SERVES.format("DP1 TP0") + SCHEDULER.format("1", OUT_OF_RANGE).replace("TP", "DP1 TP"),
            set(),
        ),
        (SERVES.format("DP0 TP2") + SCHEDULER.format("1", OUT_OF_RANGE).replace("TP", "DP1 TP"), set()),
        (SCHEDULER.format(6, OUT_OF_RANGE).replace(" TP6]", "]"), set()),
        (SCHEDULER.format(6, OUT_OF_RANGE) + SERVER_START + SERVES.format("TP0"), set()),
        (SCHEDULER.format(6, OUT_OF_RANGE).replace("Scheduler hit an", "the user saw an").replace("TP6", "TP0"), set()),
    ],
    ids=[
        *("its own", "of all", "of a peer", "a stage of unknown size", "its thread", "another word of the end"),
        *("attention in parts", "more axes", "replicas", "parts out of order", "no number", "started again", "no end"),
    ],
)
def test_the_process_of_a_server_that_ended_it(tmp_path: Path, text: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == right


WORKER = "(VllmWorker rank={0} pid=9) ERROR 07-09 [multiproc_executor.py:522] {1}\n"
DIED = "ERROR 07-09 [multiproc_executor.py:140] Worker proc VllmWorker-{0} died unexpectedly, shutting down executor.\n"


def raised_in_worker(rank: int) -> str:
    lines = (
        "Traceback (most recent call last):",
        '  File "w.py", line 18, in profile',
        "torch.OutOfMemoryError: CUDA out of memory.",
    )
    return "".join(WORKER.format(rank, line) for line in lines)


def test_the_worker_whose_error_ended_it(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, raised_in_worker(2) + DIED.format(2))) == {2}
    assert not named(pasted(tmp_path, raised_in_worker(2))), "it may have been caught"
    assert not named(pasted(tmp_path, raised_in_worker(2) + DIED.format(1))), "another one died"
    assert not named(pasted(tmp_path, raised_in_worker(1) + raised_in_worker(2) + DIED.format(1))), "both raised it"


SEGMENT = (
    "[rank{0}]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:219, unhandled system error\n"
    "[rank{0}]: Last error:\n"
    "[rank{0}]: Error while creating shared memory segment /dev/shm/nccl-tYv0Qa (size 33030528)\n"
)
ENDED = "[rank: 1] Child process with PID 611 terminated with code 1. Forcefully terminating all other processes\n"


def test_the_rank_that_found_no_shared_memory(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, SEGMENT.format(1) + ENDED)) == {1}


@pytest.mark.parametrize(
    "text", [SEGMENT.format(1), SEGMENT.format(1) + SEGMENT.format(2) + ENDED, ENDED], ids=["alone", "two ranks", "no rank"]
)
def test_no_shared_memory_that_tells_no_rank(tmp_path: Path, text: str) -> None:
    assert named(pasted(tmp_path, text)) == set()


CLIENTS = "[rank0]: torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. {}/4 clients joined.\n"
LOST = "[rank{0}]: torch.distributed.DistNetworkError: Connection reset by peer (store on 10.8.0.10:29511 went away)\n"
REFUSED = (
    "[rank{0}]: torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (a, 9).\n"
)


def test_the_rank_that_never_joined_the_store(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, CLIENTS.format(3) + LOST.format(1) + LOST.format(3))
    assert (named(verdict), verdict.outcome) == ({2}, Outcome.HANG)


@pytest.mark.parametrize(
    "text",
    [
        CLIENTS.format(3) + LOST.format(1),
        CLIENTS.format(2) + LOST.format(1) + LOST.format(3),
        CLIENTS.format(3) + LOST.format(1) + REFUSED.format(2),
        LOST.format(1) + LOST.format(3),
    ],
    ids=["one is not heard", "more than joined", "who came late", "no count"],
)
def test_a_store_of_which_it_is_not_known_who_joined(tmp_path: Path, text: str) -> None:
    assert named(pasted(tmp_path, text)) == set()
