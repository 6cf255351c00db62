"""What a simulated case costs, by its sources: `python -m tests.benchmarks.simulator_cost PAGE [RANKS...]` (64 without any).

Each line is a process of its own: `forensics simulate` with a NIC at 40 % of its rate, processor time and the peak of
its memory. The ratio is against the same case with dumps of the recorder only. Sizes are GPT-2 70B (TP8 PP2) with more or fewer
data-parallel ranks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forensics.fixtures.simulator.sources import USUAL, known

_PLACE = re.compile(r"(?<=<!-- cost -->\n).*?(?=<!-- /cost -->)", re.DOTALL)
_BESIDE = tuple(source for source in known() if source not in USUAL)
SETS = {
    "recorder only": ("--only", "recorder"), "usual": (), "usual, shim": ("--with", "shim"), "usual, nic": ("--with", "nic"),
    "usual, stages": ("--with", "stages"), "usual, kineto": ("--with", "kineto"), "usual, nsight": ("--with", "nsight"),
    "all": ("--with", ",".join(_BESIDE)),
}  # fmt: skip
_TRACES = ("kineto", "nsight")
WITHOUT_TRACES = ("--with", ",".join(source for source in _BESIDE if source not in _TRACES))
_ALTERNATIVE = "recorder only"
_RANKS_A_REPLICA = 16


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of processor time, peak of memory in MiB, and size of the bundle in MiB."""

    seconds: float
    memory: float
    size: float


def cost(ranks: int, asked: Sequence[str]) -> Cost:
    """Simulate one case; raises CalledProcessError when it fails."""
    with tempfile.TemporaryDirectory(prefix="cost-") as folder:
        output = Path(folder) / "bundle.tar"
        size = f"parallel.data={ranks // _RANKS_A_REPLICA}"
        command = (
            sys.executable, "-m", "forensics", "simulate", "--job", "gpt2-70b", "--set", size,
            "--fault", "nic-slow@rank9:40%", "--seed", "1", *asked, "-o", str(output),
        )  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, output.stat().st_size / (1 << 20))


def sets(ranks: int) -> dict[str, tuple[str, ...]]:
    """What is measured: every source for itself at 64 ranks, and what comes together at more."""
    if ranks <= 64:
        return {**SETS, "all but traces": WITHOUT_TRACES}
    return {_ALTERNATIVE: SETS[_ALTERNATIVE], "usual": SETS["usual"], "all but traces": WITHOUT_TRACES}


def table(sizes: Sequence[int]) -> str:
    """The table, a line for each size and set of sources."""
    head = "| ranks | sources | processor | against recorder only | memory | bundle |\n|---|---|---|---|---|---|\n"
    return head + "".join(line for ranks in sizes for line in _lines(ranks))


def _lines(ranks: int) -> list[str]:
    found = {name: cost(ranks, asked) for name, asked in sets(ranks).items()}
    least = found[_ALTERNATIVE].seconds
    return [
        f"| {ranks:,} | {name} | {one.seconds:.1f} s | {one.seconds / least:.1f} | {one.memory:.0f} MiB | {one.size:.0f} MiB "
        "|\n"
        for name, one in found.items()
    ]


def main() -> None:
    """Measure, and put the table between the marks of a page."""
    page, sizes = Path(sys.argv[1]), [int(ranks) for ranks in sys.argv[2:]] or [64]
    found = table(sizes)
    page.write_text(_PLACE.sub(lambda _: found, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
