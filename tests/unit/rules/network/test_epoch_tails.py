"""FX181 by operators that did not end: rings and exchanges of one NIC a host, short operators, and what must not mislead it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Confidence, Members, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import supply_of
from forensics.rules.reductions.epochs.tails import LinkTails
from tests.recordings.nic_captures import Exchange, Ring, captures, exchanged, write

RING = Ring(rails=1, slices=150, quiet_ns=3e9)
MESH = Exchange(rails=1, operators=10, share=16e6, onset=10, quiet_ns=3e9)
ABSENT = {(0, 1): 0, (1, 2): 0, (2, 3): 6, (3, 0): 8}
"""Rank 1 did not begin: the others moved what its neighbours' buffers hold."""


def judged(folder: Path, files: dict[str, bytes]) -> Verdict:
    return diagnose(open_case([write(folder, files)]))


def within(*ranks: int, at: float = 9.4) -> dict[tuple[int, int], float]:
    """Links of ranks that end within an operator."""
    return {ends: at for ends in permutations(range(4), 2) if {*ranks} & {*ends}}


def test_the_rank_of_a_ring_that_did_not_begin_is_named_without_a_link_beside_it(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, captures(replace(RING, halted=ABSENT))).suspects
    assert (found.ranks, found.members, found.rules) == ((1,), Members.EACH, ("FX181",))
    assert found.mechanism is not None and found.mechanism.state == "not_started"
    assert "2 links of rank 1 ended with a whole one" in found.evidence[1].statement


def test_several_ranks_of_a_host_that_did_not_begin_are_one_of_them(tmp_path: Path) -> None:
    halted = {(a * 2 + rail, b * 2 + rail): moved for (a, b), moved in ABSENT.items() for rail in (0, 1)}
    (found,) = judged(tmp_path, captures(replace(RING, rails=2, halted=halted))).suspects
    assert (found.ranks, found.members) == ((2, 3), Members.ONE_OF)


def test_the_rank_whose_messages_are_open_is_named_within_milliseconds(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, exchanged(replace(MESH, until=within(2)))).suspects
    assert (found.ranks, found.rules) == ((2,), ("FX181",))
    assert "of 32.0 MB in each one before" in found.evidence[1].statement


@pytest.mark.parametrize(("port", "named"), [((1, "1: DOWN"), True), ((1, "4: ACTIVE"), False), ((3, "1: DOWN"), False)])
def test_a_port_that_reads_down_settles_what_traffic_leaves_open(port: tuple[int, str], named: bool, tmp_path: Path) -> None:
    """That of a rank which stopped by itself is up, and that of another rank shows nothing of it."""
    connection = open_case([write(tmp_path, captures(replace(RING, halted=ABSENT)))])
    connection.execute(
        "INSERT INTO devices (source_id, host, device, kind, parent, state) "
        "SELECT min(source_id), host, nic || '/1', 'port', nic, $2 FROM queue_pairs WHERE rank = $1 GROUP BY host, nic",
        [*port],
    )
    (found,) = diagnose(connection).suspects
    assert found.ranks == (1,)
    assert (found.cause, found.confidence) == (
        (Cause.NETWORK_DOWN, Confidence.LIKELY) if named else (Cause.UNKNOWN, Confidence.SUSPECT)
    )


@pytest.mark.parametrize(
    "ring",
    [
        replace(RING, halted={link: 40 + 2 * link[0] for link in RING.links()}),
        replace(RING, halted={(0, 1): 0, (1, 2): 2, (2, 3): 4, (3, 0): 6}),
        replace(RING, halted=ABSENT | {(2, 3): 1}),
        replace(RING, halted=ABSENT | {(2, 3): 140}),
        replace(RING, halted=ABSENT, quiet_ns=0.0),
        replace(RING, halted=ABSENT, operators=3),
    ],
    ids=["all in the operator", "one link", "less than a slice", "nearly whole", "no silence", "no past"],
)
def test_nobody_of_a_ring_is_named(ring: Ring, tmp_path: Path) -> None:
    assert judged(tmp_path, captures(ring)).suspects == ()


@pytest.mark.parametrize(
    "exchange",
    [
        replace(MESH, until=dict.fromkeys(permutations(range(4), 2), 9.4)),
        replace(MESH, until=within(2, at=9.9)),
        replace(MESH, until=within(2), onset=0, loaded={2: 2.0}),
        replace(MESH, until=within(1, 2)),
        replace(MESH, size=3, until={ends: 9.4 for ends in permutations(range(3), 2) if 2 in ends}),
    ],
    ids=["a job that was ended", "nearly whole", "the most loaded ends last", "two ranks", "three ranks"],
)
def test_nobody_of_an_exchange_is_named(exchange: Exchange, tmp_path: Path) -> None:
    assert judged(tmp_path, exchanged(exchange)).suspects == ()


def tails(folder: Path, moved: Mapping[tuple[int, int], float], size: int) -> LinkTails:
    """With calls that send messages of one size from rank 0 to rank 1, in an exchange of uneven operators before."""
    connection = open_case([write(folder, exchanged(replace(MESH, until=moved)))])
    connection.executemany(
        "INSERT INTO members (communicator, position, rank) VALUES (?, ?, ?)", [("e", rank, rank) for rank in range(4)]
    )
    columns = "source_id, locator, snapshot, rank, communicator, kind, is_p2p, peer, bytes, state"
    rows = [(1, number, 0, 0, "e", "send", True, 1, size, "done") for number in range(10)]
    connection.executemany(f"INSERT INTO operations ({columns}) VALUES ({', '.join('?' * 10)})", rows)
    return supply_of(connection).get(LinkTails)


@pytest.mark.parametrize(("part", "size", "whole"), [(1.0, 32, True), (0.5, 32, False), (0.5, 16, True), (0.75, 16, False)])
def test_messages_tell_what_a_whole_operator_moves(part: float, size: int, whole: bool, tmp_path: Path) -> None:
    """Half of an operator of two messages is a whole message: it ended."""
    found = tails(tmp_path, {(0, 1): 9 + part}, size * 1_000_000)[0, 1]
    assert (found.whole, found.by_calls) == (whole, True)
