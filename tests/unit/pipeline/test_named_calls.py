"""Traces in which calls of gloo have a name and nothing else: their threads and their ends tell the group, or nothing does."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from forensics.case.build import open_case
from forensics.model import Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.reductions.steps.host_calls import named_calls

MS, STEPS, PASSES, PAIRS = 1_000_000, 7, 4, {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
SLOW, LATE_NS = 3, 3_000 * MS
Struck = tuple[int, int, str]
"""Step, number of the pass, and direction in which rank `SLOW` is late."""


class Trace:
    """What one rank did: annotations of steps, messages and calls, gradients."""

    def __init__(self, rank: int, host: str) -> None:
        self.rank, self.host, self.now = rank, host, 0
        self.events: list[dict[str, Any]] = []
        self.turns: Counter[int] = Counter()

    def add(self, category: str, name: str, thread: int, begin: int, end: int) -> None:
        """An event of a thread, times in ns."""
        times = {"ts": begin / 1000, "dur": (end - begin) / 1000}
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, **times, "args": {}})

    def call(self, group: int, begin: int, end: int) -> None:
        """A call of a process group, on one of its two threads."""
        thread = 100 + 10 * group + self.turns[group] % 2
        self.turns[group] += 1
        self.add("user_annotation", "gloo:all_reduce", thread, begin, end)

    def write(self, folder: Path) -> None:
        """The file."""
        groups = {"0": [0, 1, 2, 3], f"{1 + self.rank // 2}": list(PAIRS[self.rank])}
        described = [{"pg_name": name, "pg_desc": "", "ranks": members} for name, members in groups.items()]
        info = {"backend": "gloo", "rank": self.rank, "world_size": 4, "pg_config": described}
        content = {"schemaVersion": 1, "distributedInfo": info, "host_name": self.host, "traceEvents": self.events}
        (folder / f"rank{self.rank}.pt.trace.json").write_text(json.dumps(content, indent=1))


def write(folder: Path, struck: Struck | None, *, hosts: tuple[str, ...] = ("one",) * 4) -> None:
    """Two stages of two ranks; the passes of each are forward and backward in turn, with a call in each."""
    ranks = [Trace(rank, hosts[rank]) for rank in range(4)]
    for step in range(STEPS):
        begins = [rank.now for rank in ranks]
        for number in range(PASSES):
            for kind in ("forward", "backward"):
                _pass(ranks, kind, LATE_NS if struck == (step, number, kind) else 0)
        end = max(rank.now for rank in ranks) + MS
        for rank, begin in zip(ranks, begins, strict=True):
            rank.call(0, rank.now, end)
            rank.now = end
            rank.add("user_annotation", f"ProfilerStep#{4 + step}", 1, begin, end)
    for rank in ranks:
        rank.write(folder)


def _pass(ranks: list[Trace], kind: str, late: int) -> None:
    for first, second in ((0, 1), (2, 3)):
        pair = [ranks[first], ranks[second]]
        begins = [rank.now for rank in pair]
        for rank in pair:
            rank.now += (10 + 2 * rank.rank) * MS + late * (rank.rank == SLOW)
        end = max(rank.now for rank in pair) + MS
        for rank, begin in zip(pair, begins, strict=True):
            rank.call(1 + rank.rank // 2, rank.now, end)
            rank.now = end
            if kind == "backward":
                rank.add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 1, begin, end)
    # Each hands on to the other stage, and waits until that one comes.
    for one in (0, 1):
        end = max(ranks[one].now, ranks[one + 2].now) + MS
        for rank, name in ((ranks[one], "gloo:send"), (ranks[one + 2], "gloo:recv")):
            rank.add("user_annotation", name, 1, rank.now, end)
            rank.now = end


def verdict(folder: Path) -> Verdict:
    with open_case([folder]) as connection:
        return diagnose(connection)


def test_threads_and_ends_tell_the_groups(tmp_path: Path) -> None:
    write(tmp_path, None)
    with open_case([tmp_path]) as connection:
        found = named_calls(connection)
    calls = Counter(zip(found["rank"].tolist(), found["communicator"], found["is_p2p"].tolist(), strict=True))
    for rank in range(4):
        own = {label: count for (of, label, is_p2p), count in calls.items() if of == rank and not is_p2p}
        assert own == {"0": STEPS, f"{1 + rank // 2}": STEPS * PASSES * 2}


def test_a_late_pass_is_named_with_its_microbatch(tmp_path: Path) -> None:
    for kind in ("forward", "backward"):
        write(tmp_path, (4, 2, kind))
        (suspect,) = verdict(tmp_path).suspects
        assert (suspect.ranks, suspect.stage.name, suspect.stage.microbatch) == ((SLOW,), kind, 2)


def test_a_sound_job_accuses_nobody(tmp_path: Path) -> None:
    write(tmp_path, None)
    assert verdict(tmp_path).suspects == ()


def test_ranks_of_several_hosts_have_no_common_clock(tmp_path: Path) -> None:
    write(tmp_path, (4, 2, "forward"), hosts=("one", "one", "two", "two"))
    with open_case([tmp_path]) as connection:
        assert len(named_calls(connection)["rank"]) == 0
        assert diagnose(connection).suspects == ()


def test_without_the_trace_of_a_member_nothing_is_sure(tmp_path: Path) -> None:
    write(tmp_path, (4, 2, "forward"))
    (tmp_path / f"rank{SLOW}.pt.trace.json").unlink()
    with open_case([tmp_path]) as connection:
        # On the two that are left, the calls of all ranks could be those of either group.
        assert len(named_calls(connection)["rank"]) == 0
        assert diagnose(connection).suspects == ()
