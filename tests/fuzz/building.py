"""Builds a fuzz target of a native reader, with gcc's sanitizers and the calls that tell which code was reached."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
READERS = ("pickle", "trace")
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


class NoSanitizers(Exception):
    """The compiler cannot link its sanitizers."""


def build(reader: str, folder: Path) -> Path:
    """The driver of a reader; only the reader's own code is counted as reached."""
    flags = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", *_SANITIZERS, f"-I{ROOT / 'native/include'}", f"-I{HERE}"]
    objects = []
    for source in sorted((ROOT / "native" / reader).glob("*.c")):
        objects.append(str(folder / f"{reader}_{source.stem}.o"))
        _run(["cc", *flags, "-fsanitize-coverage=trace-pc", "-c", "-o", objects[-1], str(source)])
    program = folder / f"fuzz_{reader}"
    own = [str(HERE / name) for name in ("driver.c", "mutations.c", f"{reader}_target.c")]
    _run(["cc", *flags, "-o", str(program), *own, *objects, "-lm"])
    return program


def files_of(reader: str, kind: str) -> list[Path]:
    """The inputs of a reader that are kept: its `corpus`, or the `reproducers` of what was found."""
    return sorted((HERE / kind / reader).iterdir())


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and ("cannot find" in done.stderr or "unrecognized" in done.stderr):
        raise NoSanitizers(done.stderr)
    if done.returncode:
        raise RuntimeError(done.stderr)
