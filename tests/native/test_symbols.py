from __future__ import annotations

import subprocess
from pathlib import Path


def listed(*command: str) -> list[list[str]]:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [line.split() for line in done.stdout.splitlines()]


# The shim stands in for functions of others: those of NCCL and verbs that it hooks, and NCCL's entry points for plugins.
HOOKS = {"libforensics_shim.so": ("nccl", "ibv_", "dlsym", "dlvsym", "dlclose", "pthread_exit")}


def test_only_forensics_symbols_are_exported(built: Path) -> None:
    libraries = sorted(built.glob("*.so"))
    assert libraries
    for library in libraries:
        exported = [row[-1] for row in listed("nm", "-D", "--defined-only", str(library))]
        assert exported
        assert all(symbol.startswith(("forensics_", *HOOKS.get(library.name, ()))) for symbol in exported), library.name


def test_libraries_need_nothing_but_libc(built: Path) -> None:
    for library in sorted(built.glob("*.so")):
        needed = [row[-1].strip("[]") for row in listed("readelf", "-d", str(library)) if "(NEEDED)" in row]
        assert set(needed) <= {"libc.so.6"}, library.name
