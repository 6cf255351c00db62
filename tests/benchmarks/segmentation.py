"""How well operators are cut out of NIC epochs (Pulse 5.2): `python -m tests.benchmarks.segmentation PAGE [SEED]`.

Sound jobs of the simulator, whose traffic is known operator by operator for each queue pair; the cut is that of the rules. A
queue pair carries what the calculation leaves out as well: headers, packets sent again, grants of buffers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.queue_pairs import End
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.traffic import Epochs, Ramps, Values, runs, traffic
from forensics.fixtures.suites.nic import GPT, MOE, training_job
from forensics.rules.reductions.epochs.cells import LEAST_BYTES, Cells
from forensics.rules.reductions.epochs.segments import DELTA_NS, Segments, segments

EPOCH_NS = 32_000
WAYS = ("gaps alone", "gaps and volumes")
_ITERATION = 2
_OF_VOLUME = 0.98
"""Headers are a sixtieth of what a queue pair moves: the calculated volume lies below it (Pulse 5.2)."""
_PLACE = re.compile(r"(?<=<!-- segmentation -->\n).*?(?=<!-- /segmentation -->)", re.DOTALL)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cut:
    """What was found of `operators`, in so many cuts (`found`): how far `begins` and `ends` of those with a cut of their own
    lie from the truth (epochs), and by how much `volumes` do (of one)."""

    operators: int
    found: int
    begins: Floats
    ends: Floats
    volumes: Floats


def cuts(name: str, seed: int) -> list[Cut]:
    """One iteration of a job, cut by gaps alone and by gaps and the least volume of the operators of each queue pair."""
    made = simulate(training_job(name), [parse("none")], seed, iterations=_ITERATION + 2)
    begin, end = float(made.run.begins[_ITERATION].min()), float(made.run.ends[_ITERATION].max())
    moved = traffic(Network(made.run, made.effects, made.capture_ns, seed), begin, end)
    epochs = Epochs(EPOCH_NS, begin, end)
    ends = [one for one in moved.sent if one.is_sender]
    return [_joined([_cut(made, moved.sent[one], one, epochs, way) for one in ends]) for way in WAYS]


def _cut(made: Simulation, ramps: Sequence[Ramps], one: End, epochs: Epochs, way: str) -> Cut:
    """Operators of one queue pair that lie within the time looked at."""
    host = made.places.host(one.rank).number
    first, into = epochs.edge(made.places, host)
    whole = [each for each in ramps if each[0][0] >= epochs.begin_ns and each[1][-1] < epochs.end_ns]
    speed = 1 + made.places.hosts[host].clock.drift / 1e9
    times = np.array([(each[0][0], each[1][-1]) for each in whole]).reshape(-1, 2)
    true = first + ((times - epochs.begin(made.places, host)) * speed + into) // EPOCH_NS
    volumes = np.array([float(each[2].sum()) for each in whole])
    cells = _cells(runs(ramps, made.places, one.rank, epochs), int(true[:, 0].min()) if len(true) else first)
    least = np.full(len(cells), int(_OF_VOLUME * volumes.min()) if len(volumes) else 0)
    found = segments(cells, DELTA_NS // EPOCH_NS, first + epochs.count(made.places, host), least if way == WAYS[1] else None)
    return _compared(true, volumes, found)


def _cells(found: Iterable[tuple[int, Values]], first: int) -> Cells:
    """Cells of one series from an epoch on: what began before the time looked at is left out."""
    rows = [np.column_stack([np.arange(at, at + len(values)), values]) for at, values in found]
    table = np.concatenate(rows).astype(np.int64) if rows else np.empty((0, 2), np.int64)
    table = table[(table[:, 1] >= LEAST_BYTES) & (table[:, 0] >= first)]
    return Cells(np.zeros(len(table), np.int64), table[:, 0], table[:, 1])


def _compared(true: Floats, volumes: Floats, found: Segments) -> Cut:
    """Each operator with the cut that its middle lies in, where no other one does."""
    if not len(found) or not len(true):
        return Cut(len(true), len(found), *(np.empty(0) for _ in range(3)))
    middle = true.mean(axis=1)
    place = np.searchsorted(found.begin, middle, side="right") - 1
    inside = (place >= 0) & (middle <= found.end[np.maximum(place, 0)] + 1)
    count = np.bincount(place[inside], minlength=len(found))
    alone = np.flatnonzero(inside)[count[place[inside]] == 1]
    at = place[alone]
    begins, ends = found.begin[at] - true[alone, 0], found.end[at] - true[alone, 1]
    return Cut(len(true), len(found), begins, ends, found.bytes[at] / volumes[alone] - 1)


def _joined(found: Sequence[Cut]) -> Cut:
    columns = ([getattr(each, name) for each in found] for name in ("begins", "ends", "volumes"))
    return Cut(sum(each.operators for each in found), sum(each.found for each in found), *map(np.concatenate, columns))


def page(seed: int) -> str:
    """The table, one row for each job and way."""
    head = "| job | cut by | operators | cuts | with one of their own | begin, epochs (99 %) | end, epochs (99 %) | volume |\n"
    lines = [head, "|---|---|---|---|---|---|---|---|\n"]
    for name in (GPT, MOE):
        for way, cut in zip(WAYS, cuts(name, seed), strict=True):
            begin, end = (float(np.quantile(np.abs(each), 0.99)) for each in (cut.begins, cut.ends))
            counts = (f"{cut.operators:,}", f"{cut.found:,}", f"{len(cut.begins) / cut.operators:.1%}")
            cells = (name, way, *counts, f"{begin:.0f}", f"{end:.0f}", f"{float(np.median(cut.volumes)):+.1%}")
            lines.append(f"| {' | '.join(cells)} |\n")
    return f"{''.join(lines)}\nSeed {seed}.\n"


if __name__ == "__main__":
    path, made_page = Path(sys.argv[1]), page(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    path.write_text(_PLACE.sub(lambda _: made_page, path.read_text(encoding="utf-8")), encoding="utf-8")
