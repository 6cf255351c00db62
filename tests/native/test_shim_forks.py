"""A process that is preloaded and makes no NCCL call forks like any other: what is counted is page faults, not time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.native.shim_jobs import HERE, compile_c

MOST_EXTRA_FAULTS = 5
"""An empty library that is preloaded costs four; one that clears its tables in each child costs eighty."""


def faults(program: Path, shim: Path | None) -> float:
    variables = {"PATH": os.environ["PATH"], **({"LD_PRELOAD": str(shim)} if shim else {})}
    done = subprocess.run([program, "200"], env=variables, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def test_a_fork_of_a_dormant_process_touches_nothing(built: Path, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "forks", [HERE / "forks.c"])
    plain, preloaded = faults(program, None), faults(program, built / "libforensics_shim.so")
    assert preloaded <= plain + MOST_EXTRA_FAULTS
