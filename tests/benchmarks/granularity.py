"""How fine epochs have to be (Pulse 7.2.1, figure 9): `python -m tests.benchmarks.granularity PAGE [SEED]`.

GPT-2 70B with TP8, DP4 (ZeRO-2) and PP2, one NIC at half its rate. The actual communication time of a rank in an iteration is
the sum of the epochs in which a connection of its reductions sends something (Pulse 6), averaged over its connections.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import TESTBED
from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.simulator.traffic import Epochs, runs, traffic
from forensics.fixtures.suites.nic import GPT, training_job

LENGTHS_US = (8, 16, 32, 64, 128, 1000)
SLOW, BEFORE, BESIDE, APART = 16, 8, (0, 24), (32, 40, 48, 56)
"""The rank with the slow NIC, the one that sends to it, the others of its group, and the group of the other pipeline stage."""
_ITERATION = 3
_PLACE = re.compile(r"(?<=<!-- granularity -->\n).*?(?=<!-- /granularity -->)", re.DOTALL)
Times = Mapping[int, float]


def actual_times(fault: str, seed: int, lengths_us: Sequence[int]) -> list[Times]:
    """Actual communication time (ms) of each rank in one iteration, for each length of epochs."""
    job = replace(training_job(GPT), noise=TESTBED)
    made = simulate(job, [parse(fault)], seed, iterations=_ITERATION + 2, onset=1)
    begin, end = float(made.run.begins[_ITERATION].min()), float(made.run.ends[_ITERATION].max())
    moved = traffic(Network(made.run, made.effects, made.capture_ns, seed), begin, end)
    found: list[Times] = []
    for length in lengths_us:
        epochs, busy = Epochs(length * 1000, begin, end), defaultdict[int, list[int]](list)
        for one, ramps in moved.sent.items():
            if one.is_sender and one.connection.axis == "dp":
                counted = (np.count_nonzero(values) for _, values in runs(ramps, made.places, one.rank, epochs))
                busy[one.rank].append(int(sum(counted)))
        found.append({rank: float(np.mean(counts)) * length / 1000 for rank, counts in busy.items()})
    return found


def page(seed: int) -> str:
    """The table: what the slow rank, the others of its group and another group show by the length of epochs."""
    usual = actual_times("none", seed, LENGTHS_US)
    slow = actual_times(f"nic-slow@rank{SLOW}:50%+lasting", seed, LENGTHS_US)
    head = (
        "| epochs, µs | sound job | slow rank | the one that sends to it | others of its group | another group "
        "| others above a sound job |\n"
    )
    lines = [head, "|---|---|---|---|---|---|---|\n"]
    for length, before, now in zip(LENGTHS_US, usual, slow, strict=True):
        sound = float(np.mean([before[rank] for rank in (SLOW, BEFORE, *BESIDE)]))
        others = [now[rank] for rank in BESIDE]
        cells = (
            f"{sound:.0f} ms", f"{now[SLOW]:.0f} ms", f"{now[BEFORE]:.0f} ms", f"{min(others):.0f} to {max(others):.0f} ms",
            f"{np.mean([now[rank] for rank in APART]):.0f} ms", f"{np.mean(others) - sound:.0f} ms",
        )  # fmt: skip
        lines.append(f"| {length} | {' | '.join(cells)} |\n")
    return f"{''.join(lines)}\nSeed {seed}.\n"


if __name__ == "__main__":
    path, found = Path(sys.argv[1]), page(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    path.write_text(_PLACE.sub(lambda _: found, path.read_text(encoding="utf-8")), encoding="utf-8")
