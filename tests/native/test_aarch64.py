"""The native libraries on AArch64: compiled as strictly as here, and run under an emulator, where both can be had."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.conftest import ROOT, sources_of
from tests.native.shim_drivers import HOOKS
from tests.native.shim_jobs import HERE, RING, only_log, run

COMPILER = "aarch64-linux-gnu-gcc"
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
STRICT = ("-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
INCLUDES = (f"-I{ROOT / 'native'}", f"-I{ROOT / 'native/include'}", f"-I{HERE}")
WAYS = {
    "profiler": ("versions", "unbalanced", "leak", "abort", "kernel", "fork"),
    "verbs": ("mixed", "credits", "storm", "spread"),
}
CNTVCT = 2

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"needs {COMPILER}")]


def cross(output: Path, sources: list[str], *options: str) -> Path:
    """Compile for AArch64; every warning fails."""
    command = [COMPILER, *STRICT, *INCLUDES, *options, *sources, "-o", str(output), "-pthread", "-ldl", "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return output


@pytest.fixture(scope="module")
def emulator() -> str:
    found = next(filter(None, map(shutil.which, EMULATORS)), None)
    if found is None:
        pytest.skip(f"needs one of {', '.join(EMULATORS)}")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("aarch64")


def program(folder: Path, name: str, *others: Path) -> Path:
    """A driver of the log, without shared libraries: the emulator needs nothing installed then."""
    return cross(folder / name, list(map(str, (HERE / f"{name}.c", *others, *RING))), "-std=gnu11", "-static")


@pytest.mark.parametrize("name", ["clock", "pickle", "shim"])
def test_compiles_without_a_warning(name: str, folder: Path) -> None:
    options = ("-std=c11", "-shared", "-fPIC", "-Wl,--no-undefined", "-Wl,--as-needed")
    library = cross(folder / f"libforensics_{name}.so", sources_of(name), *options)
    assert library.read_bytes()[18:20] == b"\xb7\x00"  # EM_AARCH64


def test_a_log_of_aarch64_is_read(emulator: str, folder: Path, tmp_path: Path) -> None:
    done = run([emulator, program(folder, "sample")], tmp_path, None, FORENSICS_SHIM_BYTES="1048576", RANK="1", WORLD_SIZE="4")
    assert done.returncode == 0
    log = only_log(tmp_path)
    assert not log.problems
    assert [row["kind"] for row in log.rows("operations")] == ["all_reduce", "send", "recv", "broadcast"]
    entered = [row["entered_ns"] for row in log.rows("operations")]
    assert entered == sorted(entered)
    read = [row["realtime_ns"] for row in log.rows("clocks")]
    assert min(read) - 10**9 < entered[0] < max(read) + 10**9


def test_four_threads_write_states_on_aarch64(emulator: str, folder: Path, tmp_path: Path) -> None:
    done = run([emulator, program(folder, "states"), 200], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    log = only_log(tmp_path)
    assert not log.problems
    assert {row["peer"] for row in log.rows("flows")} == {0, 1, 2, 3}


@pytest.mark.parametrize("hook", WAYS)
def test_the_hooks_count_on_aarch64(hook: str, emulator: str, folder: Path, tmp_path: Path) -> None:
    driver = program(folder, f"{hook}_driver", *HOOKS[hook])
    for way in WAYS[hook]:
        done = run([emulator, driver, way], tmp_path / way)
        assert (done.returncode, done.stderr) == (0, ""), way


def dumps() -> Iterator[Path]:
    yield from sorted((ROOT / "fixtures/samples").glob("flight_recorder*/**/*"))


def test_the_pickle_reader_reads_the_same_on_aarch64(emulator: str, folder: Path) -> None:
    sources = [*sources_of("pickle"), str(ROOT / "tests/native/pickle_driver.c")]
    found = [str(path) for path in dumps() if path.is_file()]
    native = folder / "here"
    subprocess.run(["cc", *STRICT, "-std=c11", *INCLUDES, *sources, "-o", str(native), "-lm"], check=True)
    there = cross(folder / "there", sources, "-std=c11", "-static")
    commands: list[list[str]] = [[str(native), *found], [emulator, str(there), *found]]
    counted = [subprocess.run(command, capture_output=True, text=True, check=True) for command in commands]
    assert counted[0].stdout == counted[1].stdout
    assert int(counted[0].stdout) > 0


CLOCK = """
#include <stdio.h>
#include "forensics/clock.h"
int main(void)
{
    struct forensics_clock_reading one = {0}, two = {0};
    int status = forensics_clock_read(&one, 4) | forensics_clock_read(&two, 4);
    printf("%d %d %d %d\\n", status, one.counter_kind, two.counter > one.counter, two.monotonic_ns > one.monotonic_ns);
    return 0;
}
"""


def test_the_clock_counts_on_aarch64(emulator: str, folder: Path) -> None:
    source = folder / "clock.c"
    source.write_text(CLOCK)
    there = cross(folder / "clock", [str(source), *sources_of("clock")], "-std=c11", "-static")
    done = subprocess.run([emulator, there], capture_output=True, text=True, check=True)
    assert done.stdout == f"0 {CNTVCT} 1 1\n"


def test_the_collector_is_loaded_late_as_a_plugin_is(folder: Path, emulator: str) -> None:
    """The loader places thread-local storage of late libraries in what the program's own leaves, alignment included."""
    root = Path("/usr/aarch64-linux-gnu")
    if not (root / "lib/ld-linux-aarch64.so.1").exists():
        pytest.skip("needs the C library of AArch64")
    options = ("-std=c11", "-shared", "-fPIC", "-Wl,--no-undefined", "-Wl,--as-needed")
    library = cross(folder / "libforensics_shim.so", sources_of("shim"), *options)
    driver = cross(folder / "late", [str(HERE / "late.c")], "-std=gnu11")
    done = subprocess.run([emulator, "-L", root, driver, library], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
