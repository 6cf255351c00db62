"""Builds the small C jobs of tests/native/shim and runs them under the collector."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.unit.ingest.reading import Result, read

HERE = Path(__file__).parent / "shim"
ROOT = HERE.parents[2]
RING = [*sorted((ROOT / "native/ring").glob("*.c")), ROOT / "native/clock/clock.c"]
Done = subprocess.CompletedProcess[str]
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
_INCLUDES = (f"-I{ROOT / 'native'}", f"-I{ROOT / 'native/include'}", f"-I{HERE}")


def compile_c(output: Path, sources: Sequence[Path], *options: str) -> Path:
    """Compile C files with the headers of native/."""
    command = ["cc", *_FLAGS, *_INCLUDES, *map(str, sources), *options, "-o", str(output), "-pthread", "-ldl"]
    subprocess.run(command, check=True)
    return output


@cache
def ring_objects(*options: str) -> list[Path]:
    """The object files of RING, compiled once for all programs with these options."""
    folder = Path(tempfile.mkdtemp(prefix="forensics-ring-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run(["cc", *_FLAGS, *_INCLUDES, *options, "-c", *map(str, RING)], cwd=folder, check=True)
    return sorted(folder.glob("*.o"))


def double(folder: Path, name: str = "libnccl.so.2", *options: str) -> Path:
    """The stand-in for libnccl as a library of its own."""
    folder.mkdir(exist_ok=True)
    library = folder / name
    if not library.exists():
        compile_c(library, [HERE / "nccl_double.c"], "-shared", "-fPIC", f"-Wl,-soname,{name}", *options)
    return library


def linked(library: Path) -> tuple[str, ...]:
    """Options that link with a library where it lies."""
    return (str(library), f"-Wl,-rpath,{library.parent}")


def run(
    command: Sequence[object], logs: Path, shim: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a job with its logs in a folder, with the collector preloaded when one is given."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("FORENSICS_SHIM", "LD_PRELOAD"))}
    variables |= {"FORENSICS_SHIM_DIR": str(logs), **environment}
    if shim is not None:
        variables["LD_PRELOAD"] = str(shim)
    return subprocess.run(list(map(str, command)), env=variables, capture_output=True, text=True, timeout=120)


def files(logs: Path) -> list[Path]:
    """Everything that the collector left in the folder."""
    return sorted(path for path in logs.rglob("*") if path.is_file())


def only_log(logs: Path) -> Result:
    """The one log in the folder, read."""
    (path,) = files(logs)
    return read(path.read_bytes(), path.name)
