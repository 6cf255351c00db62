from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.bundle.artefact import Artefact
from forensics.bundle.reader import open_bundle
from forensics.case import database, workers
from forensics.case.build import open_case
from forensics.case.database import Connection, schema_columns, table_columns
from forensics.case.reading import Reading
from forensics.ingest import flight_recorder
from tests.recordings.job import Job, as_json, as_pickle

FRAMES = (("all_reduce", "/torch/distributed/distributed_c10d.py", 2806), ("step", "/job/train.py", 41))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Dumps of six ranks, one of them twice, one cut, and a file nobody knows."""
    job = Job(6, backend="nccl")
    pair = job.group([0, 1], "PAIR")
    for _ in range(5):
        job.call(job.everyone, frames=FRAMES)
        job.call(pair, "broadcast", frames=FRAMES[:1])
    job.hang({4})
    for rank in range(6):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(as_pickle(job.dump(rank)))
    (tmp_path / "again_rank_2.json").write_bytes(as_json(job.dump(2)))
    cut = (tmp_path / "nccl_trace_rank_5").read_bytes()
    (tmp_path / "nccl_trace_rank_5").write_bytes(cut[: len(cut) // 2])
    (tmp_path / "notes.bin").write_bytes(b"\x00\x01 nothing")
    return tmp_path


@pytest.fixture
def several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LARGE_BYTES", 0)
    monkeypatch.setattr(workers, "usable_cores", lambda: 3)


def contents(connection: Connection) -> dict[str, list[Any]]:
    """Every row of every table, in the order of the tables."""
    return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in schema_columns()}


def test_several_processes_give_the_case_that_one_gives(folder: Path, request: pytest.FixtureRequest) -> None:
    alone = contents(open_case([folder]))
    assert alone["operations"] and alone["frames"] and alone["ingest_warnings"]
    request.getfixturevalue("several_processes")
    assert contents(open_case([folder])) == alone


def test_call_paths_of_a_copy_are_sent_again_for_the_other_may_be_dropped(folder: Path) -> None:
    dumps = sorted(folder.glob("nccl_trace_rank_*"))[:2]
    (folder / "nccl_trace_rank_9").write_bytes(dumps[1].read_bytes())
    paths = [folder / "nccl_trace_rank_9", dumps[1], dumps[0]]
    before = signal.getsignal(signal.SIGINT)
    artefacts = [artefact for path in paths for artefact in open_bundle([path]).artefacts]
    workers._begin(artefacts, schema_columns(), workers.of_equal_bytes(artefacts))
    signal.signal(signal.SIGINT, before)
    sent = [_frames(workers._read(range(index, index + 1))) for index in range(3)]
    assert sent == [2, 2, 2]
    assert _frames(workers._read(range(2, 3))) == 0


def _frames(found: list[Reading | None]) -> int:
    """Rows of frames that readings bring."""
    batches = [batch for reading in found if reading is not None for batch in reading.batches]
    return sum(len(batch.columns["frame"]) for batch in batches if batch.table == "frames")


@pytest.mark.slow
@pytest.mark.usefixtures("several_processes")
def test_a_process_that_is_killed_costs_no_evidence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = contents(open_case([folder]))["sources"]
    here, rows = os.getpid(), flight_recorder.INGESTER.rows

    def killed(artefact: Artefact) -> Iterator[Any]:
        if os.getpid() != here and artefact.path.endswith("rank_3"):
            os._exit(9)
        yield from rows(artefact)

    broken = replace(flight_recorder.INGESTER, rows=killed)
    monkeypatch.setattr("forensics.case.reading.choose", lambda head, path: broken if "rank" in path else None)
    assert contents(open_case([folder]))["sources"] == alone


READS_FOR_EVER = """
import os, sys, time
from dataclasses import replace
from pathlib import Path
from forensics.case import reading, workers
from forensics.case.build import open_case
from forensics.ingest import flight_recorder

def waits(artefact):
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(20)

workers.LARGE_BYTES, workers._MOST_OF_A_TASK, workers.usable_cores = 0, 1, lambda: 2
reading.choose = lambda head, path: replace(flight_recorder.INGESTER, rows=waits)
open_case([Path(sys.argv[1])])
"""


@pytest.mark.slow
def test_the_processes_that_read_end_with_one_that_is_killed(folder: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", READS_FOR_EVER, str(folder)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    readers = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.stdout.read()  # ends when nobody is left who could write
    assert parent.wait() == -signal.SIGKILL
    assert not any(Path(f"/proc/{reader}/exe").exists() for reader in readers)


def test_a_large_case_lies_in_a_temporary_file_and_is_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = contents(open_case([folder]))
    monkeypatch.setattr(database, "LARGE_BYTES", 0)
    connection = open_case([folder])
    ((path,),) = connection.execute("SELECT path FROM duckdb_databases() WHERE database_name = current_database()").fetchall()
    assert Path(path).is_file()
    assert contents(connection) == alone


def test_the_columns_of_the_schema_are_those_of_the_tables() -> None:
    assert schema_columns() == table_columns(database.new_case())


def test_a_dump_is_known_when_the_members_of_its_first_group_fill_the_head(tmp_path: Path) -> None:
    job = Job(3000, backend="nccl")
    job.hang({7})
    content = as_pickle(job.dump(0))
    assert b"entries" not in content[:4096]
    (tmp_path / "nccl_trace_rank_0").write_bytes(content)
    connection = open_case([tmp_path])
    assert connection.execute("SELECT kind, status FROM sources").fetchall() == [("flight_recorder", "ok")]


def test_tasks_hold_every_artefact_once_in_order_and_large_ones_alone(tmp_path: Path) -> None:
    sizes = [10, 10, 200 << 10, 10, 100 << 10, 100 << 10, *[1] * 70]
    for index, size in enumerate(sizes):
        (tmp_path / f"{index:03d}").write_bytes(b"\x01" * size)
    tasks = list(workers.tasks(open_bundle([tmp_path]).artefacts))
    assert [index for task in tasks for index in task] == list(range(len(sizes)))
    assert [(task.start, len(task)) for task in tasks] == [(0, 2), (2, 1), (3, 2), (5, 32), (37, 32), (69, 7)]
    assert list(workers.tasks([])) == []
