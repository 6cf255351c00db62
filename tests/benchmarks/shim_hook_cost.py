"""What the profiler and verbs hooks cost where NCCL calls all the time: `python -m tests.benchmarks.shim_hook_cost`.

Nanoseconds over a plain call through a pointer to a function that does nothing; the fastest of 300 short runs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.native.shim_drivers import driver
from tests.native.shim_jobs import run


def measure(folder: Path) -> dict[str, float]:
    """`repeated_state`, `empty_poll` and `post_two_poll_one`, in nanoseconds."""
    folder.mkdir(exist_ok=True)
    program = driver("hook_cost", ("profiler", "verbs"))
    done = run([program], folder / "logs", FORENSICS_SHIM_BYTES="1048576")
    if not list(folder.rglob("*.frx")):
        raise RuntimeError("nothing was recorded, so that nothing was measured")
    rows = (line.split() for line in done.stdout.splitlines())
    return {name: float(cost) for name, cost in rows}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for what, cost in measure(Path(name)).items():
            sys.stdout.write(f"{what:20s} {cost:6.2f} ns\n")
