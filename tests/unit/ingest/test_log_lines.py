"""Lines of job logs: which are read at all, and what stands in front of them."""

from __future__ import annotations

import textwrap
from itertools import chain
from pathlib import Path

import pytest

from forensics.ingest._job_logs.front import front
from forensics.ingest._job_logs.selection import BLOCK_BYTES
from tests.unit.ingest.reading import SAMPLES, read

NOISE = b"2026-03-21 02:04:11,204 - trainer - INFO - step 7: loss 2.1, 3 files missing of rank 3 (exit 0)\n"
LOGS = sorted(path for folder in ("training_log", "nccl_log") for path in (SAMPLES / folder).iterdir())


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_lines_that_nobody_knows_change_nothing_but_numbers(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    plain = read(b"".join(lines), "job.log").rows("log_events")
    mixed = read(NOISE + NOISE.join(lines), "job.log").rows("log_events")
    assert [row["locator"] for row in mixed] == [2 * row["locator"] for row in plain]
    assert [row["subject"] for row in mixed] == [row["subject"] for row in plain]


@pytest.mark.slow
def test_a_message_behind_hours_of_a_bar_and_between_blocks() -> None:
    bar = b"".join(b"\r%d%%|####    | %d/900000 [00:01<00:02]" % (at // 9000, at) for at in range(60_000))
    text = b"start\n" + bar + b"\rFatal Python error: Aborted\r\n" + NOISE * (BLOCK_BYTES // len(NOISE)) + b"Killed\n"
    found = read(text, "job.log").rows("log_events")
    assert [(row["kind"], row["locator"]) for row in found] == [("fatal_error", 2), ("process_exit", text.count(b"\n"))]


def test_a_line_without_end_costs_no_more_than_a_block() -> None:
    text = b"x" * (3 * BLOCK_BYTES) + b"\nKilled\n"
    assert [row["locator"] for row in read(text, "job.log").rows("log_events")] == [2]


@pytest.mark.parametrize(
    ("line", "bare", "rank", "label", "time_ns"),
    [
        ("2026-03-21T02:04:11.5Z stderr F [rank3]:   File", "[rank3]:   File", 3, (), 1774058651_500_000_000),
        ("[rank3]: 2026-03-21 02:04:11,204 - a.b - ERROR - Killed", "[rank3]: Killed", 3, (), None),
        (
            "[pod/job-worker-3/main] 2026-03-21T03:04:11+01:00 x",
            "[pod/job-worker-3/main] x",
            None,
            ("pod", "job-worker-3"),
            1774058651_000_000_000,
        ),
        ("Mar 21 02:04:11 n7 train[99]: Killed", "n7 train[99]: Killed", None, ("unit", "n7 train[99]"), None),
        ("2026-03-21T02:04:11+0000 n7 train[99]: x", "n7 train[99]: x", None, ("unit", "n7 train[99]"), 1774058651_000_000_000),
        ("[12345.678901] x", "x", None, (), None),
        ("2026-03-21 02:04:11,204 p=881 u=ops n=ansible | Killed", "Killed", None, (), None),
        (
            "(Worker pid=6, ip=10.7.7.6)   File",
            "(Worker pid=6, ip=10.7.7.6)   File",
            None,
            ("actor", "Worker pid=6, ip=10.7.7.6"),
            None,
        ),
        (" 3: [default0]:x", " 3: [default0]:x", None, ("task", "3"), None),
        ("worker-1  | x", "worker-1  | x", None, ("service", "worker-1"), None),
        (
            "(worker3, rank=3, pid=7, ip=10.0.0.9) x",
            "(worker3, rank=3, pid=7, ip=10.0.0.9) x",
            None,
            ("service", "worker3"),
            None,
        ),
        ("(head, rank=0, pid=7) [rank1]: x", "(head, rank=0, pid=7) [rank1]: x", 1, ("service", "head"), None),
        ("[1,mpirank:11,algo-2]<stderr>:x", "[1,mpirank:11,algo-2]<stderr>:x", 11, (), None),
        ("[rank 3] x", "[rank 3] x", 3, (), None),
        ("[Rank 3/8] x", "[Rank 3/8] x", 3, (), None),
        ("2026-03-21 02:04:11,204 - INFO - rank 3 - x", "rank 3 - x", 3, (), None),
        ("2026-03-21 02:04:11.204 | ERROR    | rank=3 | a:b:12 - x", "| rank=3 | a:b:12 - x", 3, (), None),
        ("r3 | ValueError: x", "r3 | ValueError: x", 3, (), None),
        ("[R12] | x", "[R12] | x", 12, (), None),
        ("x r3 | y", "x r3 | y", None, (), None),
        ("INFO:root:rank 3: x", "INFO:root:rank 3: x", 3, (), None),
        ("[INFO] [a.py:9:f] [Rank 0] x", "[INFO] [a.py:9:f] [Rank 0] x", 0, (), None),
        ("I0321 02:04:11.204116 99 a.py:9] [rank 3] x", "I0321 02:04:11.204116 99 a.py:9] [rank 3] x", 3, (), None),
        ("level=error rank=3 msg=x", "level=error rank=3 msg=x", 3, (), None),
        ('{"level": "ERROR", "rank": 3, "message": "x"}', "x", 3, (), None),
        ("missing rank 3: x", "missing rank 3: x", None, (), None),
        ("waits for: rank 3: x", "waits for: rank 3: x", None, (), None),
        ("step 2: rank 3: x", "step 2: rank 3: x", None, (), None),
        ("[local_rank 3] x", "[local_rank 3] x", None, (), None),
        ("node rank 3: x", "node rank 3: x", None, (), None),
        ("[Rank 3] Watchdog caught x", "[Rank 3] Watchdog caught x", None, (), None),
        ("[3] x", "[3] x", None, ("box", "3"), None),
        ("[91203] [rank3]: x", "[91203] [rank3]: x", 3, (), None),
        ("[GPU 3] x", "[GPU 3] x", None, ("tee", "GPU3"), None),
        ("10:00:01 x", "10:00:01 x", None, (), None),
        ("+  612.400s [rank3]: x", "[rank3]: x", 3, (), None),
        ("T+00:10:12.4 x", "x", None, (), None),
        ("[t=12.4 s] 3: x", "3: x", None, ("task", "3"), None),
        ("+ 3 steps x", "+ 3 steps x", None, (), None),
        ("T+1 s of training", "of training", None, (), None),
        ("2026-03-21 x", "2026-03-21 x", None, (), None),
        ("10.0.0.1: x", "10.0.0.1: x", None, (), None),
    ],
)
def test_what_stands_in_front(line: str, bare: str, rank: int | None, label: tuple[str, ...], time_ns: int | None) -> None:
    found = front(line)
    assert (found.bare, found.rank, found.labels[0] if found.labels else (), found.time_ns) == (bare, rank, label, time_ns)


def test_a_traceback_whose_lines_have_times_of_their_own() -> None:
    parts = ("Traceback (most recent call last):", '  File "a.py", line 1, in f', "ValueError: x")
    text = "".join(f"[pod/w-0/c] 2026-03-21T02:04:1{at}Z {part}\n" for at, part in enumerate(parts))
    assert [row["kind"] for row in read(text.encode(), "job.log").rows("log_events")] == ["traceback", "exception"]


def test_pods_are_ranks_only_where_each_went_with_one_and_these_are_all() -> None:
    def ranks(*stated: int) -> list[int | None]:
        lines = [f"[pod/w-{at}/c] [rank{rank}]: ValueError: x\n[pod/w-{at}/c] Killed\n" for at, rank in enumerate(stated)]
        found = read("".join(lines).encode(), "job.log").rows("log_events")
        return [row["rank"] for row in found if row["kind"] == "process_exit"]

    assert ranks(1, 0) == [1, 0]
    assert ranks(0, 4) == [None, None], "rank 4 is the first of a second pod of four"
    assert ranks(0) == [None]


SAID = (
    "[rank{0}]:[E321 02:07:08.465224069 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {0}] Exception "
    "(either an error or timeout) detected by watchdog at work: 808, last enqueued NCCL work: 811, last completed "
    "NCCL work: 807."
)


def wrapped(width: int, *lines: str) -> bytes:
    return "\n".join(line[at : at + width] for line in lines for at in range(0, len(line), width)).encode() + b"\n"


@pytest.mark.parametrize("width", [80, 100, 119, 120, 160, 211])
def test_lines_cut_at_the_width_of_a_terminal(width: int) -> None:
    text = wrapped(width, SAID.format(0), SAID.format(1), "Killed")
    rows = read(text, "job.log")
    assert [(row["rank"], row["enqueued"], row["completed"]) for row in rows.rows("log_positions")] == [
        (0, 811, 807),
        (1, 811, 807),
    ]
    (killed,) = [row for row in rows.rows("log_events") if row["kind"] == "process_exit"]
    assert killed["locator"] == text.count(b"\n")


@pytest.mark.parametrize("front", ["{0}: ", "{0}| ", "worker-{0}  | "])
def test_labelled_lines_of_one_width_are_not_one_line(front: str) -> None:
    text = "".join(front.format(rank) + SAID.format(rank) + "x\n" for rank in range(4))
    assert [row["rank"] for row in read(text.encode(), "job.log").rows("log_positions")] == [0, 1, 2, 3]


def test_records_of_one_width_are_not_one_line() -> None:
    said = "[rank{0}]:[E801 10:31:0{0}.2 ProcessGroupNCCL.cpp:685] [Rank {0}] Watchdog caught collective operation timeout: W"
    record = '{{"time": "2026-11-04T09:00:0{0}.685Z", "stream": "stderr", "log": "' + said + '"}}\n'
    text = "".join(record.format(rank) for rank in range(4))
    assert [row["rank"] for row in read(text.encode(), "job.log").rows("log_events")] == [0, 1, 2, 3]


def test_ends_of_one_width_that_an_agent_saw_are_not_one_line() -> None:
    end = (
        "E1112 10:29:03.51{0}000 771 torch/x/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: {0} (pid: 80{0}) of"
    )
    text = "".join(f"{end.format(rank)} /bin/python\n" for rank in range(3))
    rows = read(text.encode(), "job.log").rows("log_events")
    assert [row["subject"].split()[1] for row in rows if row["kind"] == "process_exit"] == ["pid=800", "pid=801", "pid=802"]


def test_lines_of_one_width_by_chance_stay_as_they_are() -> None:
    progress = [f"step {at:4} of trainer 7: loss 2.7182 in 41 ms, samples/s {at:8}, world 8".ljust(79, ".") for at in range(9)]
    text = "\n".join([*progress, "Killed", "=" * 79, "Fatal Python error: Aborted"])
    assert [row["kind"] for row in read(text.encode(), "job.log").rows("log_events")] == ["process_exit", "fatal_error"]


def folded(*lines: str, width: int = 80) -> bytes:
    """As a mail folds them: between words, none wider than so many columns."""
    parts = [textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) for line in lines]
    return "".join(f"{part}\n" for part in chain.from_iterable(parts)).encode()


GAVE_UP = (
    "[rank12]:[E321 02:07:08.465224069 ProcessGroupNCCL.cpp:632] [Rank 12] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9, OpType=_ALLGATHER_BASE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before "
    "timing out."
)


LOST = (
    "E0000 00:00:1773540201.143 coordination_service.cc:1170] /job:jax_worker/replica:0/task:7 has been set to ERROR in "
    "coordination service: UNAVAILABLE: Task /job:jax_worker/replica:O/task:7 heartbeat timeout. This indicates that the "
    "remote task has failed, got preempted, or crashed unexpectedly."
)


@pytest.mark.parametrize(
    ("plain", "width"),
    [([SAID.format(rank) for rank in range(3)], 80), ([GAVE_UP], 80), ([GAVE_UP], 57), ([LOST], 57)],
    ids=["several", "one", "one in a narrow window", "of JAX in a narrow window"],
)
def test_lines_that_a_mail_folded_are_put_together_again(plain: list[str], width: int) -> None:
    found = read(folded(*plain, "Killed", width=width), "mail.txt").rows("log_events")
    reported = read("".join(f"{line}\n" for line in (*plain, "Killed")).encode(), "mail.txt").rows("log_events")
    assert [(row["kind"], row["subject"], row["rank"]) for row in found] == [
        (row["kind"], row["subject"], row["rank"]) for row in reported
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Last week I saw a Watchdog caught collective operation timeout, is it that?\n",
        "I saw 'Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE' once.\n",
        "The log says, Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE\n",
    ],
)
def test_a_timeout_that_a_sentence_mentions_has_not_happened(text: str) -> None:
    found = read(f"step 4 loss 2.1\n{text}Killed\n".encode(), "question.log").rows("log_events")
    assert "watchdog_timeout" not in {row["kind"] for row in found}


def test_short_lines_of_watchdogs_below_each_other_stay_what_they_are() -> None:
    lines = [f"[rank{rank}]: ValueError: the batch of this rank has no rows, see the loader of it\n" for rank in range(4)]
    found = read("".join(lines).encode(), "mail.txt").rows("log_events")
    assert [(row["rank"], row["locator"]) for row in found if row["kind"] == "exception"] == [(r, r + 1) for r in range(4)]
