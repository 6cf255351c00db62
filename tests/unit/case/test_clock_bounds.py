"""Offsets of clocks from calls between hosts: the truth lies inside the bound, and clocks that were set give none."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from duckdb import DuckDBPyConnection

from forensics.case.build import open_case
from forensics.case.clock_bounds import METHOD, derived_offsets
from forensics.case.clock_offsets import clock_offsets
from forensics.case.database import new_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from tests.recordings.collection import write
from tests.unit.simulator.small_jobs import DENSE

MS = 1_000_000
START = 1_795_174_136_000_000_000
AHEAD = {"a": 0, "b": 40 * MS, "c": -3_000 * MS}
"""What the clock of each host is ahead of true time."""
HOSTS = ("a", "b", "c")


def case(calls: Iterable[tuple[str, int, dict[int, tuple[int, int]]]], kind: str = "all_reduce") -> DuckDBPyConnection:
    """Ranks 0 to 2 on hosts a to c; calls as (communicator, number, {rank: true times of entering and of being seen done})."""
    connection = new_case()
    connection.executemany("INSERT INTO ranks (rank, host) VALUES (?, ?)", list(enumerate(HOSTS)))
    rows = [
        (rank, communicator, kind, number, *(START + at + AHEAD[HOSTS[rank]] for at in times), "done")
        for communicator, number, members in calls
        for rank, times in members.items()
    ]
    columns = "rank, communicator, kind, sequence, enqueued_ns, device_end_ns, state"
    connection.executemany(f"INSERT INTO operations ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return connection


def steps(communicator: str, ranks: tuple[int, ...], count: int = 20) -> Iterable[tuple[str, int, dict[int, tuple[int, int]]]]:
    """A call every 100 ms, into which the members come one after the other and which they are seen to have left soon after."""
    for number in range(count):
        begin = number * 100 * MS
        yield (
            communicator,
            number,
            {rank: (begin + 3 * MS * rank, begin + (9 + (number * 7 + rank) % 5) * MS) for rank in ranks},
        )


def test_the_truth_lies_within_the_bound() -> None:
    found = {row.host: row for row in derived_offsets(case(steps("world", (0, 1, 2))))}
    assert found.keys() == {"b", "c"}
    for host, row in found.items():
        assert (row.reference, row.method) == ("a", METHOD)
        assert row.bound_ns is not None and 0 < row.bound_ns < 10 * MS
        assert abs(row.offset_ns - AHEAD[host]) <= row.bound_ns


def test_hosts_are_joined_through_others() -> None:
    found = {row.host: row for row in derived_offsets(case([*steps("one", (0, 1)), *steps("two", (1, 2))]))}
    assert found["c"].bound_ns is not None and abs(found["c"].offset_ns - AHEAD["c"]) <= found["c"].bound_ns < 20 * MS


def test_a_host_whose_clock_was_set_meanwhile_is_left_out() -> None:
    connection = case(steps("world", (0, 1, 2)))
    connection.execute(
        "UPDATE operations SET enqueued_ns = enqueued_ns + ?, device_end_ns = device_end_ns + ? "
        "WHERE rank = 1 AND sequence > 10",
        [700 * MS, 700 * MS],
    )
    assert [row.host for row in derived_offsets(connection)] == ["c"]


def test_calls_that_somebody_may_leave_early_bound_nothing() -> None:
    assert derived_offsets(case(steps("world", (0, 1, 2)), kind="broadcast")) == ()
    assert derived_offsets(case(steps("world", (0,)))) == () == derived_offsets(new_case())


def test_what_was_measured_comes_first() -> None:
    connection = case(steps("world", (0, 1, 2)))
    assert {row.host for row in clock_offsets(connection)} == {"b", "c"}
    connection.execute("INSERT INTO clocks (host, reference, offset_ns, bound_ns) VALUES ('b', 'a', 7, 1)")
    assert [(row.host, row.offset_ns) for row in clock_offsets(connection)] == [("b", 7)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 6, 8, 10])
def test_clocks_of_simulated_hosts_lie_within_the_bound(seed: int, tmp_path: Path) -> None:
    """Clocks that are kept, and clocks that are up to seconds off; none of these is set while the job runs."""
    made = simulate(DENSE, [parse("none")], seed, iterations=8)
    clocks = {host.name: host.clock for host in made.places.hosts}
    assert not any(clock.steps for clock in clocks.values())
    kept = losses.drawn(DENSE.parallel.world, np.random.default_rng(1))
    write(tmp_path, dict(bundle.members(made, bundle.options_of(made), kept)))
    with open_case([tmp_path]) as connection:
        found = derived_offsets(connection)
    assert len(found) == len(clocks) - 1
    end = float(made.run.ends[-1].min())
    for row in found:
        truth = clocks[row.host].ahead(end) - clocks[row.reference].ahead(end)
        assert row.bound_ns is not None and abs(row.offset_ns - truth) <= row.bound_ns
