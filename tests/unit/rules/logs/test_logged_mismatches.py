"""Calls that only logs tell of: NCCL's COLL lines of several ranks, and fingerprints that torch compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause
from tests.recordings.verdicts import blamed, named, pasted, verdict_of

RANKS = 4


def init(rank: int, identity: str = "0xabc") -> str:
    front = f"gpu-1:{100 + rank}:{100 + rank} [{rank}] NCCL INFO comm 0x{rank + 16:x} rank {rank} nranks {RANKS} cudaDev {rank}"
    return f"{front} nvmlDev {rank} busId {rank} commId {identity} - Init COMPLETE\n"


def call(rank: int, number: int, kind: str = "AllReduce", count: int = 1024, root: int = 0, dtype: int = 7) -> str:
    return (
        f"gpu-1:{100 + rank}:{200 + rank} [{rank}] NCCL INFO {kind}: opCount {number:x} sendbuff 0x7f recvbuff 0x7f "
        f"count {count} datatype {dtype} op 0 root {root} comm 0x{rank + 16:x} [nranks={RANKS}] stream 0x55\n"
    )


def job(*calls: str) -> str:
    return (
        "".join(map(init, range(RANKS))) + "".join(call(rank, at) for at in range(9) for rank in range(RANKS)) + "".join(calls)
    )


@pytest.mark.parametrize(
    ("odd", "cause"),
    [
        (call(2, 9, "AllGather"), Cause.COLLECTIVE_MISMATCH),
        (call(2, 9, count=1000), Cause.SHAPE_MISMATCH),
        (call(2, 9, dtype=9), Cause.SHAPE_MISMATCH),
        (call(2, 9, root=2), Cause.SHAPE_MISMATCH),
    ],
)
def test_one_rank_called_something_else(tmp_path: Path, odd: str, cause: Cause) -> None:
    verdict = pasted(tmp_path, job(*(call(rank, 9) for rank in (0, 1, 3)), odd))
    assert (named(verdict), verdict.suspects[0].cause) == ({2}, cause)


def test_files_of_one_process_each(tmp_path: Path) -> None:
    for rank in range(RANKS):
        made = [call(rank, at, count=at) for at in range(9)] + [call(rank, 9, count=5 if rank == 2 else 9)]
        (tmp_path / f"nccl.gpu-1.{100 + rank}.log").write_text(init(rank) + "".join(made))
    assert named(verdict_of(tmp_path)) == {2}


def test_a_rank_that_left_out_a_call(tmp_path: Path) -> None:
    sizes = [7, 3, 9, 4, 8, 6]
    rest = [call(rank, 9 + at, count=size) for rank in (0, 1, 3) for at, size in enumerate(sizes)]
    rest += [call(2, 9 + at, count=size) for at, size in enumerate(sizes[1:])]
    verdict = pasted(tmp_path, job(*rest))
    assert (named(verdict), verdict.suspects[0].cause) == ({2}, Cause.EXTRA_OR_MISSING_COLLECTIVE)


def test_numbers_that_do_not_count_accuse_nobody(tmp_path: Path) -> None:
    """Within one node NCCL 2.27 leaves opCount at 0."""
    made = [call(rank, 0, count=size) for rank in range(RANKS) for size in ((5, 6, 7) if rank == 2 else (5, 6, 7, 8))]
    assert not blamed(pasted(tmp_path, "".join(map(init, range(RANKS))) + "".join(made)))


def test_a_job_that_moves_two_communicators_and_a_restart_accuse_nobody(tmp_path: Path) -> None:
    moving = [call(rank, 9 + at, count=at) for rank in range(RANKS) for at in range(rank + 1)]
    assert not blamed(pasted(tmp_path, job(*moving)))
    again = [init(rank, "0xdef") for rank in range(RANKS)] + [call(rank, 0, "Broadcast", 5) for rank in range(RANKS)]
    assert not named(pasted(tmp_path, job(*again)))


def test_two_against_two_accuse_no_side(tmp_path: Path) -> None:
    split = [call(rank, 9, "AllGather" if rank < 2 else "AllReduce") for rank in range(RANKS)]
    assert not blamed(pasted(tmp_path, job(*split)))


def print_of(rank: int, kind: str = "ALLREDUCE", shape: str = "20, 10", number: str = "SequenceNumber=7, ") -> str:
    said = f"CollectiveFingerPrint({number}OpType={kind}, TensorShape=[{shape}], TensorDtypes=Float, "
    return f"Rank {rank} is running collective: {said}"


def differing(*pairs: tuple[str, str]) -> str:
    said = (
        "RuntimeError: Detected mismatch between collectives on ranks. {0}x), but {1}x).Collectives differ in the following\n"
    )
    return "".join(f"[rank{at}]: {said.format(*pair)}" for at, pair in enumerate(pairs))


def test_fingerprints_that_differ(tmp_path: Path) -> None:
    odd = print_of(2, "BROADCAST", "1")
    text = differing((print_of(0), odd), (print_of(1), odd), (odd, print_of(0)), (print_of(3), odd))
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.suspects[0].cause) == ({2}, Cause.COLLECTIVE_MISMATCH)


def test_fingerprints_of_two_ranks_of_some_ranks_and_of_a_group_name_nobody(tmp_path: Path) -> None:
    odd = print_of(2, "BROADCAST", "1")
    assert not blamed(pasted(tmp_path, differing((print_of(0), odd))))
    unheard = print_of(3, "BROADCAST", "1", "SequenceNumber=3, ")
    assert not named(pasted(tmp_path, differing((print_of(0), unheard), (print_of(1), unheard))))
    group = "[rank5]:[E321 ProcessGroupNCCL.cpp:1] [PG ID 3 PG GUID 7(TENSOR) Rank 1] failure detected by watchdog\n"
    assert not named(pasted(tmp_path, group + differing((print_of(0), odd), (print_of(1), odd))))


def gave_up(rank: int, number: int = 40, kind: str = "ALLREDUCE", numel: int = 8, front: str = "") -> str:
    work = f"WorkNCCL(SeqNum={number}, OpType={kind}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=1800000)"
    said = f"Watchdog caught collective operation timeout: {work} ran for 1800035 milliseconds before timing out."
    return f"{front}[E ProcessGroupNCCL.cpp:457] [Rank {rank}] {said}\n"


def group(rank: int, number: int = 40) -> str:
    said = f"detected by watchdog at work: {number}, last enqueued NCCL work: {number}, last completed NCCL work: {number - 1}."
    return f"[rank{rank}]:[E321 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception {said}\n"


def test_watchdogs_that_gave_up_on_one_number_in_different_calls(tmp_path: Path) -> None:
    text = "".join(map(gave_up, (0, 1, 3))) + gave_up(2, kind="BROADCAST", numel=1)
    assert named(pasted(tmp_path, text)) == {2}
    shard = "".join(gave_up(rank, kind="_ALLGATHER_BASE", numel=9 + (rank == 2)) for rank in range(4))
    assert named(pasted(tmp_path, shard)) == {2}, "of equal shards"
    stated = "".join(gave_up(rank, front=f"[rank{rank}]:") + group(rank) for rank in (0, 1, 3))
    verdict = pasted(tmp_path, stated + gave_up(2, kind="BROADCAST", front="[rank2]:") + group(2))
    assert (blamed(verdict), verdict.suspects[0].cause) == ({2}, Cause.COLLECTIVE_MISMATCH)


def test_groups_as_torch_2_4_writes_them(tmp_path: Path) -> None:
    """A blank stands before the name of a group; who issued no more than it completed was not in the call."""
    waits = "".join(gave_up(rank, front=f"[rank{rank}]:") + group(rank) for rank in (0, 1, 3))
    behind = "Last enqueued NCCL work: 39, last completed NCCL work: 39.This is most likely caused by incorrect usages\n"
    signal = "Received a dump signal due to a collective timeout from rank 3 and we will try our best to dump the debug info."
    text = waits + f"[rank2]:[E321 ProcessGroupNCCL.cpp:1599] [PG ID 0 PG GUID 0(default_pg) Rank 2] {signal} {behind}"
    for form in (text, text.replace("PG ID 0 PG GUID 0(default_pg)", "PG 0 (default_pg)")):
        assert named(pasted(tmp_path, form)) == {2}


def test_frames_below_a_timeout_leave_it_a_log(tmp_path: Path) -> None:
    """Releases with a recorder that is on print the stack of each call that timed out: most lines are frames then."""
    frames = "".join(f"#{n} f{n} from /w/train.py:{n}\n" for n in range(30))
    stack = f"[rank0]:[E321 ProcessGroupNCCL.cpp:743] Stack trace of the failed collective: \n{frames}\n"
    text = "".join(gave_up(rank, front=f"[rank{rank}]:") + group(rank) + stack for rank in (0, 1, 3))
    verdict = pasted(tmp_path, text + "init world_size=4\n")
    assert verdict.outcome.value == "hang"


def test_the_rank_that_gave_up_on_nothing_is_at_most_suspected(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, "init world_size=4\n" + "".join(map(gave_up, (0, 1, 3))))
    assert not blamed(verdict)
    assert verdict.outcome.value == "hang"


@pytest.mark.parametrize(
    "text",
    [
        "".join(gave_up(rank, 40 if rank < 3 else 7, numel=rank) for rank in range(4)),
        "".join(map(gave_up, range(4))) + gave_up(0, 40, "BROADCAST"),
        "".join(gave_up(rank, kind="ALLGATHER", numel=rank) for rank in range(4)),
        gave_up(0) + gave_up(1, kind="BROADCAST"),
        "".join(gave_up(rank % 4, front=f"[rank{rank}]:", numel=9 if rank == 4 else 8) for rank in range(8)),
    ],
    ids=["numbers of several groups", "two groups of one rank", "sizes that may differ", "one against one", "group ranks"],
)
def test_watchdogs_that_may_speak_of_several_groups_accuse_nobody(tmp_path: Path, text: str) -> None:
    verdict = pasted(tmp_path, text)
    assert not blamed(verdict)
    assert len(named(verdict)) != 1
