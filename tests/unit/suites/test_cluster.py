"""Cases on a Dask cluster: the same rows as here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.errors import ForensicsError
from forensics.fixtures.suites import cluster
from forensics.fixtures.suites.cluster import on_cluster
from forensics.fixtures.suites.interface import Case
from tests.recordings.commands import Command
from tests.recordings.dask import needs_dask, running

CASES = [Case("hang", 7, number) for number in range(3)]


def test_a_worker_with_other_sources_runs_nothing() -> None:
    with pytest.raises(ForensicsError, match="another forensics"):
        cluster.checked(CASES[0], "0" * 64, in_field=False)


@needs_dask
@pytest.mark.slow
def test_an_exam_on_a_cluster_is_the_one_of_this_machine(forensics: Command, tmp_path: Path) -> None:
    asked = ("evaluate", "hang", "healthy", "--seed", 3, "--cases", 2, "--format", "json")
    with running(2) as address:
        answer = forensics(*asked, "--scheduler", address, "--resume", tmp_path / "exam.jsonl")
    assert (answer.code, answer.err) == (0, "")
    here = forensics(*asked)
    assert json.loads(answer.out) == json.loads(here.out)
    again = forensics(*asked, "--resume", tmp_path / "exam.jsonl")
    assert again.out == answer.out


@needs_dask
@pytest.mark.slow
def test_an_exam_ends_where_workers_have_another_forensics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "digest", lambda: "0" * 64)
    with running(1) as address, pytest.raises(ForensicsError, match="another forensics"):
        list(on_cluster(CASES, address))
