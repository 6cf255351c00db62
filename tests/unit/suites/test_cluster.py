"""Cases on a Dask cluster: the same rows as here, and one line for everything that is missing."""

from __future__ import annotations

import builtins
import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forensics.errors import ForensicsError
from forensics.fixtures.suites import cluster
from forensics.fixtures.suites.cluster import on_cluster
from forensics.fixtures.suites.interface import Case
from tests.recordings.commands import Command

CASES = [Case("hang", 7, number) for number in range(3)]
needs_dask = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs distributed")


@contextmanager
def running(workers: int) -> Iterator[str]:
    """A cluster of processes on this machine; the address of its scheduler."""
    import distributed

    with distributed.LocalCluster(workers, threads_per_worker=1, dashboard_address=None, silence_logs=50) as one:
        yield one.scheduler_address


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def imported(name: str, *given: Any, **more: Any) -> Any:
        if name == "distributed":
            raise ImportError(name)
        return usual(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", imported)
    with pytest.raises(ForensicsError, match=r"forensics\[dask\]"):
        list(on_cluster(CASES, "tcp://127.0.0.1:1"))


def test_a_worker_with_other_sources_runs_nothing() -> None:
    with pytest.raises(ForensicsError, match="another forensics"):
        cluster.checked(CASES[0], "0" * 64, in_field=False)


@needs_dask
def test_where_no_scheduler_is_the_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT_S", 0.5)
    with pytest.raises(ForensicsError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9"):
        list(on_cluster(CASES, "tcp://127.0.0.1:9"))


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
