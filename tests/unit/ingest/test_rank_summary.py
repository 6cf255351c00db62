"""Sections of summaries: what they give, and what of hostile ones is refused."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import orjson
import pytest

from forensics.bundle import summaries
from forensics.case.database import schema_columns
from forensics.ingest.rank_summary.layout import KINDS, TABLES
from tests.unit.ingest.reading import SAMPLES, Result, read

NAME = "rank_summary/recommender_ranks_0_and_1.summary"


def section(directory: Any, arrays: bytes = b"", description: Any = None, expanded: int | None = None) -> bytes:
    """A section as a stranger would write it after the page, without compression."""
    text = orjson.dumps(directory)
    columns = struct.pack("<I", len(text)) + text + arrays
    stated = orjson.dumps({"kind": "flight_recorder", "path": "fr/3", "rank": 3} if description is None else description)
    size = len(columns) if expanded is None else expanded
    crc = zlib.crc32(stated + columns)
    return struct.pack("<8sHHIQQII", b"FXSUMMA\x01", 1, 0, len(stated), len(columns), size, crc, 0) + stated + columns


CALLS = [
    {"name": "locator", "type": "i1"},
    {"name": "pg_name", "type": "i1", "one": True, "words": ["7"]},
    {"name": "sequence", "type": "i1", "base": 40},
    {"name": "kind", "type": "i1", "words": ["all_reduce", "broadcast"]},
    {"name": "enqueued_ns", "type": "i8"},
    {"name": "state", "type": "i1", "words": ["done", "pending"], "nulls": True},
]
ARRAYS = bytes([0, 1]) + bytes([0]) + bytes([0, 1]) + bytes([1, 0]) + struct.pack("<2q", 10, 20) + bytes([1, 0]) + bytes([0b10])


def test_a_section_of_a_stranger_is_rows_of_what_it_stands_for() -> None:
    found = read(section([{"table": "operations", "rows": 2, "columns": CALLS}], ARRAYS))
    assert [(one.rank, one.kind) for one in found.identities] == [(3, "flight_recorder")]
    assert [tuple(row.values()) for row in found.rows("operations")] == [
        (0, "7", 40, "broadcast", 10, "pending"),
        (1, "7", 41, "all_reduce", 20, None),
    ]
    assert not found.problems


def test_the_sample_is_the_end_of_a_recorded_dump() -> None:
    content = (SAMPLES / NAME).read_bytes()
    found = read(content, NAME)
    calls = found.rows("operations")
    assert {row["state"] for row in calls[:-1]} == {"done"} and calls[-1]["state"] == "pending"
    assert [row["sequence"] for row in calls] == sorted(row["sequence"] for row in calls)


def test_call_paths_of_strangers_get_the_numbers_of_their_content() -> None:
    frames = [{"name": "frame", "type": "i1"}, {"name": "name", "type": "i1", "words": ["wait", "train"]}]
    paths = [{"name": name, "type": "i1"} for name in ("call_path", "depth", "frame")]
    stacks = [{"name": "call_path", "type": "i1"}, {"name": "thread", "type": "i1"}]
    directory = [
        {"table": "frames", "rows": 2, "columns": frames},
        {"table": "call_paths", "rows": 2, "columns": paths},
        {"table": "stacks", "rows": 2, "columns": stacks},
    ]
    arrays = bytes([5, 6, 0, 1]) + bytes([9, 9, 0, 1, 5, 6]) + bytes([9, 8, 1, 2])
    found = read(section(directory, arrays, {"kind": "python_stacks"}))
    known, unknown = (row["call_path"] for row in found.rows("stacks"))
    assert unknown is None
    assert [name for name, _, _ in found.stack(known)] == ["wait", "train"]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_one_of_the_case_and_of_its_type(table: str) -> None:
    numbers = {"BIGINT": "BIGINT", "INTEGER": "BIGINT", "BOOLEAN": "BOOLEAN", "INTEGER[]": "INTEGER[]"}
    case = schema_columns()[table]
    assert {name: numbers.get(case[name], "VARCHAR") for name in TABLES[table]} == TABLES[table]


def only_problem(content: bytes) -> str:
    found: Result = read(content)
    assert not any(found.rows(table) for table in TABLES)
    (problem,) = found.problems
    return problem.message


WHOLE = section([{"table": "operations", "rows": 2, "columns": CALLS}], ARRAYS)
HOSTILE = {
    "cut": (WHOLE[:-3], "announced"),
    "changed": (WHOLE[:-1] + b"\x07", "checksum"),
    "version": (WHOLE[:8] + b"\x09\x00" + WHOLE[10:], "version 9"),
    "kind": (section([], description={"kind": "kernel_log"}), "never summarised"),
    "no object": (section([], description=[1]), "not of the size"),
    "bomb": (section([], expanded=1 << 40), "expand"),
    "rows": (section([{"table": "operations", "rows": 1 << 30, "columns": []}]), "rows"),
    "constants": (
        section([{"table": "operations", "rows": 5000, "columns": [{"name": "rank", "type": "i1", "one": True}]}]),
        "rows",
    ),
    "arrays": (section([{"table": "operations", "rows": 2, "columns": CALLS}], ARRAYS[:-4]), "end at byte"),
    "type": (section([{"table": "operations", "rows": 1, "columns": [{"name": "locator", "type": "O"}]}], bytes(64)), "type"),
    "words": (section([{"table": "operations", "rows": 1, "columns": [{"name": "kind", "type": "i1"}]}], bytes(64)), "list"),
    "directory": (section({"table": 1}), "no list"),
    "members": (
        section(
            [{"table": "group_views", "rows": 1, "columns": [{"name": "members", "type": "i1", "words": [[[0, 1 << 30, 1]]]}]}],
            bytes(64),
        ),
        "too long",
    ),
}


@pytest.mark.parametrize(("content", "word"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_sound_section_is_one_problem(content: bytes, word: str) -> None:
    assert word in only_problem(content)


def test_unknown_tables_and_columns_are_passed_over() -> None:
    columns = [*CALLS, {"name": "colour", "type": "i1", "one": True}]
    directory = [
        {"table": "verdict", "rows": 1, "columns": [{"name": "outcome", "type": "i1", "words": ["healthy"]}]},
        {"table": "operations", "rows": 2, "columns": columns},
    ]
    found = read(section(directory, bytes([0]) + ARRAYS + bytes(9)))
    assert len(found.rows("operations")) == 2
    assert [problem.message for problem in found.problems] == [
        "rows for a table that a summary does not have: 'verdict'",
        "operations: a column 'colour' is not known",
    ]


def test_every_kind_has_tables_of_the_format() -> None:
    assert all(tables <= TABLES.keys() for tables in KINDS.values())
    assert summaries.HEADER.size == 40
