"""All ranks but one gave up waiting in one call of the program, and logs that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Confidence, Outcome
from tests.recordings.verdicts import named, pasted, verdict_of

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
GLOO = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/"
OWN = GLOO + "unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete"
ABORTED = "RuntimeError: Application timeout caused pair closure"
STORE = "torch.distributed.DistStoreError: wait timeout after 20000ms, keys: /default_pg/0//phase/9"
AT_ONCE = STORE.replace("20000ms", "0ms")
CLOSED = GLOO + "pair.cc:553] Connection closed by peer [10.0.0.7]:6341"


def raised(rank: int, error: str = OWN, line: int = 20, call: str | None = "all_reduce", prefix: bool = True) -> str:
    """What torch prints of an exception that nothing caught; `call` None is a wait on a handle."""
    inner = [f'  File "{C10D}", line 3252, in {call}', "    work.wait()"] if call else []
    text = ["Traceback (most recent call last):", '  File "/job/fit.py", line 44, in <module>', "    main()"]
    text += [f'  File "/job/fit.py", line {line}, in main', "    average(grad)", *inner, error]
    return "".join((f"[rank{rank}]: " if prefix else "") + each + "\n" for each in text)


def ended(**codes: int) -> str:
    """torchrun's table; the first one is what it saw fail first."""
    text = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + 60 * "=" + "\nfit.py FAILED\n" + 60 * "-"
    rows = [
        f"[{row}]:\n  time      : 2026-03-04_15:40:00\n  host      : node-a\n  rank      : {name[1:]} (local_rank: 0)\n"
        f"  exitcode  : {code} (pid: {300 + int(name[1:])})\n  error_file: <N/A>\n"
        for row, (name, code) in enumerate(codes.items())
    ]
    heads = ["Root Cause (first observed failure):\n", "Failures:\n"]
    return text + "\n" + heads[1] + "".join(rows[1:]) + 60 * "-" + "\n" + heads[0] + rows[0] + 60 * "=" + "\n"


TABLE = ended(r0=1, r1=-15, r2=1, r3=-15)
STEPS = "".join(f"rank {rank} step {step}\n" for step in range(3) for rank in range(4))


@pytest.mark.parametrize(
    "text",
    [
        STEPS + raised(0) + raised(2, ABORTED) + raised(3) + TABLE,
        raised(3, call=None) + raised(0, call=None) + raised(2, call=None) + TABLE,
        raised(0, STORE, call=None) + raised(2, STORE, call=None) + raised(3, STORE, call=None) + TABLE,
        raised(0) + "ValueError: could not convert string to float: 'N/A'\n" + raised(2) + raised(3) + TABLE,
    ],
    ids=["one call", "handles", "a key", "an error of a thread"],
)
def test_the_one_rank_that_its_launcher_had_to_end(tmp_path: Path, text: str) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == ({1}, Outcome.HANG)
    assert verdict.suspects[0].confidence is Confidence.SUSPECT


@pytest.mark.parametrize(
    "text",
    [
        raised(0) + raised(2) + raised(3, line=31) + TABLE,
        raised(0) + raised(2) + raised(3, CLOSED) + TABLE,
        raised(0) + raised(2) + raised(3, "ValueError: no such column") + TABLE,
        raised(0) + raised(3) + TABLE,
        raised(0) + raised(1) + raised(2) + raised(3) + ended(r0=1, r1=-15, r2=1, r3=1),
        raised(0) + raised(2) + raised(3) + ended(r0=1, r1=1, r2=1, r3=1),
        raised(0, call="recv") + raised(2, call="recv") + raised(3, call="recv") + TABLE,
        raised(0) + ended(r0=1, r1=-15),
        "srun: Force Terminated StepId=7.0\nslurmstepd: error: *** STEP 7.0 ON a CANCELLED AT 2026-03-04T15:39:00 ***\n"
        + raised(0) + raised(2) + raised(3) + TABLE,
        raised(0) + raised(1) + raised(2),
    ],
    ids=[
        "another call",
        "came too late",
        "its own error",
        "two are silent",
        "all gave up",
        "it ended by itself",
        "messages",
        "two ranks",
        "cancelled",
        "no rank is missing",
    ],
)  # fmt: skip
def test_who_tells_nothing_of_a_missing_rank(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


FOUR = ended(r0=1, r1=1, r2=1, r3=1)


@pytest.mark.parametrize("first", [OWN, CLOSED], ids=["all gave up", "one lost them"])
def test_the_one_rank_that_gave_up_elsewhere(tmp_path: Path, first: str) -> None:
    verdict = pasted(tmp_path, raised(0) + raised(1) + raised(2, first, line=31, call="barrier") + raised(3) + FOUR)
    assert (named(verdict), verdict.outcome) == ({2}, Outcome.HANG)
    assert verdict.suspects[0].confidence is Confidence.SUSPECT
    assert any("gave up waiting in barrier at fit.py:31" in each.statement for each in verdict.suspects[0].evidence)


@pytest.mark.parametrize(
    "text",
    [
        raised(0) + raised(1) + raised(2, line=31) + raised(3, line=31) + FOUR,
        raised(0) + raised(1, line=25) + raised(2, line=31) + raised(3) + FOUR,
        raised(0) + raised(1) + raised(2, line=31, call="recv") + raised(3) + FOUR,
        raised(0, CLOSED) + raised(1, CLOSED) + raised(2, CLOSED, line=31) + raised(3, CLOSED) + FOUR,
        raised(0) + raised(1, line=31) + ended(r0=1, r1=1),
        raised(0, AT_ONCE, call=None)
        + raised(1, AT_ONCE, call=None)
        + raised(2, CLOSED, line=31)
        + raised(3, AT_ONCE, call=None)
        + FOUR,
    ],
    ids=["two of four", "two apart", "a message", "nobody waited long", "two ranks", "a limit of nothing"],
)
def test_who_tells_nothing_of_a_rank_elsewhere(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


def of_each(folder: Path, own: str) -> Path:
    """A log of each of four ranks, rank 2 with one of its own."""
    steps = "".join(f"2026-03-04 15:3{minute}:07 INFO step {minute}0 loss 0.5\n" for minute in range(6))
    for rank in range(4):
        text = own.format(steps=steps) if rank == 2 else steps + raised(rank, prefix=rank % 2 == 0)
        (folder / f"rank{rank}.log").write_text(text)
    return folder


def test_a_file_for_each_rank(tmp_path: Path) -> None:
    verdict = verdict_of(of_each(tmp_path, "{steps}"))
    assert (named(verdict), verdict.outcome) == ({2}, Outcome.HANG)


@pytest.mark.parametrize("own", ["2026-02-01 11:00:07 INFO step 10 loss 0.9\n", "{steps}" + raised(2, CLOSED), "no step\n"])
def test_a_file_that_may_be_of_another_run(tmp_path: Path, own: str) -> None:
    assert not named(verdict_of(of_each(tmp_path, own)))
