"""Rows, names and sizes of recorders, shim logs, NIC epochs and traces tell nothing of who was late, or that somebody was.

Of a rank that was late once and went on, and of one that nothing was wrong with, every source holds as much: what differs is
times. All sources are read as a user's bundle is, and each table is one witness, so that a new table is looked at as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.bundle.reader import open_bundle
from forensics.case.build import open_case
from forensics.case.database import Connection
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Parallelism
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.sources import known
from forensics.fixtures.simulator.topology import Fabric
from tests.unit.simulator.small_jobs import DENSE
from tests.unit.simulator.test_leaks import Samples, compared, telling

CASES = 48
JOB = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=2, data=2))
JOBS = (JOB, replace(JOB, fabric=Fabric(nics=2, channels=4, queue_pairs=2, placement="round-robin", pxn=True)))
# All ranks of a case are much alike, so that with a fault and without one few cases are compared: chance is off by 0.09.
FURTHEST_OF_CASES = 0.3
# What follows from the delay itself: who waits is seen waiting in stacks and states, and the clock of a file is its end.
PHYSICAL = re.compile(r"^(?:chunk_states|wr_samples|stacks|threads|processes)\b")


def made(number: int) -> tuple[Simulation, int | None]:
    """A case of which two thirds have a late rank, and that rank."""
    fault = "none" if number % 3 == 2 else "host-delay"
    found = simulate(JOBS[number // 3 % 2], [parse(fault)], 700 + number, iterations=4)
    return found, next((rank for one in found.injections for rank in one.ranks), None) if fault != "none" else None


def features(found: Simulation, path: Path) -> dict[int, dict[str, float]]:
    """Numbers of each rank: members and their sizes, then rows and texts of each table that has ranks."""
    kept = losses.drawn(JOB.parallel.world, found.random("losses"), beside=known())
    bundle.write(found, bundle.options_of(found), kept, path)
    ranks: dict[int, dict[str, float]] = defaultdict(dict)
    for order, artefact in enumerate(open_bundle([path]).artefacts):
        place = re.match(r"ranks/(\d+)/(\w+)/", artefact.path)
        if place:
            ranks[int(place[1])] |= {f"order {place[2]}": order, f"bytes {place[2]}": artefact.stored_bytes}
    connection = open_case([path])
    for rank, name, value in _of_tables(connection):
        if rank in ranks:
            ranks[rank][name] = value
    return ranks


def _of_tables(connection: Connection) -> Iterator[tuple[int, str, float]]:
    found = connection.execute(
        "SELECT table_name, list(column_name) FILTER (data_type = 'VARCHAR') FROM information_schema.columns "
        "GROUP BY ALL HAVING bool_or(column_name = 'rank') ORDER BY ALL"
    ).fetchall()
    for table, texts in found:
        counted = ", ".join(["count(*)", *(f"count(DISTINCT {text}), sum(length({text}))" for text in texts or ())])
        names = ["rows", *(f"{kind} {text}" for text in texts or () for kind in ("different", "length"))]
        for rank, *values in connection.execute(f"SELECT rank, {counted} FROM {table} GROUP BY rank").fetchall():
            yield from ((rank, f"{table} {name}", float(value or 0)) for name, value in zip(names, values, strict=True))


@pytest.mark.slow
def test_no_source_tells_the_culprit_or_that_there_is_one(tmp_path: Path) -> None:
    by_rank, by_fault = Samples(), Samples()
    for number in range(CASES):
        found, culprit = made(number)
        compared(features(found, tmp_path / f"{number}.tar"), culprit, by_rank, by_fault)
    assert [line for line in telling(by_rank) if not PHYSICAL.match(line)] == []
    assert [line for line in telling(by_fault, FURTHEST_OF_CASES) if not PHYSICAL.match(line)] == []
