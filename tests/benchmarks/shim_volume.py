"""What the collector writes in an iteration of training, taken from the logs of jobs of the test bed.

Two jobs differ in the number of iterations: the difference of their counters, divided by that of the iterations, is what one
iteration writes, without what a job writes once. Counted are the entries of all that keeps history, overwritten since or not:
64 bytes for each record of a ring, 16 for each epoch bin of a queue pair. Left out are the state pages, which say what is true
now and are overwritten in place (`state_bytes` of a rank, however long the job runs), and 48 bytes of clock readings in 30 s.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import numpy as np

from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.file import ShimFile, read_file
from forensics.ingest.shim_log.rings import Ring, read_rings
from tests.native.shim_scenarios import loaded
from tests.native.testbed import Job, Shape, built, start
from tests.recordings.shim_logs import logs_in

SHAPE = Shape(pp=2, dp=2, tp=8, per_host=8, more={"compute-us": 100_000})
"""TP8 x PP2 x DP2 on four machines of eight, about a second an iteration: the job of section 7.2 of Mycroft."""
FEW, MANY = 2, 8
EPOCHS = "epochs"
GROUPS = (layout.GROUP_START, layout.GROUP_END)
STATES = {layout.COMMS: layout.COMM, layout.PROXY_OPS: layout.PROXY_OP, layout.QUEUE_PAIRS: layout.QUEUE_PAIR}


@dataclass(frozen=True, slots=True)
class Counted:
    """One rank of one job: bytes written by class of ring, and what the stand-in hardware did by its own account."""

    written: Mapping[str, int]
    groups: int
    states: int
    keeps: Mapping[str, float]
    calls: int
    proxied: int
    proxy_ops: int


@dataclass(frozen=True, slots=True)
class Volume:
    """An iteration of a rank, the mean over ranks: bytes by class, and what they were written for.

    `groups` are records of starts and ends of groups, `proxied` the operations that left the host, `proxy_ops` a channel and
    direction of them. `kept` is the number of iterations that the fullest ring of a class holds.
    """

    written: Mapping[str, float]
    calls: float
    groups: float
    proxied: float
    proxy_ops: float
    seconds: float
    state_bytes: float
    kept: Mapping[str, float]


def measure(shim: Path, folder: Path, shape: Shape = SHAPE) -> Volume:
    """Run both jobs and compare them rank by rank."""
    few, _ = _counted_job(shim, folder / "few", replace(shape, steps=FEW))
    many, seconds = _counted_job(shim, folder / "many", replace(shape, steps=MANY))

    def each(count: Callable[[Counted], int]) -> float:
        return fmean((count(b) - count(a)) / (MANY - FEW) for a, b in zip(few, many, strict=True))

    def written(name: str) -> float:
        return each(lambda rank: rank.written[name])

    return Volume(
        {name: written(name) for name in (*layout.RING_CLASSES, EPOCHS)},
        each(lambda rank: rank.calls),
        each(lambda rank: rank.groups),
        each(lambda rank: rank.proxied),
        each(lambda rank: rank.proxy_ops),
        seconds,
        fmean(rank.states for rank in many),
        {name: min(rank.keeps[name] for rank in many) * MANY for name in ("calls", "flows")},
    )


def _counted_job(shim: Path, folder: Path, shape: Shape) -> tuple[list[Counted], float]:
    """Each rank of a job, and the median length of its iterations but the first."""
    env = {**loaded(shim, folder / "logs"), "FORENSICS_SHIM_BYTES": str(8 << 20)}
    with start(built(), folder / "job", shape, env=env) as job:
        if any(job.finish(240)):
            raise RuntimeError("the job did not end in order")
        logs = logs_in(folder / "logs")
        took = [int(line.split()[-2]) / 1e6 for line in job.log(0).splitlines() if " done in " in line]
        return [_counted(logs[rank], job, rank) for rank in range(shape.world)], median(took[1:])


def _counted(content: bytes, job: Job, rank: int) -> Counted:
    (log,) = [item for item in read_file(io.BytesIO(content)) if isinstance(item, ShimFile)]
    rings = read_rings(log)
    return Counted(
        _written(log, rings),
        sum(int(np.isin(ring.records["kind"], GROUPS).sum()) for ring in rings),
        sum(int((log.tables[kind]["generation"] != 0).sum()) * entry.itemsize for kind, entry in STATES.items()),
        {name: _room(log, rings, name) for name in ("calls", "flows")},
        len(job.calls(rank)),
        len(_proxied(job, rank)),
        len(job.steps(rank)),
    )


def _proxied(job: Job, rank: int) -> set[tuple[int, int, int]]:
    """Operations that left the host; a send and a receive of one group share their number, as do the directions of a ring."""
    pairwise = {call.comm for call in job.calls(rank) if call.func in ("Send", "Recv")}
    return {(step.comm, step.number, step.is_send if step.comm in pairwise else 0) for step in job.steps(rank)}


def _written(log: ShimFile, rings: Sequence[Ring]) -> dict[str, int]:
    """Bytes by class; no record of a class that found no ring may be missing here."""
    if any(log.live["dropped"]):
        raise RuntimeError("threads found no free ring")
    found = {name: sum(64 * ring.written for ring in rings if ring.ring_class == name) for name in layout.RING_CLASSES}
    return {**found, EPOCHS: layout.EPOCH_BIN.itemsize * int(log.tables[layout.QUEUE_PAIRS]["bins"].sum())}


def _room(log: ShimFile, rings: Sequence[Ring], name: str) -> float:
    """How many such jobs would fill the fullest ring of a class."""
    entries = log.tables[layout.RINGS]
    size = int(entries["records"][entries["ring_class"] == layout.RING_CLASSES.index(name)].max())
    return min((size / ring.written for ring in rings if ring.ring_class == name), default=float("inf"))
