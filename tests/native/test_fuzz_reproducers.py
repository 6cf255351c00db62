"""Every input that once hurt a reader: sanitizers find nothing, and both readers say the same of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics.ingest.flight_recorder import native as recorder_native
from forensics.ingest.kineto import native as trace_native
from tests.fuzz.building import READERS, NoSanitizers, build, files_of
from tests.fuzz.differential import disagreement

INPUTS = [(reader, path) for reader in READERS for kind in ("corpus", "reproducers") for path in files_of(reader, kind)]


@pytest.fixture(autouse=True)
def library(built: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(built))
    for module in (recorder_native, trace_native):
        module._library.cache_clear()
    yield
    for module in (recorder_native, trace_native):
        module._library.cache_clear()


@pytest.mark.parametrize(("reader", "path"), INPUTS, ids=lambda value: value if isinstance(value, str) else value.stem)
def test_both_readers_agree(reader: str, path: Path) -> None:
    assert disagreement(reader, path.read_bytes()) is None


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_sanitizers_find_nothing(reader: str, tmp_path: Path) -> None:
    try:
        program = build(reader, tmp_path)
    except NoSanitizers:
        pytest.skip("the compiler has no sanitizers")
    paths = [str(path) for kind in ("corpus", "reproducers") for path in files_of(reader, kind)]
    ran = subprocess.run([program, "replay", *paths], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
