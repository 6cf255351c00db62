"""A native reader that is missing, of another release, or broken is named, with what is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics.ingest.flight_recorder import native as dumps
from forensics.ingest.kineto import native as traces
from forensics.native import library_path
from forensics.shim.doctor import Check, Health
from forensics.shim.reader_libraries import library_checks

LIBRARIES = ("forensics_pickle", "forensics_trace", "forensics_clock")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder that libraries are looked for in; they are loaded once in a process, so what was loaded is forgotten."""
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(tmp_path))
    for native in (dumps, traces):
        native._library.cache_clear()
    yield tmp_path
    for native in (dumps, traces):
        native._library.cache_clear()


def found() -> dict[str, Check]:
    return {check.name: check for check in library_checks()}


def test_libraries_of_this_release_are_in_use(folder: Path) -> None:
    for name in LIBRARIES:
        path = library_path_of_installation(name)
        shutil.copy(path, folder / path.name)
    assert {check.health for check in found().values()} == {Health.OK}


def test_a_library_that_is_not_there_is_said_to_be_missing(folder: Path) -> None:
    for check in found().values():
        assert check.health is Health.WARN and "has no lib" in check.reason and "compiler" in check.advice


@pytest.mark.parametrize("is_library", [True, False])
def test_a_library_that_is_passed_over_is_named(folder: Path, is_library: bool) -> None:
    """One that loads and lacks what is asked of it, as those of older releases do, and one that is none."""
    for name in LIBRARIES:
        path = folder / f"lib{name}.so"
        other = "forensics_pickle" if name == "forensics_trace" else "forensics_trace"
        shutil.copy(library_path_of_installation(other), path) if is_library else path.write_text("no library")
    for check in found().values():
        assert check.health is Health.WARN and str(folder) in check.reason and "passed over" in check.reason and check.advice


def test_a_reader_with_another_layout_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "_LAYOUT", dumps._LAYOUT + 1)
    path = library_path_of_installation("forensics_pickle")
    shutil.copy(path, folder / path.name)
    assert "passed over: Python reads dumps instead" in found()["reader of dumps"].reason


def library_path_of_installation(name: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FORENSICS_NATIVE_DIR")
        path = library_path(name)
    if path is None:
        pytest.skip("this installation has no libraries")
    return path
