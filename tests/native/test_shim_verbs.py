"""The verbs hook counts what a driver counts that posts and polls as NCCL does, over a small provider of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.shim_drivers import SANITIZERS, driver
from tests.native.shim_jobs import HERE, compile_c, files, linked, only_log, run

pytestmark = pytest.mark.slow

WAYS = ("credits", "storm", "overflow", "spread", "ways", "threads")
POSTS = 1_000_000 if os.environ.get("FORENSICS_LONG_TESTS") else 200_000
"""Mixed posts, refusals and completions; a million takes some seconds more."""


@pytest.fixture(scope="module", params=SANITIZERS)
def program(request: pytest.FixtureRequest) -> Path:
    return driver("verbs_driver", ("verbs",), request.param)


@pytest.mark.parametrize("way", WAYS)
def test_counts(program: Path, way: str, tmp_path: Path) -> None:
    done = run([program, way], tmp_path / "logs")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("ok\n")


def test_nothing_is_in_flight_after_mixed_posts(program: Path, tmp_path: Path) -> None:
    done = run([program, "mixed", POSTS], tmp_path / "logs")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("way", ["fork", "probe", "no_probe"])
def test_once(way: str, tmp_path: Path) -> None:
    program = driver("verbs_driver", ("verbs",), SANITIZERS[0])
    done = run([program, way], tmp_path / "logs")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_log_can_be_read(tmp_path: Path) -> None:
    program = driver("verbs_driver", ("verbs",), SANITIZERS[0])
    assert run([program, "storm"], tmp_path / "logs").returncode == 0
    log = only_log(tmp_path / "logs")
    assert not log.problems
    assert {row["nic"] for row in log.rows("queue_pairs")} == {"mlx5_7"}
    assert 12 in {row.get("error_status") for row in log.rows("wr_samples")}


@pytest.fixture(scope="module")
def verbs_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libibverbs")
    script = folder / "versions"
    script.write_text("IBVERBS_1.1 { global: ibv_*; local: *; };\n")
    library = folder / "libibverbs.so.1"
    options = ("-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", f"-Wl,--version-script={script}")
    return compile_c(library, [HERE / "lookup_library.c"], *options)


@pytest.mark.parametrize("way", ["dlvsym", "dlsym", "default", "linked"])
def test_the_library_is_found_however_it_is_reached(way: str, built: Path, verbs_library: Path, tmp_path: Path) -> None:
    more = ("-DLINKED", *linked(verbs_library)) if way == "linked" else ("-Wl,--unresolved-symbols=ignore-all",)
    program = compile_c(tmp_path / "program", [HERE / "lookup_program.c"], *more)
    done = run([program, way, verbs_library], tmp_path / "logs", built / "libforensics_shim.so")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    log = only_log(tmp_path / "logs")
    assert not log.problems
    assert [row["nic"] for row in log.rows("queue_pairs")] == ["lookup_0"]
    assert log.rows("wr_samples")[-1]["posted_bytes"] == 1000


@pytest.mark.parametrize("way", ["old", "next", "none"])
def test_other_lookups_are_as_without_us(way: str, built: Path, verbs_library: Path, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "program", [HERE / "lookup_program.c"], "-Wl,--unresolved-symbols=ignore-all")
    plain = run([program, way, verbs_library], tmp_path / "logs")
    ours = run([program, way, verbs_library], tmp_path / "logs", built / "libforensics_shim.so")
    assert plain.stdout == ours.stdout == "nothing\n"
    assert not files(tmp_path / "logs")


def test_python_works_under_the_lookup(built: Path, tmp_path: Path) -> None:
    """A program that looks up a great deal by itself."""
    code = "import ctypes, sqlite3, ssl; print(ctypes.CDLL(None).strlen(b'four'))"
    done = run(["python3", "-c", code], tmp_path / "logs", built / "libforensics_shim.so")
    assert (done.returncode, done.stdout.strip()) == (0, "4")
    assert not files(tmp_path / "logs")


def test_the_plugin_shows_every_version(built: Path) -> None:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(built / "libforensics_shim.so")], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in listing.stdout.splitlines()}
    assert {f"ncclProfiler_v{version}" for version in range(1, 7)} <= names
    assert {"dlsym", "dlvsym", "ibv_open_device", "ibv_create_qp", "ibv_modify_qp", "ibv_destroy_qp"} <= names
