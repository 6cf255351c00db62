"""Nsight exports: several processes in one file, versions of tables, open ranges, damage."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.rules.diagnosis import diagnose
from tests.recordings.nsight_export import EPOCH, write
from tests.unit.ingest.reading import SAMPLES, read, sample

PATH = "nsight/handmade_two_ranks.sqlite"


def test_both_processes_of_the_sample() -> None:
    found = sample(PATH)
    assert {(row["rank"], row["step"]) for row in found.rows("steps")} == {
        (rank, step) for rank in (0, 1) for step in range(12)
    }
    assert {row["stage"] for row in found.rows("stage_spans")} == {"data", "forward", "backward", "optimizer"}
    assert [row["kind"] for row in found.rows("operations")] == ["all_reduce"] * 24
    assert all(row["device_end_ns"] - row["device_start_ns"] == row["duration_ns"] for row in found.rows("operations"))
    assert "which is a guess" in found.problems[0].message
    assert min(row["begin_ns"] for row in found.rows("steps")) == EPOCH + 10**9
    assert found.identities[0].host == "node1"


def test_nothing_of_the_captured_environment_is_kept() -> None:
    found = sample(PATH)
    everything = repr([found.rows(table) for table in ("steps", "stage_spans", "spans", "job_config")]) + repr(found.problems)
    assert "SECRET" not in everything and "not-to-be-shown" not in everything


def test_a_slow_stage_of_one_process_is_found(tmp_path: Path) -> None:
    verdict = diagnose(open_case([write(tmp_path / "node.sqlite", {(1, "forward"): 15})]))
    assert [(suspect.stage.name, suspect.ranks) for suspect in verdict.suspects] == [("forward", (1,))]


def test_newer_versions_of_a_table_and_open_ranges(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", {}, nvtx="NVTX_EVENTS_V2", open_range="rank=5 waits")
    found = read(path.read_bytes(), path.name)
    assert found.rows("steps")
    (row,) = [row for row in found.rows("spans") if row["category"] == "open range"]
    assert row["name"] == "rank=5 waits" and "end_ns" not in row


def test_one_process_takes_its_rank_from_the_environment(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", {})
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM NVTX_EVENTS WHERE (globalTid >> 24) & 0xFFFFFF = 700")
        database.execute("INSERT INTO META_DATA_CAPTURE VALUES ('ENVIRONMENT_VARIABLE', 'RANK=6')")
    database.close()
    found = read(path.read_bytes(), path.name)
    assert {row["rank"] for row in found.rows("steps")} == {6} and found.problems == []


@pytest.mark.parametrize("column", ["text", "textId", "globalTid"])
def test_missing_columns_cost_no_more_than_they_hold(tmp_path: Path, column: str) -> None:
    path = write(tmp_path / "x.sqlite", {})
    with sqlite3.connect(path) as database:
        database.execute(f"ALTER TABLE NVTX_EVENTS DROP COLUMN {column}")
    database.close()
    assert bool(read(path.read_bytes(), path.name).rows("steps")) == (column == "text")


def test_without_ranges_it_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", {}, nvtx="OTHER")
    assert "steps and stages are unknown" in read(path.read_bytes(), path.name).problems[0].message


def test_damage_gives_problems_and_no_error() -> None:
    content = (SAMPLES / PATH).read_bytes()
    chance = random.Random(2)
    for _ in range(25):
        damaged = bytearray(content[: chance.randrange(200, len(content))])
        for _ in range(chance.randrange(0, 60)):
            damaged[chance.randrange(100, len(damaged))] = chance.randrange(256)
        read(bytes(damaged), "x.sqlite")
