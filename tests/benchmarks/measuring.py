"""Runs a command and measures it with all its processes: wall time, processor time, and peak memory."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INTERVAL_S = 0.1
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run; `peak_bytes` is the largest sum over the command's processes, pages they share counted once."""

    code: int
    output: str
    wall_s: float
    cpu_s: float
    peak_bytes: int


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Measured:
    """Run a command to its end, looking at its memory every tenth of a second."""
    peak = 0
    before = os.times()
    start = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
        while True:
            peak = max(peak, sum(map(_memory, _tree(process.pid))))
            try:
                code = process.wait(_INTERVAL_S)
                break
            except subprocess.TimeoutExpired:
                continue
        wall = time.perf_counter() - start
        after = os.times()
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Measured(code, text, wall, cpu, peak)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))
    except OSError:  # it ended while it was looked at
        return


def _memory(pid: int) -> int:
    try:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
