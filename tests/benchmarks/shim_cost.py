"""What the collector costs a call of NCCL: `python -m tests.benchmarks.shim_cost LIBRARY [OTHER ...]`.

Over a plain call through to a library that does nothing. Warm figures are the fastest of many short runs; cold ones the median
of calls between which 48 MiB are walked. Everything is measured in turn in each of some rounds, so that other work on the
machine meets all alike, and of cold figures the median difference within a round counts. `line` is a ring of text lines, as
tools write that log each call as text; `least` is two clock reads and one store into shared memory, without which there is
no record.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.native.shim_jobs import HERE, compile_c, double, linked, run

ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds per call: the plain call, what a collector and a text line add, two reads of the clock; all that, cold.

    `beyond` is what it adds on a communicator for which the log has no slot left.
    """

    plain: float
    shim: float
    line: float
    clock: float
    cold: float
    least: float
    beyond: float

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"plain call            {self.plain:7.1f} ns",
            f"collector adds        {self.shim:7.1f} ns ({self.shim / self.plain:.1f} plain calls)",
            f"  in two clock reads  {self.shim / self.clock:7.2f}",
            f"  without a slot       {self.beyond:7.1f} ns",
            f"  of it two clock reads {self.clock:5.1f} ns",
            f"collector adds, cold  {self.cold:7.1f} ns",
            f"  two reads, one store {self.least:6.1f} ns",
            f"text line adds        {self.line:7.1f} ns ({self.line / self.shim:.1f} times the collector)",
        ]


class _Bench:
    """The compiled job; `best` and `cold` run it once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = compile_c(folder / "cost", [HERE / "cost.c"], *linked(double(folder)))

    def best(self, mode: str, calls: int, preload: Path | None = None) -> float:
        """Nanoseconds per call of the fastest run."""
        done = run([self.program, mode, calls], self.folder / "logs", preload, FORENSICS_SHIM_BYTES="1048576")
        return min(float(line) for line in done.stdout.split())


def measure_all(shims: Sequence[Path], folder: Path, rounds: int = ROUNDS, with_cold: bool = True) -> list[Cost]:
    """Build the job and run it in turn without a collector and with each of some."""
    bench = _Bench(folder)
    warm: list[list[float]] = []
    cold: list[list[float]] = []
    for _ in range(rounds):
        plain = [bench.best("warm", 5000), bench.best("line", 1000), bench.best("clock", 5000)]
        warm.append(plain + [bench.best(mode, 5000, shim) for mode in ("warm", "beyond") for shim in shims])
        if with_cold:
            rest = [bench.best("cold", 200), bench.best("nothing", 200), bench.best("least", 200)]
            cold.append(rest + [bench.best("cold", 200, shim) for shim in shims])
    if shims and not list(folder.rglob("*.frx")):
        raise RuntimeError("nothing was recorded, so that nothing was measured")
    plain_ns, line, clock, *added = (min(column) for column in zip(*warm, strict=True))
    least = median(row[2] - row[1] for row in cold) if cold else float("nan")
    extra = [median(row[3 + each] - row[0] for row in cold) if cold else float("nan") for each in range(len(shims))]
    kinds = zip(added[: len(shims)], added[len(shims) :], extra, strict=True)
    return [
        Cost(plain_ns, known - plain_ns, line - plain_ns, clock, one_cold, least, beyond - plain_ns)
        for known, beyond, one_cold in kinds
    ]


def measure(shim: Path, folder: Path, with_cold: bool = True) -> Cost:
    """One collector, in one round."""
    return measure_all([shim], folder, 1, with_cold)[0]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        libraries = [Path(argument).resolve() for argument in sys.argv[1:]]
        for library, cost in zip(libraries, measure_all(libraries, Path(name)), strict=True):
            sys.stdout.write("\n".join([str(library), *cost.lines(), ""]))
