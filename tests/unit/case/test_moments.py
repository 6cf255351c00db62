"""Which captures of a process are of one moment, and which of them stands for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from forensics.case.build import open_case
from forensics.case.database import Connection
from forensics.case.moments import BREAK_NS, Taken, grouped, rounds
from forensics.fixtures.field.stacks import py_spy_text, with_native_frames
from tests.recordings.collection import Collection, py_spy, write
from tests.recordings.places import ALL_REDUCE, FORWARD, HOST_CODE

SECOND = 10**9
JSON = py_spy(ALL_REDUCE, 4100)


def case(folder: Path, files: dict[str, bytes]) -> Connection:
    return open_case([write(folder, files)])


def rows(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def moments(connection: Connection) -> list[tuple[Any, ...]]:
    return rows(connection, "SELECT sample, captures, proof, agreed FROM moments ORDER BY rank, pid, sample")


def test_captures_are_apart_by_number_or_by_a_second() -> None:
    assert Taken(number=0).is_apart(Taken(number=1))
    assert Taken(time_ns=0, number=0).is_apart(Taken(time_ns=60 * SECOND, number=0))
    assert not Taken(time_ns=0, number=0).is_apart(Taken(time_ns=SECOND // 2, number=0))
    assert not Taken(time_ns=0).is_apart(Taken())
    assert not Taken(round=0).is_apart(Taken(round=1))


def test_dates_without_a_break_are_one_round() -> None:
    dates = [n * (BREAK_NS - 1) for n in range(4)]
    assert set(rounds([*dates, None]).values()) == {0}
    assert rounds([0, 0, BREAK_NS]) == {0: 0, BREAK_NS: 1}
    assert rounds([]) == {}


def test_what_nothing_keeps_apart_is_grouped() -> None:
    assert grouped([1, 2, 11, 12, 3], lambda one, two: one // 10 != two // 10) == [[1, 2, 3], [11, 12]]


def test_the_richest_form_stands_for_the_moment(tmp_path: Path) -> None:
    files = {"rank0.json": with_native_frames(JSON), "rank0.plain.json": JSON, "rank0.txt": py_spy_text(JSON)}
    connection = case(tmp_path, files)
    assert rows(connection, "SELECT path, status, reason FROM sources ORDER BY path") == [
        ("rank0.json", "ok", None),
        ("rank0.plain.json", "ignored", "shows the same moment as rank0.json, which holds more"),
        ("rank0.txt", "ignored", "shows the same moment as rank0.json, which holds more"),
    ]
    assert moments(connection) == [(0, 3, None, True)]


def test_forms_that_disagree_are_one_moment_that_is_not_agreed_on(tmp_path: Path) -> None:
    connection = case(tmp_path, {"rank0.json": JSON, "rank0.txt": py_spy_text(py_spy(FORWARD, 4100))})
    assert moments(connection) == [(0, 2, None, False)]
    assert rows(connection, "SELECT count(DISTINCT sample), count(*) FROM stacks") == [(1, 1)]


def test_a_bundle_proves_its_samples_and_a_loose_file_joins_one(tmp_path: Path) -> None:
    found = Collection(1, 1_700_000_000 * SECOND)
    found.rank(0)
    found.stacks(0, ALL_REDUCE, ALL_REDUCE, HOST_CODE)
    beside = write(tmp_path / "loose", {"rank0.txt": py_spy_text(JSON)})
    connection = open_case([found.write(tmp_path / "bundle"), beside])
    assert moments(connection) == [(0, 2, "given", True), (1, 1, "given", True), (2, 1, "given", True)]


def test_numbers_in_names_of_loose_files_prove_nothing(tmp_path: Path) -> None:
    connection = case(tmp_path, {"rank0.sample0.json": JSON, "rank0.sample1.json": JSON, "rank0.sample2.json": JSON + b"\n"})
    assert [count for _, count, *_ in moments(connection)] == [2]
    assert rows(connection, "SELECT count(*) FROM stacks") == [(1,)]


def test_a_form_without_a_process_number_is_of_the_process_of_the_rank(tmp_path: Path) -> None:
    text = b"\n".join(line for line in py_spy_text(JSON).splitlines() if not line.startswith(b"Process"))
    assert moments(case(tmp_path, {"rank0.json": JSON, "rank0.txt": text})) == [(0, 2, None, True)]


def test_dumps_of_one_file_are_moments_when_times_stand_above_them(tmp_path: Path) -> None:
    text = py_spy_text(JSON)
    assert moments(case(tmp_path / "undated", {"rank0.txt": text + text})) == [(0, 2, None, True)]
    dated = b"".join(f"Tue May  5 12:00:{at} UTC 2026\n".encode() + text for at in ("01", "31"))
    assert moments(case(tmp_path / "dated", {"rank0.txt": dated})) == [(0, 1, "given", True), (1, 1, "given", True)]


def test_another_process_under_the_name_of_a_known_rank_is_left_out(tmp_path: Path) -> None:
    found = Collection(1, 1_700_000_000 * SECOND)
    found.rank(0)
    found.stacks(0, ALL_REDUCE)
    found.members["ranks/0/stacks/1.json"] = py_spy(HOST_CODE, 99)
    connection = open_case([found.write(tmp_path)])
    assert rows(connection, "SELECT status, reason FROM sources WHERE path = 'ranks/0/stacks/1.json'") == [
        ("ignored", "of another process than that of the rank")
    ]


def test_a_dump_of_active_entries_is_of_the_moment_of_the_whole_one(tmp_path: Path) -> None:
    entries = [{"record_id": n, "pg_id": 0, "collective_seq_id": n, "profiling_name": "nccl:all_reduce"} for n in range(3)]
    states = ("completed", "completed", "scheduled")
    whole = [entry | {"state": state, "time_created_ns": 10**18} for entry, state in zip(entries, states, strict=True)]
    later = [entry | {"state": "completed"} for entry in whole]

    def dump(listed: list[dict[str, Any]]) -> bytes:
        return json.dumps({"version": "2.10", "entries": listed}).encode()

    same = case(tmp_path / "same", {"rank0.json": dump(whole), "rank0.active.json": dump(whole[2:])})
    assert rows(same, "SELECT count(DISTINCT snapshot), count(*) FROM operations") == [(1, 3)]
    moved = case(tmp_path / "moved", {"rank0.json": dump(later), "rank0.active.json": dump(whole[2:])})
    assert rows(moved, "SELECT count(DISTINCT snapshot), count(*) FROM operations") == [(2, 4)]
