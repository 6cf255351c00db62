"""Cells per second of cutting operators out of NIC epochs: `python -m tests.benchmarks.epochs --cells 200000000`.

Beside it the algorithm as it is printed (Pulse section 5.2, algorithm 1), a loop over epochs, on a part of the cells. Cells are
those of one hour of busy queue pairs, cut into captures: memory is that of one capture.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from forensics.rules.reductions.epochs.cells import Cells
from forensics.rules.reductions.epochs.segments import DELTA_NS, quantile, segments

_EPOCH_NS = 32_000
_CAPTURE = 4_000_000
_PAIRS = 64
_LOOPED = 1_000_000


def capture(random: np.random.Generator, cells: int) -> Cells:
    """Queue pairs that are busy for some hundred epochs at a time, with short gaps inside and long ones between."""
    mine = cells // _PAIRS
    steps = np.where(random.random((_PAIRS, mine)) < 0.003, 300, np.where(random.random((_PAIRS, mine)) < 0.2, 3, 1))
    series = np.repeat(np.arange(_PAIRS), mine)
    return Cells(series, np.cumsum(steps, axis=1).ravel(), random.integers(4096, 1 << 20, _PAIRS * mine))


def looped(cells: Cells, delta: int, size: int) -> int:
    """Operators by the printed algorithm; how many there are."""
    found, last, moved, before = 0, 0, 0, -1
    rows = zip(cells.series.tolist(), cells.epoch.tolist(), cells.bytes.tolist(), strict=True)
    for series, at, value in rows:
        if series != before or (at - last >= delta and moved >= size):
            moved = 0
        found += not moved
        last, moved, before = at, moved + value, series
    return found


def main(total: int) -> None:
    random, delta, size = np.random.default_rng(1), DELTA_NS // _EPOCH_NS, 50_000_000
    part = capture(random, _LOOPED)
    begin = time.process_time()
    expected = looped(part, delta, size)
    alone = len(part) / (time.process_time() - begin)
    assert len(segments(part, delta, int(part.epoch.max()), np.full(len(part), size))) == expected
    done, spent = 0, 0.0
    while done < total:
        cells = capture(random, min(_CAPTURE, total - done))
        begin = time.process_time()
        quantile(cells, segments(cells, delta, int(cells.epoch.max()), np.full(len(cells), size)), 0.95)
        spent, done = spent + time.process_time() - begin, done + len(cells)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(f"{done:.3g} cells in {spent:.1f} s of one core: {done / spent:.3g} a second, {memory:.2f} GiB")
    print(f"the printed loop: {alone:.3g} a second")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=20_000_000)
    main(parser.parse_args().cells)
