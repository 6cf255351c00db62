"""Operations of a large case lie in a narrow table: nobody who reads them sees a difference."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from forensics.case.call_store import calls_table
from forensics.case.columns import CaseWriter
from forensics.case.database import Connection, new_case, read_only, rows_of, schema_columns
from tests.recordings.collection import loose, write
from tests.recordings.job import Job, as_json, as_pickle

SAMPLES = Path(__file__).parents[3] / "fixtures" / "samples" / "flight_recorder"
DAY = 86_400_000_000_000
CASE = "SELECT * FROM operations ORDER BY source_id, locator"
ALL = (CASE, "SELECT * FROM latest_call ORDER BY source_id, locator", "SELECT * FROM sources", "SELECT * FROM ingest_warnings")


def narrow_and_wide(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Connection, Connection]:
    """The case of a folder as that of much evidence is stored, and as a small one is."""
    wide = open_case([folder])
    monkeypatch.setattr("forensics.case.build.SMALL_BYTES", 0)
    return open_case([folder]), wide


def same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """The narrow case of a folder, in which everything is as in the wide one."""
    narrow, wide = narrow_and_wide(folder, monkeypatch)
    assert (calls_table(narrow), calls_table(wide)) == ("stored_operations", "operations")
    for query in ALL:
        assert narrow.execute(query).fetchall() == wide.execute(query).fetchall(), query
    described = [[column[:2] for column in case.execute(CASE).description or ()] for case in (narrow, wide)]
    assert described[0] == described[1]
    return narrow


def written(narrow: bool, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Rows of batches that bring other columns each, inserted in several turns."""
    monkeypatch.setattr("forensics.case.columns.FLUSH_ROWS", 3)
    case = new_case()
    writer = CaseWriter(case, narrow)
    first: dict[str, list[Any]] = {
        "locator": [0, 1, 2],
        "state": ["done", "pending", "done"],
        "dtype": ["Float", None, ""],
        "pg_name": [None] * 3,
    }
    writer.add("operations", first, {"rank": 4, "source_id": 1})
    late: dict[str, list[Any]] = {
        "locator": [0, 1],
        "state": ["done"] * 2,
        "thread": ["o'hara\\", "\0é"],
        "dtype": ["Half", "Float"],
        "inside": [True, None],
    }
    writer.add("operations", late, {"source_id": 2, "host": "a"})
    writer.add("operations", {"locator": [2], "state": ["done"], "splits": ["[1,2]"], "protocol": [None]}, {"source_id": 2})
    writer.flush()
    return case.execute(CASE).fetchall()


def test_columns_that_come_late_and_texts_of_any_form_are_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = written(True, monkeypatch)
    assert rows == written(False, monkeypatch)
    dtype, thread = (list(schema_columns()["operations"]).index(name) for name in ("dtype", "thread"))
    assert [row[dtype] for row in rows] == ["Float", None, "", "Half", "Float", None]
    assert [row[thread] for row in rows] == [None, None, None, "o'hara\\", "\0é", None]


def test_a_case_without_operations_has_their_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.log").write_text("[rank0]: step 1 loss 2.0\n" * 3)
    narrow, _ = narrow_and_wide(tmp_path, monkeypatch)
    assert calls_table(narrow) == "operations"
    with read_only(narrow):
        assert rows_of(narrow, "operations", CASE) == []


def test_a_json_of_the_same_moment_takes_the_call_paths_of_the_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in SAMPLES.glob("gloo_2.10_rank*"):
        shutil.copy(path, tmp_path)
    narrow = same(tmp_path, monkeypatch)
    with read_only(narrow):
        assert rows_of(narrow, "operations", "SELECT 1 FROM operations LIMIT 1") == [(1,)]


def test_one_name_with_two_member_sets_is_relabelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(4, "nccl")
    for members in ((0, 1), (2, 3)):
        job.call(job.group(members, "SPLIT", name="7"))
    narrow = same(loose(job, tmp_path), monkeypatch)
    labels = narrow.execute("SELECT DISTINCT rank, communicator FROM operations ORDER BY rank").fetchall()
    assert labels == [(0, "7:SPLIT[0,1]"), (1, "7:SPLIT[0,1]"), (2, "7:SPLIT[2,3]"), (3, "7:SPLIT[2,3]")]


@pytest.mark.slow
def test_dumps_of_two_moments_are_numbered_and_copies_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(2, "nccl")
    job.steps(2)
    files = {f"first/rank{rank}.json": as_json(job.dump(rank)) for rank in (0, 1)}
    files |= {f"first/nccl_trace_rank_{rank}": as_pickle(job.dump(rank)) for rank in (0, 1)}
    job.steps(3)
    files |= {f"second/rank{rank}.json": as_json(job.dump(rank)) for rank in (0, 1)}
    narrow = same(write(tmp_path, files), monkeypatch)
    assert narrow.execute("SELECT DISTINCT rank, snapshot FROM operations ORDER BY ALL").fetchall() == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


def test_a_dump_of_another_attempt_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {}
    for rank in range(4):
        job = Job(4, "nccl")
        job.clocks = [clock + (DAY if rank == 3 else 0) for clock in job.clocks]
        job.steps(3)
        files[f"rank{rank}.json"] = as_json(job.dump(rank))
    narrow = same(write(tmp_path, files), monkeypatch)
    assert narrow.execute("SELECT DISTINCT rank FROM operations ORDER BY rank").fetchall() == [(0,), (1,), (2,)]
