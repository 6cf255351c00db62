from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.bundle.artefact import Artefact
from forensics.bundle.reader import open_bundle
from forensics.case import unchanged, workers
from forensics.case.build import open_case
from forensics.case.database import Connection, schema_columns
from forensics.case.reading import read_packed
from tests.recordings.collection import Collection
from tests.recordings.job import SECOND
from tests.recordings.places import ALL_REDUCE, LOADER_QUEUE

CHILD = 9000


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Two ranks that stand still in four looks, with a child, and one that does not."""
    collection = Collection(3, 1_700_000_000 * SECOND)
    for rank in range(3):
        collection.rank(rank)
    collection.stacks(0, *[ALL_REDUCE] * 4)
    collection.stacks(1, *[LOADER_QUEUE] * 4)
    collection.stacks(2, ALL_REDUCE, ALL_REDUCE, LOADER_QUEUE, ALL_REDUCE)
    for number in range(3):
        collection.child(1, LOADER_QUEUE, CHILD, number)
    return collection.write(tmp_path / "bundle")


def contents(connection: Connection) -> dict[str, list[Any]]:
    return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in schema_columns()}


def stacks_of(bundle: Path) -> list[Artefact]:
    return [artefact for artefact in open_bundle([bundle]).artefacts if "/stacks/" in artefact.path]


def test_looks_at_a_process_that_stands_still_are_read_once(bundle: Path) -> None:
    found = list(unchanged.read_in_turn(stacks_of(bundle), schema_columns()))
    is_read = [reading is not None for reading in found]
    assert is_read == [True, False, False, False] * 2 + [True, False, False] + [True, False, True, True]


@pytest.mark.parametrize("processes", [1, 3])
def test_the_case_is_the_same_as_when_each_look_is_read(bundle: Path, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(unchanged, "repeats", lambda artefact, before: False)
        each = contents(open_case([bundle]))
    assert len(each["stacks"]) == 15 and each["frames"]
    monkeypatch.setattr(workers, "LARGE_BYTES", 0)
    monkeypatch.setattr(workers, "usable_cores", lambda: processes)
    assert contents(open_case([bundle])) == each


def test_what_differs_in_more_than_its_moment_is_read(bundle: Path) -> None:
    first, second = stacks_of(bundle)[:2]
    assert unchanged.repeats(second, first)
    assert not unchanged.repeats(second, None)
    others: list[dict[str, Any]] = [
        {"sha256": None},
        {"sha256": "0" * 64},
        {"rank": 1},
        {"rank_method": "guessed"},
        {"host": "gpu-018"},
        {"pid": 1},
        {"is_child": True},
        {"numbered": False},
        {"modified_ns": 1},
        {"path": "ranks/0/stacks/child-1.json"},
        {"path": "ranks/0/stacks/1.txt"},
    ]
    assert not any(unchanged.repeats(replace(second, **other), first) for other in others)


def test_formats_that_take_more_of_a_file_than_its_bytes_are_read_each_time(tmp_path: Path) -> None:
    """A text of py-spy may be of several processes, whose ranks its name decides as well."""
    content = b'Process 4100: python train.py\nPython v3.11.9\n\nThread 4100 (idle): "MainThread"\n    f (train.py:1)\n'
    for number in range(2):
        (tmp_path / f"{number}.txt").write_bytes(content)
    looks = [replace(each, rank=0, rank_method="manifest", numbered=True) for each in open_bundle([tmp_path]).artefacts]
    looks = [replace(each, modified_ns=None, sample=number) for number, each in enumerate(looks)]
    assert unchanged.repeats(looks[1], looks[0])
    assert None not in list(unchanged.read_in_turn(looks, schema_columns()))


def test_a_task_that_begins_within_a_series_reads_its_first_look(bundle: Path) -> None:
    looks = stacks_of(bundle)[:4]
    types = schema_columns()
    found = [*unchanged.read_in_turn(looks[:2], types), *unchanged.read_in_turn(looks[2:], types)]
    assert [reading is None for reading in found] == [False, True] * 2
    made = list(unchanged.with_repeated(zip(looks, found, strict=True), types))
    alone = [read_packed(look, types) for look in looks]
    assert [[dict(batch.columns) for batch in reading.batches] for reading in made] == [
        [dict(batch.columns) for batch in reading.batches] for reading in alone
    ]
