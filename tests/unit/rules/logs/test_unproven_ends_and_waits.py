"""What pasted logs show of broken devices, refused starts, signals, waits and calls that differ: leads, no accusations."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted

RAISED = "RuntimeError: CUDA error: {0}\n"
ECC = RAISED.format("uncorrectable ECC error encountered")
NEURON = "2026-Feb-02 10:00:01.118351 401:511 ERROR  TDRV:exec   [ND {0}][NC 1] {1}\n"
_AT = "2026-02-10T04:12:47.233000+00:00 fit-xl/algo-{0}-1770690000 "
STREAM = f'{_AT}Traceback (most recent call last):\n{_AT}  File "/opt/fit.py", line 8, in <module>\n{_AT}{{1}}\n'
ENDED = (
    "[{at}]:\n  time      : 2026-02-03_04:05:06\n  host      : gn-3\n  rank      : {rank} (local_rank: {rank})\n"
    "  exitcode  : {code} (pid: 51{rank})\n  error_file: <N/A>\n  traceback : Signal {signal} received by PID 51{rank}\n"
)


def table(*codes: int) -> str:
    """What torchrun says of ranks that ended with these codes."""
    rule = "-" * 60 + "\n"
    rows = [ENDED.format(at=rank, rank=rank, code=code, signal=-code) for rank, code in enumerate(codes)]
    head = "=" * 60 + "\ntrain.py FAILED\n" + rule + "Failures:\n"
    return head + "".join(rows[1:]) + rule + "Root Cause (first observed failure):\n" + rows[0] + "=" * 60 + "\n"


def refused(rank: int) -> str:
    """A process of torch_npu whose device another one holds."""
    return (
        f"[ERROR] 2026-03-27-14:02:11 (PID:3012{rank}, Device:{rank}, RankID:{rank}) ERR02200 DIST call hccl api failed.\n"
        "EJ0001: 2026-03-27-14:02:11.4 Failed to initialize the HCCP process. Reason: The last process is running.\n"
    )


def unanswered(host: str, pid: int) -> str:
    return f"[{host}:{pid}:0:{pid}] ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_2:1/IB (synd 0x15 vend 0x81)\n"


def moved(worker: int, status: str) -> str:
    """DLRover's master on one of its pods."""
    pod = f"llm-7-edljob-worker-{worker}"
    return (
        f"[2026-01-02 03:04:05,001] [INFO] [reporter.py:68:report] [2026-01-02, 03:04:05][warn][{pod}][status_update]"
        f'[Running to {status}][{{"from_state": "Running", "to_state": "{status}", "node": "{pod}"}}]\n'
    )


def halted(chip: int) -> str:
    """The driver of a TPU."""
    chip_of = f"[/dev/accel{chip} tpu7:pe0:{chip}]"
    return f"E0827 23:43:41.200122   39475 synchronous_driver.cc:820] {chip_of} !!!! FATAL ERROR !!!! for {chip_of} , timer\n"


def out_of_memory(*ranks: int) -> str:
    """Ranks without memory on their devices, and one that lost the store by that."""
    raised = (
        f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "/w/fit.py", line 80, in <module>\n'
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        for rank in ranks
    )
    return "".join(raised) + "[rank0]:[W311 10:11:12.6 TCPStore.cpp:106] [c10d] sendBytes failed: Broken pipe\n"


def child(pid: int) -> str:
    """Lightning, of a process that it started in a task of Ray."""
    return f"(train pid=22) [rank: 1] Child process with PID {pid} terminated with code 1. Forcefully terminating all others\n"


def refused_transfer(host: str, status: int) -> str:
    front = f"{host}:25146:25854 [0] ib_plugin.c:1105 NCCL WARN NET/IB : Got completion from peer 10.0.35.1<49189>"
    return f"{front} with error {status}, opcode 5327, len 5327, vendor err 81 (Send)\n"


