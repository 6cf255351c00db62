from __future__ import annotations

import ctypes
import errno
import importlib.metadata
import re
import subprocess
import time
from pathlib import Path

import pytest

from forensics import native
from forensics.native import read_clocks

PAGE = Path(__file__).parents[2] / "docs/formats/clock-reading.md"
SECOND = 1_000_000_000
CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)


@pytest.fixture(params=["native", "python"])
def reader(request: pytest.FixtureRequest, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to read: the library in its folder, and a folder without one."""
    folder = built if request.param == "native" else tmp_path
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(folder))
    return str(request.param)


def test_the_reading_says_who_took_it(reader: str) -> None:
    assert read_clocks().native == (reader == "native")


@pytest.mark.usefixtures("reader")
def test_each_clock_lies_between_reads_around_the_call() -> None:
    before = [time.clock_gettime_ns(clock) for clock in CLOCKS]
    reading = read_clocks()
    after = [time.clock_gettime_ns(clock) for clock in CLOCKS]
    taken = [reading.realtime_ns, reading.monotonic_ns, reading.boottime_ns]
    assert all(low <= value <= high for low, value, high in zip(before, taken, after, strict=True))


@pytest.mark.usefixtures("reader")
def test_readings_advance_and_agree_within_their_bounds() -> None:
    readings = [read_clocks(4) for _ in range(50)]
    assert [r.monotonic_ns for r in readings] == sorted(r.monotonic_ns for r in readings)
    assert all(0 < reading.bound_ns < SECOND for reading in readings)
    ahead = [reading.boottime_ns - reading.monotonic_ns for reading in readings]
    widest = max(reading.bound_ns for reading in readings)
    assert max(ahead) - min(ahead) <= 2 * widest


def test_the_counter_counts(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(built))
    counts = [read_clocks(1).counter for _ in range(3)]
    assert read_clocks().counter_kind in ("tsc", "cntvct")
    assert None not in counts
    assert len(set(counts)) == 3
    assert counts == sorted(counts, key=lambda count: count or 0)


def test_more_attempts_never_report_more_brackets_than_asked(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(built))
    assert read_clocks(7).attempts == 7


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        read_clocks(0)


def test_the_library_itself_refuses_misuse(built: Path) -> None:
    read = ctypes.CDLL(str(built / "libforensics_clock.so")).forensics_clock_read
    assert read(None, ctypes.c_int(1)) == -errno.EINVAL
    assert read(ctypes.create_string_buffer(48), ctypes.c_int(0)) == -errno.EINVAL


def test_a_file_that_is_no_library_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libforensics_clock.so").write_bytes(b"not a library")
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(tmp_path))
    assert not read_clocks().native


def test_a_library_of_another_layout_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "other.c"
    source.write_text("int forensics_clock_read(unsigned short *out, int n) { out[23] = 2; return n < 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libforensics_clock.so"), str(source)], check=True)
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(tmp_path))
    assert not read_clocks().native


def test_the_page_describes_the_layout_that_is_read() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (u?int\d+) \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    documented = [(int(offset), int(size), name) for offset, size, _, name in rows]
    fields = [(getattr(native._Reading, name), name) for name, _ in native._Reading._fields_]
    assert documented == [(field.offset, field.size, name) for field, name in fields]
    assert ctypes.sizeof(native._Reading) == documented[-1][0] + documented[-1][1]


def test_an_installation_finds_exactly_the_libraries_it_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORENSICS_NATIVE_DIR", raising=False)
    try:
        files = importlib.metadata.files("forensics") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    shipped = any(file.name == "libforensics_clock.so" for file in files)
    assert (native.library_path("forensics_clock") is not None) == shipped
