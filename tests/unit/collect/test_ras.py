"""NCCL RAS is asked only where the NCCL that is really mapped stands it: real libraries, processes and sockets."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.bundle.layout import Status
from forensics.collect import nccl_version
from forensics.collect.collectors import nccl_ras
from forensics.collect.collectors.nccl_ras import collect_ras
from forensics.collect.nccl_version import mapped_nccl
from forensics.collect.plan import make_plan
from forensics.collect.processes import MappedFile, ProcFs
from forensics.collect.record import Run
from forensics.collect.target import Context, Target
from tests.unit.collect.real_processes import SLEEP, running

# Counts the connections it gets in a file of its own, and answers as NCCL's client thread does.
SERVICE = """
import ctypes, socket, sys
for path in sys.argv[3:]:
    ctypes.CDLL(path)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), reuse_port=True)
print(0, flush=True)
while True:
    connection, _ = listener.accept()
    open(sys.argv[2], "a").write("+")
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"VERBOSE"):
                connection.sendall(b'{report}')
                break
            connection.sendall(b"OK\\n" if {json} else b"ERROR: Unknown command\\n")
"""
HOLDER = "import ctypes, sys, time\nfor path in sys.argv[1:]: ctypes.CDLL(path)\nprint(0, flush=True)\ntime.sleep(600)"
Library = Callable[..., Path]


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """A library that holds what a real NCCL holds: its version as text among its read-only data."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")

    def build(version: str | None, name: str = "libnccl.so.2", folder: str = "lib") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        text = f"NCCL version {version}+cuda13.0" if version else "nothing of the kind"
        source = f'const char *pncclGetVersion(void) {{ return "{text}"; }}'
        subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", path], input=source.encode(), check=True)
        return path

    return build


