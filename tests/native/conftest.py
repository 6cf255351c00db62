from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every library of native/, compiled as strictly as the project promises."""
    folder = tmp_path_factory.mktemp("native")
    for sources in sorted((ROOT / "native").glob("*/CMakeLists.txt")):
        library = folder / f"libforensics_{sources.parent.name}.so"
        flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]
        linking = ["-Wl,--no-undefined", "-Wl,--as-needed", f"-I{ROOT / 'native/include'}", "-o", str(library)]
        subprocess.run(["cc", *flags, *map(str, sorted(sources.parent.glob("*.c"))), *linking], check=True)
    return folder
