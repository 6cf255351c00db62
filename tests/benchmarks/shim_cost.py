"""What the collector costs a call of NCCL: `python -m tests.benchmarks.shim_cost LIBRARY`.

Each figure is the fastest of 200 short runs, over a plain call through to a library that does nothing; cold figures are the
median of calls between which 48 MiB are walked. `line` is a ring of text lines, as tools write that log each call as text.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.native.shim_jobs import HERE, compile_c, double, linked, run


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds per call: the plain call, what the collector and a text line add, two reads of the clock."""

    plain: float
    shim: float
    line: float
    clock: float
    cold: float

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"plain call            {self.plain:7.1f} ns",
            f"collector adds        {self.shim:7.1f} ns ({self.shim / self.plain:.1f} plain calls)",
            f"  of it two clock reads {self.clock:5.1f} ns",
            f"collector adds, cold  {self.cold:7.1f} ns",
            f"text line adds        {self.line:7.1f} ns ({self.line / self.shim:.1f} times the collector)",
        ]


def measure(shim: Path, folder: Path, with_cold: bool = True) -> Cost:
    """Build the job and run it with and without the collector."""
    program = compile_c(folder / "cost", [HERE / "cost.c"], *linked(double(folder)))

    def best(mode: str, calls: int, preload: Path | None = None) -> float:
        done = run([program, mode, calls], folder / "logs", preload, FORENSICS_SHIM_BYTES="1048576")
        return min(float(line) for line in done.stdout.split())

    plain = best("warm", 5000)
    cold = best("cold", 200, shim) - best("cold", 200) if with_cold else float("nan")
    added = best("warm", 5000, shim) - plain
    return Cost(plain, added, best("line", 1000) - plain, best("clock", 5000), cold)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        sys.stdout.write("\n".join(measure(Path(sys.argv[1]).resolve(), Path(name)).lines()) + "\n")