@contextmanager
def service(tmp_path: Path, *libraries: Path, json: bool = True) -> Iterator[tuple[Target, str, Callable[[], int]]]:
    """A rank that listens as NCCL does, its address, and how many connections it got."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    counted = tmp_path / "connections"
    counted.touch()
    code = SERVICE.replace("{report}", '{"nccl_version": "2.29.2"}' if json else "NCCL version 2.27.3").replace(
        "{json}", str(json)
    )
    with running(code, str(port), str(counted), *map(str, libraries)) as process:
        yield Target(0, "alive", process.pid), f"127.0.0.1:{port}", lambda: len(counted.read_text())


@pytest.fixture
def real(context: Context) -> Context:
    return replace(context, procfs=ProcFs())


def flagged(context: Context, nccl_ras: bool) -> Context:
    return replace(context, settings=replace(context.settings, nccl_ras=nccl_ras))


def both(context: Context, targets: list[Target], address: str) -> list[Run]:
    """The two queries of a collection."""
    return [run for sample in (0, 1) for run in collect_ras(context, targets, sample, address)]


@pytest.mark.parametrize("version", ["2.27.3", "2.28.9", "2.29.1", None])
def test_an_old_or_unknown_nccl_is_not_asked_without_the_flag(
    real: Context, tmp_path: Path, library: Library, version: str | None
) -> None:
    with service(tmp_path, library(version)) as (rank, address, connections):
        for run in both(real, [rank], address):
            assert run.status is Status.SKIPPED_BY_POLICY
            assert f"process {rank.pid} runs NCCL {version}" in str(run.reason) if version else "is unknown" in str(run.reason)
            assert str(run.reason).endswith("; --nccl-ras asks all the same")
        assert connections() == 0


def test_a_new_nccl_is_asked_once_for_each_sample(real: Context, tmp_path: Path, library: Library) -> None:
    with service(tmp_path, library("2.29.2")) as (rank, address, connections):
        runs = both(real, [rank], address)
        assert connections() == 2
    assert [(run.status, run.path) for run in runs] == [
        (Status.OK, "nodes/host-1/nccl/ras-0.json"),
        (Status.OK, "nodes/host-1/nccl/ras-1.json"),
    ]
    assert (real.staging.root / "nodes/host-1/nccl/ras-1.json").read_bytes() == b'{"nccl_version": "2.29.2"}'


@pytest.mark.parametrize("version", ["2.27.3", None])
def test_with_the_flag_an_old_nccl_gets_two_connections_and_no_more(
    real: Context, tmp_path: Path, library: Library, version: str | None
) -> None:
    with service(tmp_path, library(version), json=False) as (rank, address, connections):
        runs = both(flagged(real, True), [rank], address)
        assert connections() == 2
    assert [(run.status, run.path) for run in runs] == [(Status.OK, f"nodes/host-1/nccl/ras-{sample}.txt") for sample in (0, 1)]


def test_a_service_that_does_not_know_json_after_all_gets_no_second_connection(
    real: Context, tmp_path: Path, library: Library
) -> None:
    with service(tmp_path, library("2.29.2"), json=False) as (rank, address, connections):
        (run,) = collect_ras(real, [rank], 0, address)
        assert (run.status, run.path, connections()) == (Status.OK, "nodes/host-1/nccl/ras-0.txt", 1)


def test_one_query_serves_all_the_ranks_of_a_host(
    real: Context, tmp_path: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = library("2.30.7")
    with service(tmp_path, path) as (rank, address, connections), ExitStack() as stack:
        others = [stack.enter_context(running(HOLDER, str(path))) for _ in range(3)]
        ranks = [rank, *(Target(number, "alive", one.pid) for number, one in enumerate(others, 1))]
        ranks = [replace(one, environ={"NCCL_RAS_ADDR": address}) for one in ranks]
        tasks = [task for task in make_plan(real, ranks) if task.id == nccl_ras.ID]
        assert [run.status for task in tasks for run in task.work()] == [Status.OK, Status.OK]
        assert connections() == 2


def test_one_old_rank_is_enough_to_ask_none(real: Context, tmp_path: Path, library: Library) -> None:
    with (
        service(tmp_path, library("2.29.2")) as (rank, address, connections),
        running(HOLDER, str(library("2.27.7", folder="old"))) as old,
    ):
        runs = both(real, [rank, Target(1, "alive", old.pid)], address)
        assert {run.status for run in runs} == {Status.SKIPPED_BY_POLICY}
        assert f"process {old.pid} runs NCCL 2.27.7" in str(runs[0].reason)
        assert connections() == 0


def test_a_service_of_another_job_is_judged_by_its_own_nccl(real: Context, tmp_path: Path, library: Library) -> None:
    with (
        service(tmp_path, library("2.27.3", folder="old")) as (_, address, connections),
        running(HOLDER, str(library("2.29.2"))) as own,
    ):
        runs = both(real, [Target(0, "alive", own.pid)], address)
        assert {run.status for run in runs} == {Status.SKIPPED_BY_POLICY}
        assert connections() == 0


def test_what_listens_without_nccl_is_not_asked(real: Context, tmp_path: Path) -> None:
    with service(tmp_path) as (rank, address, connections):
        (run,) = collect_ras(real, [rank], 0, address)
        assert run.status is Status.SKIPPED_BY_POLICY
        assert "has no NCCL mapped that is known" in str(run.reason)
        assert connections() == 0


@pytest.mark.parametrize(("switched_off", "flag"), [(True, None), (True, True), (False, False)])
def test_ras_that_is_switched_off_is_not_asked(
    real: Context, tmp_path: Path, library: Library, switched_off: bool, flag: bool | None
) -> None:
    asking = replace(real, settings=replace(real.settings, nccl_ras=flag))
    with service(tmp_path, library("2.29.2")) as (rank, address, connections):
        (run,) = collect_ras(asking, [rank], 0, address, switched_off)
        assert run.status is (Status.NOT_CONFIGURED if switched_off else Status.SKIPPED_BY_POLICY)
        assert connections() == 0


def test_nothing_listens(real: Context) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    (run,) = collect_ras(real, [], 0, address)
    assert run.status is Status.NOT_FOUND
    assert "nothing listens" in str(run.reason)


def version_of(*libraries: Path, before: Callable[[], None] = lambda: None) -> object:
    with running(HOLDER, *map(str, libraries)) as process:
        before()
        found = mapped_nccl(ProcFs(), process.pid)
        return found.version if found else "none"


def test_the_version_is_that_of_the_mapped_library_after_an_upgrade(library: Library) -> None:
    path = library("2.27.3")

    def upgrade() -> None:
        path.unlink()
        library("2.29.2")

    assert version_of(path, before=upgrade) in ((2, 27, 3), None)  # None where map_files is for root only


def test_a_deleted_library_that_cannot_be_read_any_more_is_unknown(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(procfs: ProcFs, pid: int, file: MappedFile) -> int:
        return opened(ProcFs(), pid, replace(file, addresses="0-0"))

    opened = nccl_version._open
    monkeypatch.setattr(nccl_version, "_open", hidden)
    path = library("2.29.2")
    assert version_of(path) == (2, 29, 2)

    def upgrade() -> None:
        path.unlink()
        library("2.29.3")

    assert version_of(path, before=upgrade) is None


def test_an_nccl_inside_of_torch(library: Library) -> None:
    assert version_of(library("2.26.2", "libtorch_cuda.so")) == (2, 26, 2)
    assert version_of(library(None, "libtorch_cuda.so", "unknown")) is None
    assert version_of(library(None, "libtorch_cpu.so")) == "none"


def test_the_oldest_of_several_counts(library: Library) -> None:
    new, old = library("2.29.2"), library("2.25.1", folder="preloaded")
    assert version_of(new, old) == (2, 25, 1)


def test_the_name_of_the_file_tells_the_version_where_its_content_does_not(library: Library) -> None:
    assert version_of(library(None, "libnccl.so.2.29.3")) == (2, 29, 3)


def test_what_is_no_library_has_no_version(tmp_path: Path) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(b"NCCL version 2.29.2" * 500)
    code = (
        f"import mmap\nfile = open({str(path)!r}, 'rb')\nheld = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n{SLEEP}"
    )
    with running(code) as process:
        found = mapped_nccl(ProcFs(), process.pid)
    assert found is not None
    assert found.version is None
