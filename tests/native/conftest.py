from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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
    """A folder with every library of native/, compiled as strictly as the project promises."""
    folder = tmp_path_factory.mktemp("native")
    for sources in sorted((ROOT / "native").glob("*/CMakeLists.txt")):
        if sources.parent.name == "testbed":  # hardware for tests, no library of the package: tests/native/testbed.py builds it
            continue
        library = folder / f"libforensics_{sources.parent.name}.so"
        flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]
        linking = [
            *LINKING.get(sources.parent.name, ()),
            "-Wl,--no-undefined",
            "-Wl,--as-needed",
            "-pthread",
            "-ldl",
            "-lm",
            "-o",
            str(library),
        ]
        includes = [f"-I{ROOT / 'native/include'}", f"-I{ROOT / 'native'}"]
        subprocess.run(["cc", *flags, *includes, *sources_of(sources.parent.name), *linking], check=True)
    return folder


@pytest.fixture(scope="session")
def shim(built: Path) -> Path:
    """The collector inside the ranks."""
    return built / "libforensics_shim.so"
