"""A dump whose name says nothing has the rank that its memberships leave; what a name or a manifest states stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from tests.recordings.collection import py_spy, write
from tests.recordings.places import HOST_CODE
from tests.unit.ingest.reading import read
from tests.unit.ingest.test_flight_recorder import dump, entry

GROUPS = {"0": "[0, 1, 2, 3, 4, 5, 6, 7]", "1": "[1, 3, 5, 7]", "2": "[4, 5]", "3": "[3, 7]"}
CONFIG = {name: {"name": name, "desc": "", "ranks": ranks} for name, ranks in GROUPS.items()}


def calls(*names: tuple[str, str]) -> dict[str, Any]:
    """A dump with one call of each group and kind."""
    return dump(*(entry(process_group=[group, ""], profiling_name=kind) for group, kind in names), pg_config=CONFIG)


@pytest.mark.parametrize(
    ("names", "rank"),
    [
        ([("0", "nccl:all_reduce"), ("1", "nccl:all_reduce"), ("2", "nccl:all_reduce")], 5),
        ([("0", "nccl:all_reduce"), ("1", "nccl:all_reduce")], None),
        ([("0", "nccl:all_reduce"), ("1", "nccl:send 2->3")], 5),
        ([("0", "nccl:recv 7<-0")], 7),
        ([("0", "nccl:send 1->2"), ("0", "nccl:send 2->1")], None),
        ([("0", "nccl:send 9->2")], None),
        ([("2", "nccl:all_reduce"), ("3", "nccl:all_reduce")], None),
        ([("9", "nccl:all_reduce")], None),
    ],
    ids=["only one is in all", "two are in all", "a sender", "a receiver", "two senders", "no member", "nobody", "unknown"],
)
def test_the_rank_that_memberships_leave(names: list[tuple[str, str]], rank: int | None) -> None:
    (found,) = read(json.dumps(calls(*names)).encode(), "dump (3).json").identities
    assert found.rank == rank


@pytest.mark.parametrize(("name", "rank", "method"), [("fr (2).json", 5, "content"), ("nccl_trace_rank_3.json", 3, "path")])
def test_a_name_that_states_a_rank_comes_first(name: str, rank: int, method: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(json.dumps(calls(("1", "nccl:all_reduce"), ("2", "nccl:all_reduce"))))
    with open_case([tmp_path]) as case:
        assert case.execute("SELECT rank, rank_method, status FROM sources").fetchall() == [(rank, method, "ok")]
        assert case.execute("SELECT DISTINCT rank FROM operations").fetchall() == [(rank,)]


FIFTH = json.dumps(calls(("1", "nccl:all_reduce"), ("2", "nccl:all_reduce"))).encode()
THIRD = json.dumps(calls(("1", "nccl:all_reduce"), ("3", "nccl:send 0->1"))).encode()


@pytest.mark.parametrize(
    ("dumps", "stack", "rank"),
    [
        ({"gpu-154-312.json": FIFTH}, "gpu-154/312.json", 5),
        ({"gpu-154-312.json": FIFTH}, "stacks/a.json", 5),
        ({"gpu-154-312.json": FIFTH, "gpu-155-312.json": THIRD}, "gpu-155/312.json", 3),
        ({"gpu-154-312.json": FIFTH, "gpu-155-312.json": THIRD}, "stacks/a.json", None),
        ({"gpu-154-312.json": FIFTH}, "gpu-155/312.json", None),
        ({"gpu-154-313.json": FIFTH}, "gpu-154/312.json", None),
    ],
    ids=["same host", "one host", "of two hosts", "of no host", "other host", "other process"],
)
def test_a_dump_called_by_its_process_lends_the_rank_to_stacks(
    dumps: dict[str, bytes], stack: str, rank: int | None, tmp_path: Path
) -> None:
    write(tmp_path, {**dumps, stack: py_spy(HOST_CODE, 312)})
    with open_case([tmp_path]) as case:
        assert case.execute("SELECT DISTINCT rank FROM stacks").fetchall() == [(rank,)]
