from __future__ import annotations

import fcntl
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forensics.native import library_path

ROOT = Path(__file__).parents[2]
_PARTS = {"shim": ("shim", "ring", "profiler", "verbs", "clock")}
"""Folders of a library that has more than its own."""
LINKING = {"shim": ("-Wl,-z,nodelete", "-nostartfiles", "-Wl,-z,noseparate-code")}
"""Options of the linker that a library's CMakeLists.txt has."""


def sources_of(name: str) -> list[str]:
    """C files of a library of native/."""
    folders = [ROOT / "native" / part for part in _PARTS.get(name, (name,))]
    return [str(file) for folder in folders for file in sorted(folder.glob("*.c"))]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every library of native/, compiled as strictly as the project promises, by the first worker that asks.

    Those that `make` installed, as strictly, are taken where no source is newer.
    """
    if (installed := _installed()) is not None:
        return installed
    mine = tmp_path_factory.getbasetemp()
    folder = (mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) / "native"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock, ThreadPoolExecutor(2) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            for name in _libraries():
                objects = list(pool.map(lambda source: _compile(source, folder), sources_of(name)))
                _link(name, objects, folder)
            (folder / "complete").touch()
    return folder


def _installed() -> Path | None:
    """The folder of the installed libraries if all are there and newer than whatever they are made of."""
    made = [library_path(f"forensics_{name}") for name in _libraries()]
    sources = [file.stat().st_mtime for file in (ROOT / "native").rglob("*") if file.is_file()]
    if None in made or min(path.stat().st_mtime for path in made if path) <= max(sources):
        return None
    folders = {path.parent for path in made if path}
    return folders.pop() if len(folders) == 1 else None


def _libraries() -> list[str]:
    """All but the hardware for tests, which is no library of the package: tests/native/testbed.py builds it."""
    return sorted(path.parent.name for path in (ROOT / "native").glob("*/CMakeLists.txt") if path.parent.name != "testbed")


def _compile(source: str, folder: Path) -> str:
    """The object of one file: in one call for a whole library, a single core would compile nearly all of them."""
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-pthread"]
    includes = [f"-I{ROOT / 'native/include'}", f"-I{ROOT / 'native'}"]
    path = Path(source)
    output = str(folder / f"{path.parent.name}-{path.stem}.o")
    subprocess.run(["cc", *flags, *includes, "-c", source, "-o", output], check=True)
    return output


def _link(name: str, objects: list[str], folder: Path) -> None:
    linking = [*LINKING.get(name, ()), "-Wl,--no-undefined", "-Wl,--as-needed", "-pthread", "-ldl", "-lm"]
    output = ["-o", str(folder / f"libforensics_{name}.so")]
    subprocess.run(["cc", "-shared", *objects, *linking, *output], check=True)


@pytest.fixture(scope="session")
def shim(built: Path) -> Path:
    """The collector inside the ranks."""
    return built / "libforensics_shim.so"
