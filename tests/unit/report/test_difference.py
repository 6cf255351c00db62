"""What changed is stated, what follows from a run being another one is not, and what was not read is not compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.comparable import Comparable, Scope, Times, comparable
from forensics.case.database import new_case
from forensics.report.difference import Change, difference
from tests.recordings.collection import Collection, whole
from tests.recordings.commands import Command
from tests.recordings.job import Job
from tests.recordings.places import LOADER_QUEUE
from tests.unit.report.verdicts import HANG

EMPTY = Comparable({}, {}, {}, None, {}, {}, {})


def changes(before: Comparable, after: Comparable) -> list[Change]:
    return list(difference(before, after, (HANG, HANG)).changes)


def with_settings(**values: str) -> Comparable:
    return replace(EMPTY, settings={key.replace("__", "."): {(None, None): value} for key, value in values.items()})


def test_a_version_that_changed_is_stated_and_one_that_was_not_read_is_not() -> None:
    old = with_settings(nccl_version="2.27.3", node__kernel="6.1", env__A="1")
    new = with_settings(nccl_version="2.28.7", gpu__driver_version="575", env__A="1")
    assert changes(old, new) == [Change("versions", "nccl_version", "2.27.3", "2.28.7")]
    reason = difference(old, new, (HANG, HANG)).not_compared["settings that only one of them states"]
    assert reason == "gpu.driver_version, node.kernel"


def test_a_variable_that_is_no_longer_set_is_a_change_where_environments_were_read() -> None:
    old, new = with_settings(env__NCCL_ALGO="Ring", env__A="1"), with_settings(env__A="1")
    assert changes(old, new) == [Change("environment", "env.NCCL_ALGO", "Ring", "not set")]
    unread = difference(old, with_settings(nccl_version="2.27.3"), (HANG, HANG))
    assert unread.changes == () and unread.not_compared["environment"] == "nothing was read in B"


def test_one_rank_that_is_set_otherwise_is_stated_with_its_number() -> None:
    same: dict[Scope, str | None] = {(rank, None): "auto" for rank in range(4)}
    old = replace(EMPTY, settings={"env.NCCL_P2P_LEVEL": same})
    new = replace(EMPTY, settings={"env.NCCL_P2P_LEVEL": {**same, (2, None): "LOC"}})
    (change,) = changes(old, new)
    assert change.after == "auto (ranks 0-1,3), LOC (rank 2)"
    moved = replace(EMPTY, settings={"env.NCCL_P2P_LEVEL": {**same, (1, None): "LOC"}})
    assert len(changes(new, moved)) == 1  # the same values, on another rank


def test_hosts_and_ranks_that_moved() -> None:
    old = replace(EMPTY, hosts={"a": frozenset({0, 1}), "b": frozenset({2, 3})})
    new = replace(EMPTY, hosts={"a": frozenset({2, 3}), "b": frozenset({0, 1}), "c": frozenset({4})})
    found = {change.name: (change.before, change.after) for change in changes(old, new)}
    assert found == {
        "number of hosts": ("2", "3"),
        "hosts only in one": ("none", "c"),
        "ranks 0-3 run on other hosts": ("a, b", "b, a"),
        "ranks with a host": ("4", "5"),
    }


@pytest.mark.parametrize(("median", "stated"), [(1.04, False), (0.97, False), (1.2, True), (0.8, True)])
def test_speed_is_stated_beyond_what_runs_differ_by(median: float, stated: bool) -> None:
    old = replace(EMPTY, steps=Times(1e9, 1e9, 10, 2))
    new = replace(EMPTY, steps=Times(median * 1e9, 1e9, 10, 2))
    expected = [Change("speed", "step, median", "1000.0 ms (10 of 2 ranks)", f"{median * 1e3:.1f} ms (10 of 2 ranks)", median)]
    assert changes(old, new) == (expected if stated else [])


def test_counters_and_events() -> None:
    old = replace(EMPTY, counters={"xmit_wait": 0.0, "data": 100.0, "gone": 1.0}, events={"xid 79": 1})
    new = replace(EMPTY, counters={"xmit_wait": 5.0, "data": 150.0}, events={"xid 79": 3, "link_down": 1})
    assert changes(old, new) == [
        Change("counters", "xmit_wait", "0/s", "5/s"),
        Change("events", "link_down", "0", "1"),
        Change("events", "xid 79", "1", "3"),
    ]


def test_facts_of_a_case() -> None:
    connection = new_case(None)
    connection.execute(
        "INSERT INTO job_config (key, value, rank) VALUES ('env.RANK', '0', 0), ('env.A', 'x', 0), ('job_id', '7', NULL)"
    )
    connection.execute("INSERT INTO steps (rank, step, wall_ns) VALUES (0, 1, 10), (1, 1, 30), (1, 2, NULL)")
    connection.execute(
        "INSERT INTO counters (host, device, counter, time_ns, value) VALUES "
        "('h', 'd0', 'bytes', 0, 5), ('h', 'd0', 'bytes', 2000000000, 25), ('h', 'd1', 'bytes', 0, 9), "
        "('h', 'd1', 'bytes', 1000000000, 3), ('h', 'd2', 'bytes', 0, 1)"
    )
    connection.execute("INSERT INTO device_events (kind, code) VALUES ('xid', 79), ('xid', 79), ('process', 4711)")
    found = comparable(connection)
    assert found.settings == {"env.A": {(0, None): "x"}}
    assert found.steps == Times(20.0, 28.0, 2, 2) and found.stages == {}
    assert found.counters == {"bytes": 10.0}  # d1 went back: it was reset; d2 was read once
    assert found.events == {"process": 1, "xid 79": 2}


def collected(tmp_path: Path, name: str, stuck_rank: int, **environ: str) -> Path:
    job = Job(4)
    job.steps(12)
    job.hang({stuck_rank})
    found: Collection = whole(job, {stuck_rank: LOADER_QUEUE})
    for rank in range(4):
        path = f"ranks/{rank}/rank.json"
        document = json.loads(found.members[path])
        document["env"].update(environ)
        found.members[path] = json.dumps(document).encode()
    return found.tar(tmp_path / name)


@pytest.mark.slow
def test_two_bundles(forensics: Command, tmp_path: Path) -> None:
    old = collected(tmp_path, "old.tar", 2, NCCL_ALGO="Ring")
    new = collected(tmp_path, "new.tar", 1, NCCL_ALGO="Tree")
    answer = forensics("diff", old, new)
    assert answer.code == 0 and "env.NCCL_ALGO: Ring -> Tree" in answer.out and "NOT COMPARED" in answer.out
    document = json.loads(forensics("diff", old, new, "--format", "json").out)
    assert document["schema"] == "forensics.difference/1"
    assert [(change["section"], change["name"]) for change in document["changes"]] == [
        ("verdict", "suspects"),
        ("environment", "env.NCCL_ALGO"),
    ]
    suspects = document["changes"][0]
    assert suspects["before"].startswith("rank 2 data") and suspects["after"].startswith("rank 1 data")


def test_a_bundle_does_not_differ_from_itself(forensics: Command, tmp_path: Path) -> None:
    old = collected(tmp_path, "old.tar", 2)
    answer = forensics("diff", old, old)
    assert answer.code == 0 and answer.out.startswith("no difference in what both cases have")


def test_misuse(forensics: Command, tmp_path: Path) -> None:
    assert forensics("diff", tmp_path / "no.tar", tmp_path / "no.tar").code == 3
    assert forensics("diff", tmp_path, tmp_path, "--format", "xml").code == 2
