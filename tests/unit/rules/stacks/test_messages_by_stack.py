"""Peers of sends and receives, from arguments that `py-spy dump --locals` shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from duckdb import DuckDBPyConnection

from forensics.case.build import open_case
from forensics.rules.reductions.waits.graph import WaitGraph
from forensics.rules.supply import Supply
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import read

C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
OUTER = (
    "    run_stage (/srv/job/pretrain.py:40)\n        Arguments:\n            src: 2\n    <module> (/srv/job/pretrain.py:97)\n"
)


def inside(function: str, argument: str, value: str) -> str:
    """Sends and receives with all that the sampler prints of them."""
    below = (
        f"        Arguments:\n            tensor: <Tensor at 0x7f>\n            {argument}: {value}\n            group: None\n"
    )
    return f'    {function} ({C10D}:2500)\n{below}        Locals:\n            note: {{"src": 9, "a": (1)}}\n{OUTER}'


BUSY = f"    parse (/srv/job/records.py:12)\n        Locals:\n            dst: 1\n{OUTER}"
LOOPING = f"    poll_metrics (/srv/job/metrics.py:70)\n{OUTER}"


def dump(pid: int, stack: str) -> str:
    return f'Process {pid}: python pretrain.py\nPython v3.11.7 (/usr/bin/python3)\n\nThread {pid} (idle): "MainThread"\n{stack}'


def waits(tmp_path: Path, *stacks: str) -> dict[int, tuple[int, ...]]:
    """Whom each rank waits for."""
    for rank, stack in enumerate(stacks):
        (tmp_path / f"rank{rank}.py-spy.txt").write_text(dump(400 + rank, stack))
    connection = open_case([tmp_path])
    try:
        return {
            rank: tuple(sorted(others))
            for rank, others in Supply({DuckDBPyConnection: connection}).get(WaitGraph).waits_for.items()
        }
    finally:
        connection.close()


def test_a_receive_waits_for_its_peer_and_not_for_whoever_is_elsewhere(tmp_path: Path) -> None:
    found = waits(tmp_path, BUSY, inside("recv", "src", "0"), inside("recv", "src", "1"), LOOPING)
    assert found == {1: (0,), 2: (1,)}


def test_without_values_all_that_are_elsewhere_may_owe_it(tmp_path: Path) -> None:
    found = waits(tmp_path, BUSY, inside("recv", "src", "None"), inside("recv", "src", "None"), LOOPING)
    assert found == {1: (0, 3), 2: (0, 3)}


@pytest.mark.parametrize("value", ["7", "1", "-1", "None", "12345678"], ids=["no rank", "itself", "any", "none", "too long"])
def test_a_peer_that_is_none_of_the_job(tmp_path: Path, value: str) -> None:
    assert waits(tmp_path, BUSY, inside("recv", "src", value)) == {1: (0,)}


def test_a_message_on_its_way_is_no_deadlock(tmp_path: Path) -> None:
    found = waits(tmp_path, inside("send", "dst", "1"), inside("recv", "src", "0"), LOOPING)
    assert found == {0: (2,), 1: (2,)}
    assert named(verdict_of(tmp_path)) <= {2}


def test_two_that_receive_from_each_other_wait_for_each_other(tmp_path: Path) -> None:
    assert waits(tmp_path, inside("recv", "src", "1"), inside("recv", "src", "0")) == {0: (1,), 1: (0,)}


@pytest.mark.parametrize(("sources", "expected"), [(("None", "None"), set()), (("1", "0"), {0, 1})], ids=["any", "each other"])
def test_receivers_whose_peers_are_not_known_may_wait_for_a_rank_without_stack(
    tmp_path: Path, sources: tuple[str, str], expected: set[int]
) -> None:
    """Nothing shows how many ranks there are: stacks of the first half of a pipeline look like those of all of it."""
    for rank, source in enumerate(sources):
        for time in ("031205", "031405"):
            (tmp_path / f"rank{rank}_{time}.txt").write_text(dump(400 + rank, inside("recv", "src", source)))
    assert named(verdict_of(tmp_path)) == expected


def test_the_source_of_a_broadcast_is_no_peer() -> None:
    text = dump(4, inside("broadcast", "src", "0"))
    assert "peer" not in read(text.encode(), "rank1.txt").rows("stacks")[0]


def test_peers_in_json() -> None:
    values = [{"name": "src", "arg": False, "repr": "5"}, {"name": "src", "arg": True, "repr": "3"}]
    frames = [
        {"name": "recv", "filename": C10D, "line": 5, "locals": values},
        {"name": "<module>", "filename": "a.py", "line": 1},
    ]
    thread = {"pid": 4, "thread_id": 9, "thread_name": "MainThread", "os_thread_id": 4, "active": False, "owns_gil": False}
    rows = read(json.dumps([{**thread, "frames": frames}]).encode(), "rank1.json").rows("stacks")
    assert [row["peer"] for row in rows] == [3]
