"""What is and is not in place, and what to do about it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from forensics.collect.processes import ProcFs
from forensics.shim.doctor import Check, Health, host_checks, linking, plugin_support, recorder_settings
from forensics.shim.elf import nccl_version, needed
from forensics.shim.process_checks import process_checks
from tests.unit.collect.fake_proc import FakeProc

LIBRARY = "/opt/lib/libforensics_shim.so"


def named(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    (tmp_path / "proc").mkdir()
    return FakeProc(tmp_path / "proc")


def process(proc: FakeProc, environ: dict[str, str], *mapped: str) -> dict[str, Check]:
    proc.add(100, environ=environ, start=500)
    lines = "".join(f"7f00-7f01 r-xp 0 08:01 {number}    {path}\n" for number, path in enumerate(mapped, 1))
    (proc.root / "100/maps").write_text(lines)
    return named(list(process_checks(100, proc.procfs)))


def test_a_host_is_looked_at_without_a_job() -> None:
    checks = named(list(host_checks({})))
    assert {"collector library", "log folder", "py-spy", "Flight Recorder", "clock"} <= set(checks)
    assert all(check.advice for check in checks.values() if check.health is not Health.OK)


def test_a_library_that_is_not_there_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(tmp_path))
    assert named(list(host_checks({})))["collector library"].health is Health.MISSING


def test_a_library_that_cannot_be_preloaded_says_what_the_loader_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libforensics_shim.so").write_text("no library")
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(tmp_path))
    check = named(list(host_checks({})))["collector loads"]
    assert check.health is Health.MISSING and "cannot be preloaded" in check.reason


def test_a_process_without_the_collector_is_stated_how_to_start(proc: FakeProc) -> None:
    checks = process(proc, {})
    assert checks["collector"].health is Health.MISSING and "shim run" in checks["collector"].advice
    assert checks["LD_PRELOAD"].health is Health.WARN


def test_a_variable_that_did_not_load_anything_is_found_out(proc: FakeProc) -> None:
    checks = process(proc, {"LD_PRELOAD": LIBRARY}, "/usr/lib/libc.so.6")
    assert checks["LD_PRELOAD"].health is Health.MISSING and "not in the memory map" in checks["LD_PRELOAD"].reason


def test_a_loaded_collector_without_a_log_waits_for_the_first_call(proc: FakeProc, tmp_path: Path) -> None:
    environ = {"LD_PRELOAD": LIBRARY, "FORENSICS_SHIM_DIR": str(tmp_path)}
    checks = process(proc, environ, LIBRARY, "/opt/nccl/libnccl.so.2")
    assert checks["collector"].health is Health.OK
    assert checks["log"].health is Health.WARN and "first NCCL" in checks["log"].advice


def test_no_such_process(tmp_path: Path) -> None:
    (check,) = process_checks(100, ProcFs(tmp_path))
    assert check.health is Health.MISSING


@pytest.mark.parametrize(
    ("environ", "health"),
    [
        ({}, Health.WARN),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, Health.WARN),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}, Health.WARN),
        ({"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "true"}, Health.OK),
    ],
)
def test_flight_recorder_settings(environ: dict[str, str], health: Health) -> None:
    assert recorder_settings(environ).health is health


def test_linking_and_versions() -> None:
    assert linking(Path("libtorch_cuda.so"), ("libcudart.so.12", "libnccl.so.2")).health is Health.OK
    assert "static" in linking(Path("libtorch_cuda.so"), ("libcudart.so.12",)).reason
    assert plugin_support("2.22.3", Path("x")).health is Health.WARN
    assert plugin_support("2.23.4", Path("x")).health is Health.OK
    assert plugin_support(None, Path("x")).health is Health.WARN


def test_libraries_that_a_program_asks_for(tmp_path: Path) -> None:
    assert any(name.startswith("libc.so") for name in needed(Path(os.path.realpath(sys.executable)))) or needed(Path("/bin/sh"))
    for content in (b"x", b"\x7fELF\x02\x01" + bytes(10), b"\x7fELF\x02\x01" + b"\xff" * 200):
        (tmp_path / "odd").write_bytes(content)
        assert needed(tmp_path / "odd") == ()
    (tmp_path / "odd").write_bytes(b"... NCCL version 2.27.5+cuda12.9 ...")
    assert nccl_version(tmp_path / "odd") == "2.27.5"