DUPLICATE = "3: Last error:\n3: Duplicate GPU detected : rank {0} and rank 0 both on CUDA device 3000\n"
BARRIER = "[E ProcessGroupGloo.cpp:138] Rank {0} successfully reached monitoredBarrier, but received errors while waiting\n"
GAVE_UP = (
    "[rank1]:[E ProcessGroupNCCL.cpp:1] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=X\n"
)
OF_XLA = "Exception in device=TPU:{0}: Failed precondition: Driver must be Open to DMA map.\n"
CHECKED = "[2026-01-02 03:04:05,001] [INFO] [training.py:771:run] Fault nodes are: [{0}]  and stragglers are: [].\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ECC, "which rank met an uncorrectable ECC error"),
        (NEURON.format(3, "HBM uncorrectable memory error is detected"), "an uncorrectable memory error of Neuron device 3"),
        (NEURON.format(3, "Missing infer_status notification: (end:1)"), None),
        (STREAM.format(3, "ValueError: bad shard"), "which ranks of algo-3 it is of"),
        (STREAM.format(3, "ValueError: bad shard") + STREAM.format(4, "ValueError: bad shard"), None),
        (RAISED.format("out of memory"), None),
        (refused(3), "holds the device of rank 3"),
        (refused(3) + refused(5), None),
        (table(-7, -7), "/dev/shm"),
        (table(-9, -9, -15), "OOM kills"),
        (table(-7, -9), None),
        (table(1, 1), None),
        (unanswered("gn-3", 71) + unanswered("gn-3", 72), "sends of 2 of its processes"),
        (unanswered("gn-3", 71) + unanswered("gn-4", 72), None),
        (moved(4, "Failed"), "pod llm-7-edljob-worker-4, which ended"),
        (moved(4, "Succeeded"), None),
        (moved(4, "Failed") + moved(6, "Failed"), None),
        (halted(0) + halted(2), "a fatal error of /dev/accel0 tpu7:pe0:0"),
        (OF_XLA.format(6), "the process of TPU:6"),
        (OF_XLA.format(6) + OF_XLA.format(7), None),
        (out_of_memory(2, 5), "the error of ranks 2,5, of rank 2"),
        (out_of_memory(1, 2, 3, 4), None),
        (child(71), "the log of process 71"),
        (GAVE_UP + child(71), None),
        (child(71) + child(72), None),
        (refused_transfer("gn-3", 4), "locked memory of gn-3"),
        (refused_transfer("gn-3", 4) + refused_transfer("gn-4", 4), "2 other hosts lost transfers with it alone"),
        (refused_transfer("gn-3", 5), None),
        (DUPLICATE.format(3) + DUPLICATE.format(2), "rank 2 and rank 0 chose the same GPU"),
        ("salloc: error: Node failure on gn-3\n", "console and kernel log of gn-3"),
        (BARRIER.format(3), "the log of rank 0"),
        (BARRIER.format(3) + "Rank 2 failed to pass monitoredBarrier in 3000 ms\n", None),
        (CHECKED.format(2), "node 2, by DLRover's numbers"),
        (CHECKED.format("") + CHECKED.format("1, 2"), None),
    ],
)
def test_where_to_look_after_ends_of_unknown_ranks(tmp_path: Path, text: str, said: str | None) -> None:
    verdict = pasted(tmp_path, text)
    assert any(said in lead for lead in verdict.leads) if said else not verdict.leads
    assert named(verdict) <= ({2} if "failed to pass" in text else set())


def late(*tasks: int, barrier: str = "restore_done0") -> str:
    """JAX's report of tasks that did not come to a barrier, of a job whose size nothing tells."""
    head = f"XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: {barrier}. Timed out task names:\n"
    return head + "".join(f"/job:jax_worker/replica:0/task:{task}\n" for task in tasks) + "\nAdditional GRPC error\n"


def notified(rank: int, remote: object) -> str:
    return (
        f"[ERROR] 2026-03-27-14:32:11 (PID:30{rank}, Device:0, RankID:{rank}) ERR00100 PTA call acl api failed.\n"
        f"EI0002: [PID: 30{rank}] 2026-03-27-14:32:24 The wait execution of the Notify register times out. Reason: The Notify "
        f"register has not received the Notify record from remote rank: [{remote}]. base information: [tag[AllReduce_g7]]\n"
    )


def differ(first: str, second: str) -> str:
    """What torch raises when it compared two fingerprints."""
    print_of = "Rank {0} is running collective: CollectiveFingerPrint({1})"
    pair = f"{print_of.format(2, first)}, but {print_of.format(5, second)}."
    return f"[rank2]: RuntimeError: Detected mismatch between collectives on ranks. {pair}\n"


def exchanged(own: int, gpu: int, host: str = "") -> str:
    """A receiver of DeepEP on the first host; the sender is there too unless its host is stated."""
    front = f"DeepEP dispatch NVL receiver timeout, channel: 6, RDMA: 0, nvl: {own}"
    return f"{front}, src {host}{'nvl' if host else 'NVL'}: {gpu}, head: 315, tail: 315\n"


REDUCED = "SequenceNumber=31, OpType=ALLREDUCE, TensorShape=[{0}], TensorDtypes=Float"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (late(0, 3), "whether tasks 0,3 of JAX were started"),
        (late(0, 3, barrier="Shutdown::7"), None),
        (late(0, 3) + "".join(f"09:5{n}:00 INFO step {n} loss 2.{n}\n" for n in range(9)), None),
        (notified(101, 24), "whoever is number 24 of the communicator in which rank 101 gave up"),
        (notified(101, "unknown"), None),
        (notified(101, 24) + notified(124, 1), None),
        (exchanged(0, 5) + exchanged(3, 5), "GPU 5 of the host that the exchange numbers 0: 2 others"),
        (exchanged(0, 5) + exchanged(0, 5), None),
        (exchanged(0, 5) + exchanged(3, 5, "RDMA: 1, src "), None),
        (differ(REDUCED.format(64), REDUCED.format(96)), "rank 2 made allreduce 64 Float, rank 5 made allreduce 96 Float"),
        (differ("SequenceNumber=1OpType=BARRIER", "SequenceNumber=0OpType=BARRIER"), "they count their barrier differently"),
        (differ(REDUCED.format(64), REDUCED.format(64)), None),
    ],
)
def test_whom_a_library_waited_for_or_found_apart(tmp_path: Path, text: str, said: str | None) -> None:
    verdict = pasted(tmp_path, text)
    assert any(said in lead for lead in verdict.leads) if said else not verdict.leads
    assert not named(verdict)


