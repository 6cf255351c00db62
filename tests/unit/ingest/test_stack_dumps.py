"""Stacks that servers write into their logs, the ranks of their processes, and logs that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.ingest._shared.process_titles import place_of, world_ranks
from forensics.model import Outcome
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import Result, read

WAITS = "    broadcast (torch/distributed/distributed_c10d.py:2826)\n    recv_requests (scheduler.py:1201)\n"
WORKS = "    _apply (penaltylib/min_new_tokens.py:78)\n    run_batch (scheduler.py:2188)\n"
OUTER = "    event_loop_overlap (scheduler.py:1116)\n    run (multiprocessing/process.py:108)\n    <module> (<string>:1)\n"
NOISE = "[2026-03-14 09:21:11 TP0] Decode batch, #running-req: 3, #token: 712, token usage: 0.04\n" * 200


def dump(pid: int, place: str, stack: str = WAITS, title: str = "", outer: str = OUTER) -> str:
    title = title or f"sglang::scheduler_{place.replace(' ', '_')}"
    head = f"\n[2026-03-14 09:26:53 {place}] Pyspy dump for PID {pid}:\nProcess {pid}: {title}\nPython v3.12.3\n"
    rest = f'Thread {pid + 1000} (idle): "Thread-2 (_watchdog_thread)"\n    poll (libc.so.6)\n    run (threading.py:1010)\n'
    return f'{head}\nThread {pid} (active): "MainThread"\n{stack}{outer}{rest}\n'


def ranks(found: Result) -> dict[int, int]:
    return {row["pid"]: row["rank"] for row in found.rows("stacks") if row["is_main"]}


def test_stacks_of_a_watchdog_in_a_log_have_ranks_and_frames() -> None:
    text = NOISE + "".join(dump(4300 + rank, f"TP{rank}", WORKS if rank == 1 else WAITS) for rank in (1, 0, 2)) + NOISE
    found = read(text.encode(), "server.log")
    assert found.ingester == "training_log"
    assert ranks(found) == {4300: 0, 4301: 1, 4302: 2}
    (row,) = [row for row in found.rows("stacks") if row["rank"] == 1 and row["is_main"]]
    assert found.stack(row["call_path"])[0] == ("_apply", "penaltylib/min_new_tokens.py", 78)
    assert row["time_ns"] is not None


def test_a_paste_of_the_dumps_alone_with_the_label_of_a_container(tmp_path: Path) -> None:
    text = "".join(f"sglang-1  | {line}\n" for rank in range(2) for line in dump(9 + rank, f"TP{rank}").splitlines())
    found = read(text.encode(), "paste.txt")
    assert (found.ingester, ranks(found)) == ("training_log", {9: 0, 10: 1})
    (tmp_path / "paste.txt").write_text(text)
    assert open_case([tmp_path]).execute("SELECT count(*) FROM ingest_warnings").fetchall() == [(0,)]


def test_lines_of_others_between_the_lines_of_a_dump() -> None:
    lines = dump(7, "TP0").splitlines(keepends=True)
    text = NOISE + "".join(f"{line}[2026-03-14 09:26:53 TP1] Prefill batch, #new-seq: 1\n" for line in lines)
    assert ranks(read(text.encode(), "server.log")) == {7: 0}


def test_a_prefix_tells_the_place_of_a_process_that_has_no_title() -> None:
    text = (
        NOISE
        + dump(7, "TP0", title="python3 -m sglang.launch_server")
        + dump(8, "TP1", title="python3 -m sglang.launch_server")
    )
    assert ranks(read(text.encode(), "server.log")) == {7: 0, 8: 1}


@pytest.mark.parametrize(
    "dumps",
    [
        dump(7, "TP0", title="sglang::data_parallel_controller").replace(" TP0]", "]"),
        dump(7, "TP0", outer="") + dump(8, "TP1", outer="    event_loop_overlap (scheduler.py:1116)\n"),
        dump(7, "TP0") + dump(17, "TP0"),
        dump(7, "TP0") + "[2026-03-15 10:00:00] server_args=ServerArgs(model_path='m', tp_size=2)\n",
        dump(7, "TP0") + "$ torchrun --nproc-per-node 8 train.py\n",
        dump(7, "DP1 TP0"),
        "Process 7: packed shard 3\n" * 9 + dump(7, "TP0").partition("Thread 7")[0],
        "> Process 7: sglang::scheduler_TP0 is what py-spy printed for me, see (scheduler.py:12)\n",
    ],
    ids=["no rank", "cut", "two servers", "started again", "another job", "a replica", "headings alone", "prose"],
)
def test_what_tells_no_rank_gives_no_stacks(dumps: str) -> None:
    assert read((NOISE + dumps).encode(), "rank0.log").rows("stacks") == []


@pytest.mark.parametrize(
    ("titles", "expected"),
    [
        ("PP0_TP0 PP0_TP1 PP1_TP0 PP1_TP1", [0, 1, 2, 3]),
        ("PP1_TP0 PP1_TP1", []),
        ("DP0_TP0 DP0_TP1 DP1_TP2 DP1_TP3", [0, 1, 2, 3]),
        ("DP0_TP0 DP1_TP0", []),
        ("TP0_EP0 TP1_EP1", [0, 1]),
        ("DP0 DP1", []),
        ("PP0_ATTN_CP0_TP0 PP1_ATTN_CP0_TP0", [0, 1]),
        ("TP0 PP1", []),
    ],
)
@pytest.mark.parametrize("program", ["sglang::scheduler", "VLLM::Worker"])
def test_ranks_of_places(program: str, titles: str, expected: list[int]) -> None:
    places = {at: place for at, title in enumerate(titles.split()) if (place := place_of(f"{program}_{title}")) is not None}
    assert len(places) == len(titles.split())
    assert list(world_ranks(places).values()) == expected


@pytest.mark.parametrize("title", ["sglang::detokenizer", "VLLM::EngineCore_DP0", "python3 scheduler_TP0.py", "Worker"])
def test_titles_that_tell_no_place(title: str) -> None:
    assert place_of(title) is None


def test_labels_of_vllm_are_ranks() -> None:
    text = "(VllmWorker rank=3 pid=251) Traceback (most recent call last):\n(VllmWorker rank=3 pid=251) ValueError: no\n"
    assert read(text.encode(), "vllm.log").row("log_events")["rank"] == 3
    text = "".join(
        f"(Worker_TP{at} pid=7{at}) Traceback (most recent call last):\n(Worker_TP{at} pid=7{at}) ValueError\n" for at in (0, 1)
    )
    assert [row["rank"] for row in read(text.encode(), "vllm.log").rows("log_events")] == [0, 1]
    other = text.replace("Worker_TP1", "EngineCore_DP0")
    assert [row["rank"] for row in read(other.encode(), "vllm.log").rows("log_events")] == [0, None]


def test_a_server_whose_watchdogs_all_gave_up_stands_still(tmp_path: Path) -> None:
    lines = (f"[2026-03-14 09:26:53 TP{rank}] Watchdog timeout (self.watchdog_timeout=300)\n" for rank in range(4))
    (tmp_path / "server.log").write_text(
        NOISE + "".join(lines) + "[2026-03-14 09:26:58] Received sigquit from a child process.\nKilled\n"
    )
    verdict = verdict_of(tmp_path)
    assert (verdict.outcome, verdict.suspects) == (Outcome.HANG, ())


def test_the_rank_that_its_peers_wait_for_is_shown_and_by_one_capture_not_accused(tmp_path: Path) -> None:
    text = NOISE + "".join(dump(4300 + rank, f"TP{rank}", WORKS if rank == 1 else WAITS) for rank in range(4))
    (tmp_path / "server.log").write_text(text)
    verdict = verdict_of(tmp_path)
    assert (named(verdict), verdict.outcome) == (set(), Outcome.INCONCLUSIVE)


@pytest.mark.parametrize(("seconds", "expected"), [("300", {1}), ("", set())], ids=["watchdogs say how long", "nothing does"])
def test_how_long_others_waited_for_a_rank_at_work_is_stated_below_its_stack(
    tmp_path: Path, seconds: str, expected: set[int]
) -> None:
    ended = f"[2026-03-14 09:26:54 TP{{}}] Watchdog timeout (self.watchdog_timeout={seconds})\n" if seconds else "{}\n"
    looks = [dump(9 + rank, f"TP{rank}", WORKS if rank == 1 else WAITS) for rank in range(4)]
    text = "".join(
        (look if rank == 1 else look.replace("(active)", "(idle)")) + ended.format(rank) for rank, look in enumerate(looks)
    )
    (tmp_path / "paste.txt").write_text(text)
    verdict = verdict_of(tmp_path)
    assert (named(verdict), verdict.outcome is Outcome.HANG) == (expected, bool(expected))
