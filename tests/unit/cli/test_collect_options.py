"""What `forensics collect` understands on its command line."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import duckdb
import pytest

from forensics.cli import collect
from forensics.errors import ExitCode
from tests.recordings.collection import NODE, whole, write
from tests.recordings.commands import Command
from tests.recordings.job import Job
from tests.recordings.places import LOADER_QUEUE
from tests.unit.sharing.canaries import LINES, PLANTED, URL, leaks

GONE = (2**22 + 1, 2**22 + 2)


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--pid", f"{GONE[0]},{GONE[1]}"), ("--pid", GONE[0], "--pid", GONE[1])])
def test_processes_are_named_in_one_list_or_in_several(options: tuple[object, ...], tmp_path: Path, forensics: Command) -> None:
    answer = forensics("collect", "-o", tmp_path / "bundle.tar", *options)
    assert answer.code == ExitCode.NO_RANKS
    assert f"there is no process {GONE[0]}, {GONE[1]}" in answer.err


@pytest.mark.slow
def test_a_name_is_no_process(tmp_path: Path, forensics: Command) -> None:
    answer = forensics("collect", "-o", tmp_path / "bundle.tar", "--pid", "12", "--pid", "python")
    assert answer.code == ExitCode.USAGE
    assert "--pid" in answer.err


def test_a_redacted_collection_is_packed_without_secrets(tmp_path: Path) -> None:
    staging = tmp_path / "x.tar.partial"
    folder = write(staging, {"bundle.json": b'{"nodes": ["dgx-7"]}', "ranks/0/stacks/0.json": f'["{URL}", "dgx-7"]'.encode()})
    names = tmp_path / "names.json"
    size = collect.packing(False, "hosts", names)(folder, tmp_path / "x.tar", False, None)
    assert (tmp_path / "x.tar").stat().st_size == size
    assert leaks(tmp_path / "x.tar") == leaks(tmp_path / "x.tar", ("dgx-7",)) == []
    assert json.loads(names.read_text())["hosts"] == {"dgx-7": "host-00001"}


def texts_of(bundle: Path, tmp_path: Path) -> str:
    """Every value of every column that a bundle of shards keeps."""
    with tarfile.open(bundle) as archive:
        archive.extractall(tmp_path / "columns", filter="data")
    tables = sorted((tmp_path / "columns").rglob("*.parquet"))
    assert tables
    return "".join(str(duckdb.execute("SELECT * FROM read_parquet(?)", [str(table)]).fetchall()) for table in tables)


@pytest.mark.slow
def test_a_redacted_and_normalised_collection_has_no_secret_in_any_column(forensics: Command, tmp_path: Path) -> None:
    """Redaction comes first: columns are read of files without secrets, and the verdict is the same."""
    job = Job(4)
    job.steps(200)
    job.hang({2})
    collected = whole(job, {2: LOADER_QUEUE})
    collected.log(2, *LINES)
    raw = collected.write(tmp_path / "raw")
    for dump in raw.glob("ranks/*/fr/*.json"):
        dump.write_bytes(dump.read_bytes().replace(b"default_pg", f"default {URL}".encode()))
    collect.packing(True, "hosts", tmp_path / "names.json", True)(raw, tmp_path / "x.tar", False, None)
    assert leaks(tmp_path / "x.tar", (*PLANTED, NODE)) == []
    texts = texts_of(tmp_path / "x.tar", tmp_path)
    assert "git.example.org" in texts and not [canary for canary in PLANTED if canary in texts]
    verdicts = [json.loads(forensics("diagnose", "--format", "json", path).out) for path in (raw, tmp_path / "x.tar")]
    one, two = [[(each["ranks"], each["cause"]) for each in verdict["suspects"]] for verdict in verdicts]
    assert one == two and one[0][0] == [2]


def test_a_collection_is_packed_as_it_is_unless_asked(tmp_path: Path) -> None:
    folder = write(tmp_path / "x.tar.partial", {"bundle.json": b"{}", "ranks/0/stacks/0.json": URL.encode()})
    collect.packing(False, "", None)(folder, tmp_path / "x.tar", False, None)
    assert {place for place, _ in leaks(tmp_path / "x.tar")} == {"raw", "ranks/0/stacks/0.json"}