def test_a_watchdog_that_gave_up_in_the_second_line_of_its_report(tmp_path: Path) -> None:
    at = "Timeout at NCCL work: 40, last enqueued NCCL work: 41, last completed NCCL work: 39."
    verdict = pasted(tmp_path, f"[rank11]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 11] {at}\n")
    assert (verdict.outcome, named(verdict)) == (Outcome.HANG, set())


INIT = "gn-{0}:{1}:{1} [0] NCCL INFO comm 0x5{1} rank {1} nranks 6 cudaDev 0 busId 1000 commId 0x77 - Init START\n"
ON_THE_WAY = "gn-9:88:88 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.9<0>\n"


@pytest.mark.parametrize(("more", "ranks"), [("", {4, 5}), (ON_THE_WAY, set()), (ON_THE_WAY + INIT.format(9, 88), {4, 5})])
def test_a_process_of_unknown_rank_may_be_any_that_did_not_begin_an_init(tmp_path: Path, more: str, ranks: set[int]) -> None:
    more = more.replace("rank 88 nranks", "rank 3 nranks")
    begun = "".join(INIT.format(rank // 2, rank) for rank in range(4 if "START" not in more else 3))
    assert named(pasted(tmp_path, begun + more)) == ranks


LOST = "terminate called: socketProgress: Connection closed by remote peer {0}<4242>\n"
OF_MPI = "  Local host: gn-1\n  Local PID:  77\n  Peer host:  {0}\n"
CUDA = "gn-1:{0}:9 [{0}] include/shm.h:42 NCCL WARN Cuda failure 'invalid argument'\n"
VERBS = "gn-{0}:42:43 [0] misc/ibvwrap.cc:280 NCCL WARN Call to ibv_create_qp failed\n"
GAVE_UP = "[rank{0}]:[E816 01:45:40.1 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation timeout: "
WORK = GAVE_UP + "WorkNCCL(SeqNum={2}, OpType={1}, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600026 milliseconds.\n"


def ended(*ends: tuple[int, int]) -> str:
    """What torchrun says of ranks by code and second; the first stands under the root cause."""
    first, *others = (ENDED.replace("05:06", f"05:{at:02d}") for _, at in ends)
    rows = [one.format(at=rank, rank=rank, code=ends[rank][0], signal=9) for rank, one in enumerate(others, 1)]
    root = first.format(at=0, rank=0, code=ends[0][0], signal=9)
    return "=" * 60 + "\ntrain.py FAILED\nFailures:\n" + "".join(rows) + "Root Cause (first observed failure):\n" + root


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOST.format("gn-4"), "the logs of the processes on gn-4"),
        (LOST.format("gn-4") + LOST.format("gn-5"), None),
        (LOST.format("127.0.0.1"), None),
        (OF_MPI.format("gn-4"), "the logs of the processes on gn-4"),
        (f"[1,3]<stdout>:{CUDA.format(0)}", "the log and device of rank 3: a call of NCCL to CUDA failed"),
        (f"[1,3]<stdout>:{CUDA.format(0)}[1,4]<stdout>:{CUDA.format(1)}", None),
        (VERBS.format(1) + VERBS.format(1), "driver and kernel log of gn-1: ibv_create_qp failed there"),
        (VERBS.format(1) + VERBS.format(2), None),
        (WORK.format(3, "ALLREDUCE", 78) + WORK.format(7, "BROADCAST", 78), "if they are of one group"),
        (WORK.format(3, "ALLREDUCE", 78) + WORK.format(7, "BROADCAST", 79), None),
        (ended((1, 6), (1, 6), (-9, 37)), "the ends of the logs of ranks 0-1: by the launcher they failed first"),
        (ended((1, 6), (1, 6)), None),
    ],
)
def test_what_a_few_lines_of_a_larger_log_point_at(tmp_path: Path, text: str, said: str | None) -> None:
    leads = pasted(tmp_path, text).leads
    parts = ("the logs of the processes on", "a call of NCCL", "of one group", "the ends of the logs", "failed there")
    assert any(said in lead for lead in leads) if said else not any(part in lead for lead in leads for part in parts)
