"""A host is named by guests on its GPUs and by longer work of its ranks together; neither names it alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Parallelism
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.rules.engine import supply_of
from forensics.rules.reductions.arrivals.lateness import Lateness, Latenesses
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.guests import ComputingGuests
from forensics.rules.reductions.pipeline.guest_hosts import GuestHosts
from forensics.rules.reductions.ranks.roster import Roster
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, gpus_per_host=4, parallel=Parallelism(tensor=2, pipeline=4, data=2))
JOB = replace(JOB, model=replace(JOB.model, forward_ns=60 * MS))
SLOW = "background-compute@node1:50%+lasting"


def guests(ranks: Iterable[int]) -> Hardware:
    return Hardware({rank: (Sign(Oddity.SHARED, f"a guest of rank {rank}", f"smi.xml#{rank}", 2.0),) for rank in ranks})


def found(made: Simulation, folder: Path, shared: Iterable[int]) -> list[tuple[int, ...]]:
    with case_of(made, folder, timing=True) as connection:
        return [each.ranks for each in supply_of(connection, instead={Hardware: guests(shared)}).get(GuestHosts)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "shared", "ranks"),
    [
        (SLOW, range(4, 8), [(4, 5, 6, 7)]),
        (SLOW, range(4, 7), [(4, 5, 6, 7)]),
        (SLOW, (), []),
        (SLOW, (4, 5), []),
        (SLOW, range(8, 12), []),
        (SLOW, range(12), []),
        ("", range(4, 8), []),
        ("", range(8, 12), []),
        ("", range(4), []),
        ("", range(12, 16), []),
    ],
    ids=[
        "both", "on nearly all", "longer work alone", "on half of them", "guests elsewhere", "guests on most hosts",
        "idle guests", "of another stage", "of the first stage", "of the last stage",
    ],
)  # fmt: skip
@pytest.mark.first(3)
def test_guests_and_longer_work_name_a_host_together(
    fault: str, shared: Iterable[int], ranks: list[tuple[int, ...]], tmp_path: Path
) -> None:
    made = simulate(JOB, [parse(fault)] if fault else [], 3, iterations=14)
    assert found(made, tmp_path, shared) == ranks


def test_a_host_has_all_of_its_ranks_whosever_record_is_cut(tmp_path: Path) -> None:
    made = simulate(JOB, [parse(SLOW)], 3, iterations=14)
    with case_of(made, tmp_path, timing=True) as connection:
        connection.execute("DELETE FROM operations WHERE rank = 6")
        (host,) = supply_of(connection, instead={Hardware: guests(range(4, 8))}).get(GuestHosts)
    assert (host.ranks, host.guests) == ((4, 5, 6, 7), 4)


@pytest.mark.parametrize(("timed", "ranks"), [("rank < 12", [(4, 5, 6, 7)]), ("rank BETWEEN 4 AND 7 OR rank >= 12", [])])
def test_a_host_of_an_inner_stage_is_held_against_another_one_of_the_pipeline(
    timed: str, ranks: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """Also where nothing is known of the host with the last stage; that one alone shows nothing."""
    made = simulate(JOB, [parse(SLOW)], 3, iterations=14)
    with case_of(made, tmp_path, timing=True) as connection:
        connection.execute(f"UPDATE operations SET duration_ns = NULL WHERE NOT ({timed})")
        hosts = supply_of(connection, instead={Hardware: guests(range(4, 8))}).get(GuestHosts)
    assert [each.ranks for each in hosts] == ranks


@pytest.mark.slow
@pytest.mark.parametrize(("node", "fault", "named"), [(0, True, True), (3, True, True), (0, False, False), (3, False, False)])
@pytest.mark.first(2)
def test_power_tells_the_first_and_the_last_stage_from_one_that_begins_or_turns_by_itself(
    node: int, fault: bool, named: bool, tmp_path: Path
) -> None:
    """Without it nobody is named that works longer from the first recorded step on; nor with it who works no longer."""
    ranks = range(4 * node, 4 * node + 4)
    made = simulate(JOB, [parse(f"background-compute@node{node}:50%+before")] if fault else [], 3, iterations=14)
    with case_of(made, tmp_path, timing=True) as connection:
        roster = supply_of(connection).get(Roster)
        computing = {roster.host_of(ranks[0]): "900 W"}
        without, by_power = (
            supply_of(connection, instead={Hardware: guests(ranks), ComputingGuests: drawn}).get(GuestHosts)
            for drawn in ({}, computing)
        )
    assert [each.ranks for each in by_power] == ([tuple(ranks)] if named else [])
    assert not without


def late_at(rank: int, *, members: tuple[int, ...] = (), lost_ms: int = 900, late: int = 9) -> Lateness:
    """A rank of a host that comes last to calls with one of another host, 100 ms each time."""
    return Lateness(
        rank,
        f"{rank}",
        "all_reduce",
        members or (rank, (rank + 8) % 16),
        9,
        late,
        int(lost_ms * MS),
        0.2,
        int(100 * MS),
        "fr#1",
    )


@pytest.mark.parametrize(
    ("shared", "late", "held_down", "ranks"),
    [
        (range(4, 8), [late_at(rank) for rank in range(4, 8)], (), [(4, 5, 6, 7)]),
        (range(4, 8), [late_at(4), late_at(5)], (), [(4, 5, 6, 7)]),
        (range(4, 8), [late_at(4)], (), []),
        ((), [late_at(rank) for rank in range(4, 8)], (), []),
        (range(4, 8), [late_at(rank, late=5) for rank in range(4, 8)], (), []),
        (range(4, 8), [late_at(8, lost_ms=1200), *(late_at(rank) for rank in range(4, 8))], (), []),
        (range(4, 8), [*(late_at(rank) for rank in range(4, 8)), late_at(5, members=(4, 5))], (), []),
        (range(4, 8), [late_at(rank) for rank in range(4, 8)], (6,), []),
    ],
    ids=[
        "both", "records of some are cut", "one rank", "no guests", "not each time", "others are later",
        "one is last among them", "one is held down",
    ],
)  # fmt: skip
@pytest.mark.first(1)
def test_guests_and_ranks_that_always_come_last_name_a_host_together(
    shared: Iterable[int], late: list[Lateness], held_down: Iterable[int], ranks: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """Without times inside calls what a rank works longer is not seen."""
    signs = dict(guests(shared).signs)
    for rank in held_down:
        signs[rank] = (*signs[rank], Sign(Oddity.THROTTLED, "held down", "smi.xml", 2.0))
    with case_of(simulate(JOB, [], 3, iterations=6), tmp_path, timing=False) as connection:
        given: dict[object, object] = {Hardware: Hardware(signs), Latenesses: Latenesses(tuple(late))}
        assert [each.ranks for each in supply_of(connection, instead=given).get(GuestHosts)] == ranks
