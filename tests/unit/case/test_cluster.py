"""Evidence read on a Dask cluster: the same case as here, and one line for everything that is missing."""

from __future__ import annotations

import builtins
import tarfile
from pathlib import Path
from typing import Any

import pytest

from forensics import dask_cluster
from forensics.bundle import limits
from forensics.bundle.reader import open_bundle
from forensics.case.cluster import Order, read_there, sendable
from forensics.case.database import schema_columns
from forensics.case.reading import read_packed
from forensics.dask_cluster import connected
from forensics.errors import ForensicsError
from forensics.sources import digest
from tests.recordings.collection import whole
from tests.recordings.commands import Command
from tests.recordings.dask import needs_dask, running
from tests.recordings.job import Job
from tests.recordings.places import HOST_CODE

ORDER = Order(digest(), limits.budget(), schema_columns())


def hung(folder: Path) -> Path:
    """A directory of evidence of four ranks, one of them missing in the newest collective."""
    job = Job(4)
    job.steps(12)
    job.hang({2})
    return whole(job, {2: HOST_CODE}).write(folder / "evidence")


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def imported(name: str, *given: Any, **more: Any) -> Any:
        if name == "distributed":
            raise ImportError(name)
        return usual(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", imported)
    with pytest.raises(ForensicsError, match=r"forensics\[dask\]"):
        connected("tcp://127.0.0.1:1").__enter__()


@pytest.mark.slow
@needs_dask
def test_where_no_scheduler_is_the_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "_CONNECT_S", 0.5)
    with pytest.raises(ForensicsError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9"):
        connected("tcp://127.0.0.1:9").__enter__()


def test_a_worker_reads_what_this_process_would(tmp_path: Path) -> None:
    for artefact in open_bundle([hung(tmp_path)]).artefacts:
        packed = sendable(artefact)
        assert packed is not None
        there, here = read_there(packed, ORDER), read_packed(artefact, schema_columns())
        assert (there.parser, there.kind, there.identity) == (here.parser, here.kind, here.identity)
        assert [batch.table for batch in there.batches] == [batch.table for batch in here.batches]


def test_a_worker_that_does_not_see_the_evidence_says_which(tmp_path: Path) -> None:
    path = hung(tmp_path)
    artefact = open_bundle([path]).artefacts[0]
    packed = sendable(artefact)
    assert packed is not None
    path.rename(tmp_path / "hidden")
    with pytest.raises(ForensicsError, match=r"cannot open .*all workers must see the evidence"):
        read_there(packed, ORDER)


def test_a_worker_with_other_sources_reads_nothing(tmp_path: Path) -> None:
    packed = sendable(open_bundle([hung(tmp_path)]).artefacts[0])
    assert packed is not None
    with pytest.raises(ForensicsError, match="another forensics"):
        read_there(packed, Order("0" * 64, limits.budget(), {}))


def test_members_of_a_compressed_archive_stay_here(tmp_path: Path) -> None:
    evidence = hung(tmp_path)
    with tarfile.open(tmp_path / "evidence.tar.gz", "w:gz") as archive:
        archive.add(evidence, "evidence")
    assert {sendable(artefact) for artefact in open_bundle([tmp_path / "evidence.tar.gz"]).artefacts} == {None}


@needs_dask
@pytest.mark.slow
@pytest.mark.parametrize("form", ["directory", "archive"])
def test_a_case_read_on_a_cluster_is_the_one_of_this_machine(forensics: Command, tmp_path: Path, form: str) -> None:
    evidence = hung(tmp_path)
    if form == "archive":
        with tarfile.open(tmp_path / "evidence.tar", "w") as archive:
            archive.add(evidence, "evidence")
        evidence = tmp_path / "evidence.tar"
    with running(2) as address:
        there = forensics("ingest", evidence, "-o", tmp_path / "there.duckdb", "--scheduler", address)
    here = forensics("ingest", evidence, "-o", tmp_path / "here.duckdb")
    assert (there.code, there.out, there.err) == (0, here.out, here.err)
    verdicts = [forensics("diagnose", tmp_path / f"{name}.duckdb", "--format", "json") for name in ("there", "here")]
    assert verdicts[0].out == verdicts[1].out
    assert '"outcome":"hang"' in verdicts[0].out.replace(" ", "")
