"""Compiles the drivers of the profiler and verbs hooks: the hooks' sources and the log's, in one program."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.native.shim_jobs import HERE, ROOT, compile_c, ring_objects

# dlsym cannot be replaced in a program that a sanitizer runs in: the lookup has a test of its own.
HOOKS = {
    "profiler": sorted((ROOT / "native/profiler").glob("*.c")),
    "verbs": [file for file in sorted((ROOT / "native/verbs").glob("*.c")) if file.name != "lookup.c"],
}
SANITIZERS = ("address,undefined", "thread")


def sanitized(sanitizer: str) -> tuple[str, ...]:
    """Options of the compiler for a program under a sanitizer; ASan brings LSan."""
    # gcc says that its thread sanitizer does not model fences; the stores that they order are atomic as well
    quiet = ("-Wno-tsan",) if sanitizer == "thread" else ()
    return (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-g", "-O1", *quiet)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Goes with the process: one build of each serves all tests."""
    return tempfile.TemporaryDirectory(prefix="shim-drivers-")


@functools.cache
def driver(name: str, hooks: tuple[str, ...], sanitizer: str = "") -> Path:
    """A driver built with a sanitizer, or as the collector itself is; skips the test where that cannot be built."""
    sources = [file for hook in hooks for file in HOOKS[hook]]
    output = Path(_folder().name) / f"{name}-{sanitizer or 'plain'}"
    options = sanitized(sanitizer) if sanitizer else ("-fPIC", "-fvisibility=hidden")
    try:
        return compile_c(output, [HERE / f"{name}.c", *sources, *ring_objects(*options)], *options)
    except (OSError, subprocess.CalledProcessError):
        if sanitizer:
            pytest.skip(f"cannot build with -fsanitize={sanitizer}")
        raise
