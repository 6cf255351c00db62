"""One rank that goes on with other work while the watchdogs of all others give up, and texts that only look like it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Outcome, StageName, Verdict
from tests.recordings.verdicts import named, pasted, verdict_of


def gave_up(*ranks: int, number: int | None = 7, kind: str = "ALLREDUCE", within: int = 0, length: int = 600) -> str:
    """Watchdogs; `within` is what the number in the group lacks to the rank."""
    sequence = f"SeqNum={number}, " if number is not None else ""
    return "".join(
        f"[rank{rank}]:[E321 02:07:0{rank % 10}.465 ProcessGroupNCCL.cpp:683] [Rank {rank - within}] Watchdog "
        f"caught collective operation timeout: WorkNCCL("
        f"{sequence}OpType={kind}, Timeout(ms)={length}000) ran for {length}{rank:03} ms\n"
        for rank in ranks
    )


def old(*ranks: int, number: int = 2) -> str:
    """Watchdogs before torch 2.2, in a job of one group."""
    said = f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, Timeout(ms)=1800000) "
    lines = (f"[E ProcessGroupNCCL.cpp:475] [Rank {rank}] {said}ran for 1800{rank:03} milliseconds\n" for rank in ranks)
    return "".join(lines)


def counts(first: int, last: int, form: str = "[rank 0] validating {}/91000") -> str:
    return "".join(form.format(number) + "\n" for number in range(first, last))


def bar(minutes: int, total: int = 4000, name: str = "Tokenizing (num_proc=8)", first: int = 0) -> str:
    """A bar that was redrawn each minute, without the end of its line."""
    parts = (f"\r{name}:  {m}%|#   | {10 * m}/{total} [{m:02}:00<2:00:00,  6.01s/it]" for m in range(first, minutes + 1))
    return "".join(parts)


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        (counts(1, 20) + gave_up(1, 2, 3) + counts(20, 22), 0),
        (counts(1, 20) + gave_up(1, 2, 3, number=None) + counts(20, 22), 0),
        (
            counts(1, 9, "[rank2]: 2026-03-21 02:0{}:11,204 eval batch {}".replace("{}", "{0}"))
            + gave_up(0, 1, 3)
            + "[rank2]: 2026-03-21 02:09:11,204 eval batch 9\n",
            2,
        ),
        (counts(1, 9, "(val) [RANK:1] image {} of 24") + gave_up(0, 2) + counts(9, 12, "(val) [RANK:1] image {} of 24"), 1),
        (
            counts(1, 9, "1: step {}")
            + "0: [rank0] x\n1: [rank1] y\n2: [rank2] z\n"
            + gave_up(0, 2)
            + counts(9, 12, "1: step {}"),
            1,
        ),
        (
            counts(1, 9, '{{"log":"rank 0 packing shard {} of 900\\n","stream":"stderr","time":"2026-03-21T02:04:11Z"}}')
            + gave_up(1, 2)
            + counts(9, 12, '{{"log":"rank 0 packing shard {} of 900\\n","stream":"stderr","time":"2026-03-21T02:14:11Z"}}'),
            0,
        ),
        (bar(30) + old(1, 2, 3), 0),
        (bar(29) + "\n" + old(1, 2, 3) + bar(33, first=30), 0),
        (
            "[rank 0] pid 4410 on a\n"
            + "Aug 26 22:07:09 a kernel: INFO: task python3:4410 blocked for more than 120 seconds.\n"
            + gave_up(1, 2, 3),
            0,
        ),
    ],
    ids=["counts", "no number", "torch's prefix", "elsewhere", "tasks", "record", "bar", "bar goes on", "blocked"],
)
def test_the_rank_that_is_at_other_work(tmp_path: Path, text: str, rank: int) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == ({rank}, Outcome.HANG)
    assert "FX155" in verdict.suspects[0].rules


def test_what_it_was_doing_is_said(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, counts(1, 20) + gave_up(1, 2, 3) + counts(20, 22))
    suspect = verdict.suspects[0]
    assert (suspect.stage.name, suspect.cause, suspect.confidence) == (StageName.EVAL, Cause.HOST_STALL, Confidence.LIKELY)
    assert '"[rank 0] validating 21/91000"' in suspect.evidence[0].statement
    saving = pasted(tmp_path, counts(1, 9, "[rank 0] saving shard {}/90") + gave_up(1, 2) + "[rank 0] saving shard 9/90\n")
    assert saving.suspects[0].cause is Cause.CHECKPOINT_STALL
    unnamed = pasted(tmp_path, bar(30) + old(1, 2, 3))
    assert (unnamed.suspects[0].confidence, unnamed.suspects[0].cause) == (Confidence.SUSPECT, Cause.DATALOADER_STALL)


LOSS = "[rank0]: 2026-03-21 02:0{}:11 step: {}".replace("{}", "{0}") + " loss: 2.1"
STEPS = "[rank 0] step {} loss 2.1"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(counts(1, 20, STEPS) + gave_up(1, 2, 3), id="only rank 0 writes, and before they gave up"),
        pytest.param(counts(1, 20, STEPS) + gave_up(0, 1, 2, 3) + counts(20, 23, STEPS), id="it gave up too"),
        pytest.param(counts(1, 20, STEPS) + gave_up(1, 3) + counts(20, 23, STEPS), id="another one is not heard"),
        pytest.param(
            "world_size=8\n" + counts(1, 20, STEPS) + gave_up(1, 2, 3) + counts(20, 23, STEPS), id="more are not heard"
        ),
        pytest.param(
            counts(1, 20, STEPS) + gave_up(1, 2, 3, within=1) + counts(20, 23, STEPS), id="a group that does not hold it"
        ),
        pytest.param(
            counts(1, 20, STEPS)
            + gave_up(1, 2, 3)
            + "[rank1]:[E321 02:07:08.46 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 4(tp) Rank 1] Exception (either an "
            "error or timeout) detected by watchdog at work: 7, last enqueued NCCL work: 7, last completed NCCL work: 6.\n"
            + counts(20, 23, STEPS),
            id="several groups",
        ),
        pytest.param(counts(1, 20, STEPS) + gave_up(1) + gave_up(2, number=9) + counts(20, 23, STEPS), id="two operations"),
        pytest.param(counts(1, 20, STEPS) + gave_up(1, 2, kind="RECV") + counts(20, 23, STEPS), id="messages"),
        pytest.param(
            counts(1, 20, STEPS)
            + counts(1, 20, "[rank 2] uploaded {} of 900 files")
            + gave_up(1, 2, 3)
            + counts(20, 23, STEPS)
            + counts(20, 23, "[rank 2] uploaded {} of 900 files"),
            id="threads of several ranks count on",
        ),
        pytest.param(
            counts(1, 20, STEPS)
            + gave_up(1, 2, 3)
            + "W0321 02:07:12 4711 elastic/api.py:891] Sending process 98 closing signal SIGTERM\n"
            + counts(20, 23, STEPS),
            id="output that was held back until the launcher ended it",
        ),
        pytest.param(
            counts(1, 20, "[rank 0] heartbeat {}") + gave_up(1, 2, 3) + counts(20, 30, "[rank 0] heartbeat {}"), id="no work"
        ),
        pytest.param(
            counts(1, 20, "[rank 0] still waiting, attempt {}/60")
            + gave_up(1, 2, 3)
            + counts(20, 30, "[rank 0] still waiting, attempt {}/60"),
            id="it waits too, without a watchdog",
        ),
        pytest.param(bar(30, name="Training") + "\n" + old(1, 2, 3, number=5000), id="a loop with operations"),
        pytest.param(bar(30, total=300) + "\n" + old(1, 2, 3), id="a bar at its end"),
        pytest.param(bar(3) + "\n" + old(1, 2, 3), id="a bar that was short"),
        pytest.param(bar(30) + "\n" + old(0, 1, 2, 3), id="a bar, and all gave up"),
        pytest.param(
            "[rank 0] pid 4410 on a\n"
            + "a kernel: INFO: task kworker:77 blocked for more than 120 seconds.\n"
            + gave_up(1, 2, 3),
            id="another process is blocked",
        ),
        pytest.param(
            "slurmstepd: error: *** JOB 4711 ON a CANCELLED AT 2026-03-21T02:20:00 ***\n"
            + counts(1, 20, STEPS)
            + gave_up(1, 2, 3)
            + counts(20, 23, STEPS),
            id="after a cancel",
        ),
    ],
)
def test_lines_that_prove_no_other_work_name_nobody(tmp_path: Path, text: str) -> None:
    assert named(pasted(tmp_path, text)) == set()


def _epochs(mode: str, ranks: Iterable[int], minutes: Iterable[int], epoch: int = 15) -> str:
    form = "2024-10-18 20:{0:02}:52,000 DEBUG {1} Batch {2}/{0}00 loss 1.2 lr 0.0005 rank {3}\n"
    return "".join(form.format(minute, mode, epoch, rank) for minute in minutes for rank in ranks)


LEFT = _epochs("TRAIN", range(4), range(10, 14)) + _epochs("TRAIN", (0, 1, 3), (14,))


def test_the_rank_that_went_on_to_other_work_when_its_peers_stopped(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, LEFT + _epochs("CV", (2,), range(15, 19)) + old(0, 1, 3))
    assert (named(verdict), verdict.suspects[0].stage.name) == ({2}, StageName.EVAL)
    assert "it counted on for 240 s after the last line of any peer" in verdict.suspects[0].evidence[0].statement


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(LEFT + _epochs("TRAIN", (2,), range(14, 19)), id="the work of its peers"),
        pytest.param(LEFT + _epochs("CV", (2,), (15,)), id="one line"),
        pytest.param(
            _epochs("TRAIN", (2, 3), range(10, 14)) + _epochs("CV", (2,), range(15, 19)), id="peers that print nothing"
        ),
        pytest.param(_epochs("TRAIN", range(4), range(10, 40, 9)) + _epochs("CV", (2,), range(38, 42)), id="a pause of theirs"),
    ],
)
def test_lines_that_do_not_outlast_the_peers_name_nobody(tmp_path: Path, text: str) -> None:
    assert named(pasted(tmp_path, text + old(0, 1, 3))) == set()


def _eval_lines(first: int, last: int, hour: int = 2) -> str:
    return "".join(f"2026-03-21 {hour:02}:{minute:02}:11,204 validating {minute * 10}/91000\n" for minute in range(first, last))


def _steps(hour: int = 2) -> str:
    return "".join(f"2026-03-21 {hour:02}:00:0{step},204 step: {step} loss: 2.1\n" for step in range(1, 5))


def _files(tmp_path: Path, busy: str, waits: str = "", folder: str = "logs") -> Verdict:
    """A folder with a file of each of four ranks, of which rank 3 is at other work; the others give up at 02:07."""
    (tmp_path / folder).mkdir()
    for rank in range(3):
        (tmp_path / folder / f"rank{rank}.log").write_text(_steps() + "starting validation\n" + gave_up(rank) + waits)
    (tmp_path / folder / "rank3.log").write_text(busy)
    return verdict_of(tmp_path)


def test_one_file_a_rank_with_steps_that_show_one_clock(tmp_path: Path) -> None:
    verdict = _files(tmp_path, _steps() + _eval_lines(2, 12))
    assert (named(verdict), verdict.suspects[0].rules[0]) == ({3}, "FX155")
    assert "by clocks that agree" in verdict.suspects[0].evidence[0].statement


def test_one_file_a_rank_of_one_host(tmp_path: Path) -> None:
    assert named(_files(tmp_path, _eval_lines(2, 12), folder="node-7")) == {3}


@pytest.mark.parametrize(
    ("busy", "waits"),
    [
        (_eval_lines(2, 12), ""),
        (_steps(hour=5) + _eval_lines(2, 12, hour=5), ""),
        (_steps() + _eval_lines(2, 7), ""),
        (_steps() + _eval_lines(20, 30), ""),
        (
            _steps() + _eval_lines(2, 12),
            "2026-03-21 02:08:01,204 validating 90/91000\n2026-03-21 02:08:09,204 validating 95/91000\n",
        ),
        (bar(30), ""),
    ],
    ids=["no common clock", "another zone", "before they gave up", "a later attempt", "others count on", "a bar"],
)
def test_files_of_ranks_whose_order_is_not_known(tmp_path: Path, busy: str, waits: str) -> None:
    assert named(_files(tmp_path, busy, waits)) == set()


PROMPT = "> /home/me/train.py(88)step()\n-> loss = criterion(out, y)\n"


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("[rank0]: (Pdb) \n" + gave_up(1, 2, 3), {0}),
        (counts(1, 5, "step {}") + PROMPT + "(Pdb) " + gave_up(1, 2, 3), {0}),
        (PROMPT + "ipdb> " + gave_up(0, 1, 3), {2}),
        (PROMPT + "(Pdb) " + counts(5, 9, "step {}") + gave_up(1, 2, 3), set()),
        ("[rank1]: (Pdb) \n" + gave_up(1, 2, 3), set()),
        ("[rank0]: (Pdb) \n" + gave_up(0, 1, 2, 3), set()),
        ("type n at the (Pdb) prompt\n" + gave_up(1, 2, 3), set()),
    ],
    ids=["labelled", "behind it others write", "of another kind", "it went on", "of a peer", "all gave up", "words"],
)
def test_who_waits_for_a_command_in_a_debugger(tmp_path: Path, text: str, ranks: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == ranks
