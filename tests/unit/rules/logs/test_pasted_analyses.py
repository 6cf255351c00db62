"""Analyses and stacks that people paste into a log, and what looks like them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.model import Outcome, RankProcess
from forensics.report import head
from tests.recordings.verdicts import named, pasted, verdict_of

ENTRY = (
    "Not all ranks joining collective, sequence number: {0}\ninternal record id: 7\ngroup info: {1}\n"
    "collective: nccl:all_gather\nmissing ranks: {{{2}}}\nexpected ranks: {{{3}}}\n"
)
ALL = ENTRY.format(90, "0:default_pg", 5, "0, 1, 2, 3, 4, 5, 6, 7")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (ALL + ENTRY.format(17, "2:tp", "4, 6, 7", "4, 5, 6, 7"), {5}),
        (ALL + ENTRY.format(17, "2:tp", "4", "4, 5"), set()),
        (ALL + ENTRY.format(17, "2:tp", "6, 7", "4, 5, 6, 7"), set()),
        (ENTRY.format(9, "1:a", "2, 3", "0, 1, 2, 3") + ENTRY.format(9, "2:b", "0, 1", "0, 1, 2, 3"), set()),
    ],
    ids=["alone in its group", "one against one", "two against two", "two halves"],
)
def test_the_rank_that_waits_alone_for_those_who_wait_for_it(tmp_path: Path, text: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == right


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps({"event": "finding", **record}) + "\n" for record in records)


def members(name: str, *ranks: int) -> dict[str, object]:
    return {"event": "comm_registered", "comm_uid_hash": name, "global_ranks": ranks}


def missing(name: str, sequence: int, came: list[int], absent: list[int], **more: object) -> dict[str, object]:
    details = {"entered_comm_ranks": came, "missing_comm_ranks": absent, "api": "ncclAllReduce", **more}
    return {"hang_type": "collective_missing_enter", "comm_uid_hash": name, "comm_seq": sequence, "details": details}


WORLD = members("a1", *range(8))
GROUP = members("b2", 1, 3, 5, 7)
AWAITED = missing("b2", 40, [0, 1, 3], [2])


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (lines(WORLD, GROUP, AWAITED, missing("a1", 9, [0, 2, 4, 6], [1, 3, 5, 7])), {5}),
        (lines(*({"comm_uid_hash": "b2", "comm_rank": at, "rank": 2 * at + 1} for at in range(4)), AWAITED), {5}),
        (lines(AWAITED), set()),
        (lines(GROUP, missing("b2", 40, [0, 1, 3], [2], reason="probe_event_loss_possible")), set()),
        (lines(GROUP, AWAITED, {**AWAITED, "hang_type": "delayed_collective_enter"}), set()),
        (lines(GROUP, {**AWAITED, "hang_type": "delayed_collective_enter"}), set()),
    ],
    ids=["the others wait for it", "by their calls", "members unknown", "the probe lost calls", "it came", "late only"],
)
def test_calls_that_flagscale_saw_some_members_not_enter(tmp_path: Path, text: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, "analyzer started\n" + text)) == right


STORE = "Waiting in store based barrier to initialize process group for rank: {0}, key: k:1 (world_size=4, worker_count={1}, "


def at_start(announced: tuple[int, ...], waiting: tuple[int, ...], came: int, size: int = 4) -> str:
    said = "".join(f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{size}\n" for rank in announced)
    return said + "".join(STORE.format(rank, came) + "timeout=0:30:00)\n" for rank in waiting)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (at_start((3, 0, 1), (1, 3), 3), {2}),
        (at_start((3, 0, 1, 2), (1, 3), 3), set()),
        (at_start((3, 0), (1,), 2), set()),
        (at_start((3, 0, 1), (1, 3), 3, size=8), set()),
        (at_start((0, 1, 3), (), 3), set()),
    ],
    ids=["neither", "all began", "others came", "another size", "nobody waits"],
)
def test_who_announced_no_start_and_does_not_wait_for_it(tmp_path: Path, text: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == right


REDUCES = "    all_reduce (torch/distributed/distributed_c10d.py:2806)\n    sync (train.py:88)\n"
FETCHES = "    wait (threading.py:302)\n    get (queue.py:170)\n    __next__ (batches.py:64)\n"

STEPS = "".join(f"2026-03-14 09:{minute}:11 INFO step {minute} loss 2.{minute}\n" for minute in range(10, 60)) * 4


GAVE_UP = (
    "[rank{0}]:[E314 09:59:11.2 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600022 milliseconds\n"
)


def taken(rank: int, stack: str, command: str = "$ py-spy dump --pid {pid}   # rank {rank}") -> str:
    head, pid = command.format(pid=700 + rank, rank=rank), 700 + rank
    return f'{head}\nProcess {pid}: python train.py\n\nThread {pid} (idle): "MainThread"\n{stack}    <module> (train.py:9)\n\n'


def test_stacks_below_the_commands_that_took_them(tmp_path: Path) -> None:
    stacks = [FETCHES if rank == 2 else REDUCES for rank in range(4)]
    verdict = pasted(tmp_path, "".join(taken(rank, stack) for rank, stack in enumerate(stacks)))
    assert (named(verdict), verdict.outcome) == ({2}, Outcome.INCONCLUSIVE), "a moment of a sound job looks like this"
    assert verdict.suspects[0].next_steps[0].startswith("take stacks of all ranks again")
    lead = "if the job is stuck: rank 2"
    assert lead in verdict.summary and head.lines(verdict)[0].startswith(lead)
    (tmp_path / "stacks.txt").write_text("".join(taken(rank, stack) for rank, stack in enumerate(stacks)))
    verdict = pasted(tmp_path, "".join(GAVE_UP.format(rank) for rank in (0, 1, 3)))
    assert (named(verdict), verdict.outcome) == ({2}, Outcome.HANG), "the others gave up waiting"
    (tmp_path / "stacks.txt").unlink()
    alike = pasted(tmp_path, "".join(taken(rank, REDUCES) for rank in range(4)))
    assert not named(alike), "all wait"
    (tmp_path / "job.log").unlink()
    (tmp_path / "train.log").write_text(STEPS + "".join(taken(rank, stack) for rank, stack in enumerate(stacks)) + STEPS)
    assert named(verdict_of(tmp_path)) == {2}, "between lines of training"
    (tmp_path / "train.log").unlink()
    other = "$ py-spy dump --pid {pid}   # after rank {rank} had been started again"
    guessed = pasted(tmp_path, "".join(taken(9 - rank, stack, other) for rank, stack in enumerate(stacks)))
    assert [(one.ranks, one.processes) for one in guessed.suspects] == [((1,), (RankProcess(1, 707),))]


GATHERS = "    all_gather_into_tensor (torch/distributed/distributed_c10d.py:3709)\n    prepare (scheduler.py:17)\n"
WALKS = "    _match (tree.py:40)\n    next_batch (scheduler.py:13)\n"
NOISE = "[2026-03-14 09:21:11 TP0] Decode batch, #running-req: 3, #token: 712, token usage: 0.04\n" * 200
OUTER = "    event_loop (scheduler.py:70)\n    run (multiprocessing/process.py:108)\n    <module> (<string>:1)\n"


def server(*silent: int, limit: int = 300) -> str:
    heads = (
        f"[2026-03-14 09:26:52 TP{at}] Watchdog timeout (self.watchdog_timeout={limit})\n"
        for at in range(4)
        if at not in silent
    )
    dumps = (
        f"[2026-03-14 09:26:53 TP{at}] Pyspy dump for PID {70 + at}:\nProcess {70 + at}: sglang::scheduler_TP{at}\n"
        f'Python v3.12.3\n\nThread {70 + at} (active): "MainThread"\n{WALKS if at == 1 else GATHERS}{OUTER}\n'
        for at in range(4)
    )
    return NOISE + "".join(heads) + "".join(dumps)


@pytest.mark.parametrize(
    ("text", "right"),
    [(server(), {1}), (server(2), set()), (server(limit=5), set()), (server(0, 1, 2, 3), set())],
    ids=["all of them", "one moved", "not for long", "nobody says so"],
)
def test_the_scheduler_at_work_while_watchdogs_saw_its_peers_wait(tmp_path: Path, text: str, right: set[int]) -> None:
    (tmp_path / "server.log").write_text(text)
    assert named(verdict_of(tmp_path)) == right


SIZES = "SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[64]]' does not match found input sizes: '[[{0}]]'"
OUTPUTS = "SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[64]]' does not match found output sizes: '[[256]]'"
NUMEL = "SIZE_OR_SYNTAX_MISMATCH, Found input numel '64 * pg size 8' does not match output numel '256'"
TYPES = "COLLECTIVE_DTYPE_MISMATCH, Expected dtypes: '{0}' does not match found dtype: '{1}'"
STATE = "COLLECTIVE_STATE_MISMATCH, Expected state: 'scheduled' does not match found state: 'started'"
BARE = "SIZE_OR_SYNTAX_MISMATCH"


def errors(
    *found: tuple[int, str],
    size: int = 8,
    first: str = "Collective 12 at entry 11 errors",
    expected: str | None = None,
    collective: str = "nccl:all_reduce",
) -> str:
    said = ", ".join(f"Culprit rank {rank}; Error type: {error}" for rank, error in found)
    members = expected or str(set(range(size)))
    lines = (first, "group info: 0:default_pg", f"collective: {collective}", f"expected ranks: {members}", f"error msg: {said}")
    return "\n".join((*lines, "collective stack trace: ", " step at train.py:31", ""))


def all_but(size: int, error: str, *others: int) -> list[tuple[int, str]]:
    """The first one is never a culprit."""
    return [(rank, error) for rank in range(1, size) if rank not in others]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (errors((5, SIZES.format(9))), {5}),
        (errors((5, SIZES.format(9)), (3, SIZES.format(9))), {3, 5}),
        (errors((5, SIZES.format(9)), expected="8").replace("error msg", "error message"), {5}),
        (errors((5, TYPES.format("{('Half',)}", "{('Half',)}/{('Float',)}/{('Float',)}"))), {5}),
        (errors((5, TYPES.format("['Half']/['Float']", "['Half']/['Float']"))), {5}),
        (errors((5, SIZES.format(9)), (3, STATE)), {5}),
        (errors((5, SIZES.format(9))).replace("\n", ", "), {5}),
        (errors((5, SIZES.format(9))) + errors((3, BARE), first="Collective sequence number: 30 has errors"), {5}),
    ],
    ids=["one", "two", "a count of ranks", "types", "types in turn", "a state beside it", "one line", "a call of its own"],
)
def test_the_ranks_whose_calls_an_analyzer_found_to_differ(tmp_path: Path, text: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == right


@pytest.mark.parametrize(
    "text",
    [
        errors(*all_but(8, SIZES.format(9), 1, 2, 3)),
        errors(*all_but(8, OUTPUTS)),
        errors(*all_but(8, NUMEL)),
        errors(*all_but(8, TYPES.format("{('Half',)}", "{('Float',)}/{('Half',)}/{('Float',)}"))),
        errors((1, SIZES.format(9)), *all_but(8, STATE, 1, 2)),
        errors((5, BARE), collective="nccl:coalesced"),
        errors((5, SIZES.format(9)), expected="8").replace("0:default_pg", "3:mesh_tp"),
        errors(*all_but(64, SIZES.format(9)), size=64),
        errors((5, SIZES.format(9))).partition("[[9")[0],
        errors((5, SIZES.format(9))) + errors((3, SIZES.format(7))),
        "the tool said Culprit rank 5; Error type: " + SIZES.format(9) + "\n",
        errors(first="Input/output mismatch in the collective sequence number: 12"),
    ],
    ids=[
        "half of them",
        "sizes of one call",
        "sizes that fit nobody",
        "types of one call",
        "states that may hide sizes",
        "not in what",
        "members unknown",
        "longer than lines are read",
        "cut",
        "two analyses",
        "a sentence",
        "sizes of an all-to-all",
    ],
)
def test_differences_that_name_nobody(tmp_path: Path, text: str) -> None:
    verdict = pasted(tmp_path, text)
    assert not {rank for suspect in verdict.suspects if suspect.members == "each" for rank in suspect.ranks}
