"""How processes end by themselves in logs that all ranks share: who ended is named, who followed is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted

GAVE_UP = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=40, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
    "Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
)
LOST = (
    "Traceback (most recent call last):",
    '  File "/srv/job/pretrain.py", line 97, in <module>',
    "RuntimeError: [/src/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:9114",
)
FAILED = "E0321 02:07:08.1 4711 torch/distributed/elastic/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 99)"
ENDS = (
    "*** SIGSEGV (@0x0) received by PID 4103 (TID 0x7f1) from PID 0; stack trace: ***",
    "*** SIGABRT received at time=1790000000 on cpu 3 ***",
    "free(): invalid pointer",
    "  what():  std::bad_alloc",
    "Segmentation fault (core dumped)",
    "Killed",
    "/src/aten/Loss.cu:250: nll_loss: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0 && t < n` failed.",
    "HIP error: an illegal memory access was encountered",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
)


def log_of(*said: tuple[int, str], peers: tuple[str, ...] = (GAVE_UP,), front: str = "{0}: ") -> str:
    """What ranks of four say after they started; the other ranks say the lines of `peers` behind it."""
    silent = [rank for rank in range(4) if rank not in {each for each, _ in said}]
    lines = [(rank, "RANK=" + str(rank)) for rank in range(4)]
    lines += [*said, *((rank, line) for rank in silent for line in peers)]
    return "".join(f"{front.format(rank)}{line}\n" for rank, line in lines)


@pytest.mark.parametrize("front", ["{0}: ", "[rank{0}]: "])
@pytest.mark.parametrize("peers", [(GAVE_UP,), LOST], ids=["gave up", "lost it"])
@pytest.mark.parametrize("line", ENDS)
def test_who_ended_by_itself_is_named(tmp_path: Path, line: str, peers: tuple[str, ...], front: str) -> None:
    assert named(pasted(tmp_path, log_of((2, line), peers=peers, front=front))) == {2}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(log_of(*((rank, "Killed") for rank in range(4))), id="all were killed"),
        pytest.param(log_of((0, GAVE_UP), (1, GAVE_UP), (2, ENDS[1]), (3, GAVE_UP)), id="an abort after somebody gave up"),
        pytest.param(log_of((2, "  what():  [Rank 2] NCCL watchdog thread terminated"), peers=LOST), id="its watchdog"),
        pytest.param(log_of((2, ENDS[0].replace("SEGV", "TERM")), peers=LOST), id="ended from outside"),
        pytest.param(log_of((2, ENDS[-1]), peers=("loading",)), id="an error that nobody felt"),
        pytest.param(log_of((2, ENDS[-1]), (1, ENDS[-1])), id="two of them"),
    ],
)
def test_who_followed_or_went_on_is_not(tmp_path: Path, text: str) -> None:
    assert [suspect for suspect in pasted(tmp_path, text).suspects if "FX101" in suspect.rules] == []


HOOK = (
    "Traceback (most recent call last):",
    '  File "/srv/job/hooks.py", line 31, in upload',
    "    api.post(payload)",
    "requests.exceptions.HTTPError: 500 Server Error",
)
OPTIONAL = (
    "Traceback (most recent call last):",
    '  File "/srv/job/train.py", line 3, in <module>',
    "    import flash_attn",
    "ModuleNotFoundError: No module named 'flash_attn'",
)
ENDED = (*OPTIONAL[:2], "    main()", "RuntimeError: CUDA error: an illegal memory access was encountered")


def steps(first: int, last: int) -> list[tuple[int, str]]:
    return [(rank, f"step {step}/900 loss 2.{rank}{step}") for step in range(first, last) for rank in range(8)]


def all_but(*ranks: int) -> list[tuple[int, str]]:
    return [(rank, GAVE_UP) for rank in range(8) if rank not in ranks]


def of(rank: int, lines: tuple[str, ...]) -> list[tuple[int, str]]:
    return [(rank, line) for line in lines]


@pytest.mark.parametrize("front", ["[rank{0}]: ", "[Rank {0}] ", "{0}: ", "2026-03-21 02:04:11,204 - INFO - rank {0} - "])
@pytest.mark.parametrize(
    ("said", "ranks"),
    [
        pytest.param([*steps(1, 4), *of(0, HOOK), *steps(4, 30)], set(), id="noted, and the job trains"),
        pytest.param([*of(0, OPTIONAL), *steps(1, 9), *all_but(5)], {5}, id="an optional import, and another is missing"),
        pytest.param([*of(0, OPTIONAL), *steps(1, 3), *all_but(0, 4, 5, 6, 7)], set(), id="an optional import, and a cut log"),
        pytest.param([*steps(1, 4), *of(0, HOOK), *all_but()], set(), id="noted, and all wait"),
        pytest.param([*steps(1, 4), *of(0, HOOK), *all_but(5)], {5}, id="noted, and another is missing"),
        pytest.param([*steps(1, 3), *(line for rank in range(8) for line in of(rank, ENDED))], set(), id="all raise"),
        pytest.param([*steps(1, 4), *of(3, ENDED), *all_but(3), *steps(1, 30)], set(), id="started again"),
        pytest.param([*steps(1, 4), (2, "OSError: sample 771 is broken, skipped"), *steps(4, 30)], set(), id="skipped"),
        pytest.param([*steps(1, 4), (2, "OSError: sample 771 is broken, skipped"), *all_but(5)], {5}, id="skipped, another"),
        pytest.param([*steps(1, 4), *of(0, (*ENDED[:3], "KeyboardInterrupt"))], set(), id="ended by hand"),
        pytest.param([*steps(1, 4), *all_but(), (3, "Aborted (core dumped)")], set(), id="aborted after all gave up"),
        pytest.param([*steps(1, 4), *of(3, ENDED), *all_but(3)], {3}, id="ended"),
    ],
)
def test_who_is_named_whatever_stands_in_front(
    tmp_path: Path, said: list[tuple[int, str]], ranks: set[int], front: str
) -> None:
    lines = [(0, "world_size=8"), *said]
    assert named(pasted(tmp_path, "".join(f"{front.format(rank)}{line}\n" for rank, line in lines))) == ranks


FRONTS = (
    "[rank {0}] ",
    "Rank {0} | ",
    "2026-03-21 02:04:11,204 - ERROR - rank {0} - ",
    "rank={0} ",
    "{0}: ",
    "[{0}] ",
    "[GPU{0}] ",
)
RAISED = (
    "Traceback (most recent call last):",
    '  File "/srv/job/train.py", line 97, in {0}',
    "    loss = step(batch)",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
)


def shared(front: str, *, frame: str = "<module>", later: tuple[str, ...] = (), waiting: tuple[int, ...] = (0, 1, 3)) -> str:
    """One log of four ranks of which the third raises something and the others wait; `front` says who writes a line."""
    lines = ["world_size=4", *(f"{front.format(rank)}loading" for rank in range(4))]
    lines += [front.format(2) + line.format(frame) for line in RAISED]
    lines += [*later, *(front.format(rank) + GAVE_UP for rank in waiting)]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("front", FRONTS)
def test_who_raised_is_read_in_front_of_any_line(tmp_path: Path, front: str) -> None:
    assert named(pasted(tmp_path, shared(front))) == {2}


def test_logging_prints_a_traceback_below_its_message(tmp_path: Path) -> None:
    text = shared("[rank {0}] ").replace("[rank 2] Traceback", "[rank 2] ERROR step failed\nTraceback")
    text = text.replace("[rank 2]   ", "  ").replace("[rank 2]     ", "    ").replace("[rank 2] Runtime", "Runtime")
    assert named(pasted(tmp_path, text)) == {2}
    of_nobody = pasted(tmp_path, text.replace("ERROR step failed", "step 12"))
    assert not any("FX101" in suspect.rules for suspect in of_nobody.suspects)


def test_the_last_words_of_a_rank_that_all_others_waited_for(tmp_path: Path) -> None:
    """Whether the program caught it or not: nothing more is heard of the rank."""
    assert named(pasted(tmp_path, shared("[rank {0}] ", frame="step"))) == {2}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(shared("[rank {0}] ", waiting=(0, 1, 2, 3)), id="the rank waits later"),
        pytest.param(
            shared("[rank {0}] ", later=tuple(f"[rank 0] step {step}/900" for step in (7, 8, 9))), id="the job trains"
        ),
        pytest.param(shared("[rank {0}] ", frame="step", waiting=()), id="nobody waits"),
        pytest.param(shared("[rank {0}] ").replace("CUDA error", "NCCL error"), id="an error that tells of another one"),
        pytest.param(
            "".join(shared("[rank {0}] ").replace("[rank 2]", f"[rank {rank}]") for rank in (1, 2)), id="two raised it"
        ),
        pytest.param(shared("[GPU{0}] ").replace("world_size=4", "world_size=8"), id="a node of several"),
    ],
)
def test_errors_that_ended_nobody(tmp_path: Path, text: str) -> None:
    """The rank may still be the one that did not come."""
    assert [suspect.rules for suspect in pasted(tmp_path, text).suspects if "FX101" in suspect.rules] == []


def test_an_error_that_every_rank_says_of_itself_names_nobody(tmp_path: Path) -> None:
    lines = "".join(f"AssertionError: Rank {rank}: found NaN in the gradient\n" for rank in (1, 0, 3, 2))
    assert named(pasted(tmp_path, lines + FAILED + "\n")) == set()


BRIDGE = "  what():  [Rank:{0}] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456 (256)MB\n"
COLLECTIVE = "[rank{0}]: RuntimeError: Collective call returned error\n"
REMOTE = "[rank{0}]: RuntimeError: NCCL communicator was aborted on rank {0}: remote process exited\n"
UCC = (
    "[rank{0}]: RuntimeError: [/p/ProcessGroupUCC.cpp:496] [Rank {0}][ProcessGroupUCC-0][READY]failed to post triggered "
    "collective, error code {1}, system error code 0\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BRIDGE.format(2) + REMOTE.format(1), {2}),
        (BRIDGE.format(2) + COLLECTIVE.format(1) + COLLECTIVE.format(0), {2}),
        (COLLECTIVE.format(1), set()),
        (BRIDGE.format(2), set()),
        (BRIDGE.format(2) + BRIDGE.format(1), set()),
        (UCC.format(2, "-4: Out of memory") + UCC.format(1, "-9: Input/output error"), {2}),
        (UCC.format(2, "-6: Unhandled error") + UCC.format(1, "-9: Input/output error"), set()),
        (UCC.format(2, "-4: Out of memory") + UCC.format(1, "-4: Out of memory"), set()),
    ],
    ids=["bridge", "a collective lost", "lost alone", "nobody else", "two of them", "ucc", "of a peer as well", "both"],
)
def test_errors_of_bridges_that_begin_with_the_rank(tmp_path: Path, text: str, expected: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == expected
