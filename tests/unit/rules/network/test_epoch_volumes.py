"""Which calls the operators on a link are, by their volumes (Pulse 5.1, appendix B): captures and calls made up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.case.build import open_case
from forensics.fixtures.simulator.ring import ring_plan
from forensics.rules.engine import supply_of
from forensics.rules.reductions.epochs.volumes import LinkCalls, volumes
from tests.recordings.nic_captures import Ring, captures, write

RING = Ring(operators=6)
LINKS = [(0, 2), (2, 4), (4, 6), (6, 0)]
OURS, OTHERS = (0, 2, 4, 6), (1, 3, 5, 7)
MOVED = RING.slices * (2 << 20)
"""Bytes that each operator moves over a link of the ring of ranks 0, 2, 4 and 6."""
PARTS = {"all_reduce": 2 / 3, "reduce_scatter": 4 / 3, "all_gather": 1 / 3}
"""What each of four gives of a call that moves one byte over each link."""


def stated(folder: Path, calls: Sequence[tuple[str, float]], members: Sequence[int] = OURS) -> LinkCalls:
    """By calls of one group of four ranks: kind, and bytes that it would move over a link."""
    connection = open_case([write(folder, captures(RING))])
    rows = [("dp", place, rank) for place, rank in enumerate(members)]
    connection.executemany("INSERT INTO members (communicator, position, rank) VALUES (?, ?, ?)", rows)
    columns = "source_id, locator, snapshot, rank, communicator, sequence, kind, is_p2p, bytes, state"
    made = [
        (1, 1000 * number + sequence, 0, rank, "dp", sequence, kind, False, round(moved * PARTS[kind]), "done")
        for number, (kind, moved) in enumerate(calls)
        for rank in members
        for sequence in range(5)
    ]
    connection.executemany(f"INSERT INTO operations ({columns}) VALUES ({', '.join('?' * 10)})", made)
    return supply_of(connection).get(LinkCalls)


@pytest.mark.parametrize("kind", list(PARTS))
def test_the_call_that_moves_as_much_is_named(kind: str, tmp_path: Path) -> None:
    found = stated(tmp_path, [(kind, MOVED / 1.015), ("all_reduce", 3 * MOVED)])
    assert (found.stage(LINKS).operation, found.stage(LINKS).communicator) == (kind, "dp")
    (said,) = found.evidence(LINKS)
    assert f"{kind} of dp" in said.statement and "in ring order, as the peers of each NIC show," in said.statement


def test_an_order_that_the_peers_do_not_show_fits_no_call(tmp_path: Path) -> None:
    """An all_reduce of what was moved would fit in tree order, and each NIC sends to one peer and gets from another."""
    assert not stated(tmp_path, [("all_reduce", 1.5 * MOVED / 1.015)]).of(LINKS)


def test_two_kinds_that_move_the_same_leave_the_operation_open(tmp_path: Path) -> None:
    found = stated(tmp_path, [("reduce_scatter", MOVED), ("all_gather", MOVED)])
    assert (found.stage(LINKS).operation, found.stage(LINKS).communicator) == (None, "dp")


@pytest.mark.parametrize(
    ("kind", "moved", "members"),
    [("all_reduce", 1.02, OURS), ("all_reduce", 0.8, OURS), ("all_reduce", 1.0, OTHERS[:2])],
    ids=["more than was moved", "much less", "another group"],
)
def test_nothing_is_said_where_no_call_fits(kind: str, moved: float, members: tuple[int, ...], tmp_path: Path) -> None:
    found = stated(tmp_path, [(kind, moved * MOVED)], members)
    assert (found.stage(LINKS).operation, found.stage(LINKS).communicator, found.evidence(LINKS)) == (None, None, ())


@given(st.integers(2, 64), st.integers(1, 4), st.integers(1, 1 << 34))
def test_ring_order_moves_what_its_slices_are(members: int, channels: int, size: int) -> None:
    """The simulator cuts a collective into slices on its own account."""
    moved = float(ring_plan("all_reduce", size, members, channels).sizes.sum()) * channels
    ring = dict(volumes("all_reduce", size, members))["ring"]
    assert ring - 1 <= moved <= ring + 4.0 * channels * members * members
