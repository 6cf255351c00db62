"""Recorder dumps as scripts of users print them: which forms are read, and which texts only look like one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of

RANKS = 6
BEHIND = 4


def calls(number: int = 1203, kind: str = "all_reduce") -> list[tuple[int, int, str, str]]:
    """Rank, number, kind and state of the last call of each rank: one made one call less."""
    states = ((number - 1, "completed") if rank == BEHIND else (number, "started") for rank in range(RANKS))
    return [(rank, seq, kind, state) for rank, (seq, state) in enumerate(states)]


def as_lines() -> str:
    return "".join(f"rank {rank}: pg=default_pg seq={seq} nccl:{kind} state={state}\n" for rank, seq, kind, state in calls())


def as_sections() -> str:
    return "".join(f"=== rank {rank} ===\n  last: {kind.upper()} seq_id={seq}, {state}\n" for rank, seq, kind, state in calls())


def as_table() -> str:
    rows = "".join(f"| {rank} | default_pg | {seq} | nccl:{kind} | {state} |\n" for rank, seq, kind, state in calls())
    return f"It hangs. From the dumps:\n\n| rank | pg | seq | collective | status |\n|---|---|---|---|---|\n{rows}"


def as_columns() -> str:
    rows = "".join(f"{rank:<5} default_pg  {seq}    {kind}  {state}\n" for rank, seq, kind, state in calls())
    return f"RANK  GROUP       SEQ_ID  OP          STATE\n{rows}"


def as_csv() -> str:
    return "rank,seq_id,op,state\n" + "".join(f"{rank},{seq},{kind},{state}\n" for rank, seq, kind, state in reversed(calls()))


def as_objects() -> str:
    last = {
        f"rank{rank}": {"pg": "default_pg", "world": RANKS, "last": {"collective_seq_id": seq, "op": kind, "state": state}}
        for rank, seq, kind, state in calls()
    }
    return json.dumps(last, indent=1)


def as_whole_dumps() -> str:
    entries = {
        f"rank_{rank}": [
            {"process_group": ["0", "default_pg"], "collective_seq_id": seq, "profiling_name": f"nccl:{kind}", "state": state}
        ]
        for rank, seq, kind, state in calls()
    }
    return json.dumps({name: {"version": "2.4", "entries": each} for name, each in entries.items()})


@pytest.mark.parametrize("written", [as_lines, as_sections, as_table, as_columns, as_csv, as_objects, as_whole_dumps])
def test_the_rank_that_made_one_call_less(written: object, tmp_path: Path) -> None:
    assert callable(written)
    name = "last.json" if written in (as_objects, as_whole_dumps) else "last.txt"
    (tmp_path / name).write_text(written())
    assert named(verdict_of(tmp_path)) == {BEHIND}


def as_they_went_on() -> str:
    """What a running job prints of each call, cut where somebody copied it."""
    made = [(rank, seq, state) for seq in range(3) for state in ("started", "completed") for rank in range(RANKS)]
    return "".join(f"rank {rank} all_reduce seq={seq} {state}\n" for rank, seq, state in made[:-2])


def as_of_two_groups() -> str:
    """Each half of the ranks counts for itself, and no line says so."""
    halves = [(rank, 500 + (rank < RANKS // 2)) for rank in range(RANKS)]
    return "".join(f"rank {rank} seq={seq} all_reduce started\n" for rank, seq in halves)


def as_different_calls() -> str:
    made = [(rank, 40 + (rank == BEHIND), "all_gather" if rank == BEHIND else "all_reduce") for rank in range(RANKS)]
    return "".join(f"rank {rank} seq={seq} {kind} completed\n" for rank, seq, kind in made)


@pytest.mark.parametrize("written", [as_they_went_on, as_of_two_groups, as_different_calls])
def test_what_only_looks_like_a_dump(written: object, tmp_path: Path) -> None:
    assert callable(written)
    (tmp_path / "printed.log").write_text(written())
    assert named(verdict_of(tmp_path)) == set()
