"""Traces of strace: where each thread is, and that a call alone names nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.ingest import choose
from tests.recordings.verdicts import verdict_of
from tests.unit.ingest.reading import read, sample

SPINS = "strace: Process {0} attached with 2 threads\n" + "[pid  {0}] sched_yield()                           = 0\n" * 3
READS = (
    "strace: Process {0} attached with 2 threads\n"
    '[pid  {0}] openat(AT_FDCWD, "/mnt/c/shard-4.bin", O_RDONLY) = 57\n'
    "[pid  9160] futex(0x7f11, FUTEX_WAIT_PRIVATE, 0, NULL <unfinished ...>\n"
    "[pid  {0}] pread64(57, "
)


def test_the_call_that_each_thread_is_in() -> None:
    found = sample("system_calls/handmade_rank2.strace")
    assert found.problems == [] and found.ingester == "system_calls"
    assert {row["thread"]: row["is_main"] for row in found.rows("stacks")} == {1102: True, 1160: False, 1161: False}
    assert {row["thread"]: found.stack(row["call_path"]) for row in found.rows("stacks")} == {
        1102: [("pread64", "/mnt/corpus/shard-00417.bin", None)],
        1160: [("futex", None, None)],
        1161: [("poll", None, None)],
    }


def test_a_trace_of_a_program_that_reads_a_pipe() -> None:
    found = sample("system_calls/rank1.strace")
    assert found.problems == [] and found.ingester == "system_calls"
    main = found.row("stacks", is_main=True)
    assert (main["thread"], found.stack(main["call_path"])) == (1175, [("read", "pipe:[248350]", None)])


@pytest.mark.parametrize(
    "line", ["read(57</mnt/a.tar>, ", 'read(57</mnt/a.tar>, "x", 9) = 9', "10:00:01.123456 read(57</mnt/a.tar>, "]
)
def test_names_of_files_beside_their_numbers(line: str) -> None:
    found = read(f"strace: Process 7 attached\n{line}\n".encode(), "trace.txt")
    assert [found.stack(row["call_path"]) for row in found.rows("stacks")] == [[("read", "/mnt/a.tar", None)]]


def test_the_rank_in_another_call_is_looked_at_first(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}.strace").write_text((READS if rank == 2 else SPINS).format(1100 + rank))
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects
    assert "stacks of rank 2 minutes later: at pread64" in " ".join(verdict.would_change)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "strace: Process 7 attached\n",
        "step 4 loss 2.1\nread(57, 4) = 4\n",
        "def f(x):\n    return g(x)\n",
        "print(1)\nprint(2)\n",
        "poll(5) = 3\nstep 4 loss 2.1\nstep 5 loss 2.0\n",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    found = choose(text.encode(), "rank0.txt")
    assert found is None or found.name != "system_calls"


def test_a_cut_trace_keeps_its_calls() -> None:
    text = READS.format(1102)
    for cut in (10, 40, 90):
        assert read(text[:-cut].encode(), "a.strace").rows("stacks")
