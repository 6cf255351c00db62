"""FX177 by the past of the same logs, on samples of queue pairs that are made up: when all of a network has become slower."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import duckdb
import pytest

from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.network.fallen_rates import FallenRates, fallen_rates
from forensics.rules.reductions.network.line_uses import LineUse, LineUses
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.ranks.shim_logs import ShimLog, ShimLogs
from forensics.rules.slow.network_slow import RULE
from tests.recordings.scenarios import recorded

S, GB = 1_000_000_000, 10**9
HOSTS = 6
"""Of the job whose evidence stands beside."""
RING = ((0, 1), (1, 2), (2, 3), (3, 0))
TABLES = """
CREATE TABLE sources (source_id BIGINT, path VARCHAR, host VARCHAR);
CREATE TABLE queue_pairs (source_id BIGINT, queue_pair VARCHAR, host VARCHAR, nic VARCHAR, direction VARCHAR, gid VARCHAR,
    number BIGINT, remote_nic VARCHAR, remote_queue_pair VARCHAR);
CREATE TABLE wr_samples (source_id BIGINT, locator BIGINT, time_ns BIGINT, rank INTEGER, queue_pair VARCHAR, completed BIGINT,
    completed_bytes BIGINT, busy_ns BIGINT, error_status INTEGER);
"""


def read(kept: Sequence[float], request: Sequence[int] = (1 << 20, 1 << 20), beside: int = 0) -> FallenRates:
    """Rings of four ranks on as many hosts, of two queue pairs each: from half of 16 s on each keeps a part of 10 GB/s.

    A request moves so many bytes before and after; `beside` more queue pairs of each NIC have work after that only.
    """
    with duckdb.connect() as opened:
        opened.execute(TABLES)
        for here, there in RING:
            opened.execute(
                "INSERT INTO sources VALUES ($at, $path, $host)", {"at": here, "path": f"{here}.frx", "host": f"n{here}"}
            )
            for pair in range(2 + beside):
                name = f"{here}/{pair}"
                ends = {"here": here, "there": there, "name": name, "n": 100 * here + pair}
                opened.execute(
                    "INSERT INTO queue_pairs VALUES ($here, $name, concat('n', $here), 'm0', 'send', $here, $n, $there, $n), "
                    "($there, $name, concat('n', $there), 'm0', 'recv', $there, $n, $here, $n)", ends,
                )  # fmt: skip
                done = moved = busy = 0.0
                for second in range(17):
                    late = second > 8
                    if second and (late or pair < 2):
                        rate = 10e9 * (kept[here] if late else 1.0)
                        moved, busy, done = moved + rate / 2, busy + S / 2, done + rate / 2 / request[late]
                    row = [here, second, second * S, here, name, int(done), int(moved), int(busy)]
                    opened.execute("INSERT INTO wr_samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)", row)
        return fallen_rates(opened, ShimLogs({at: cast(ShimLog, SimpleNamespace(source_id=at)) for at in range(4)}))


def test_each_way_is_held_against_its_own_past() -> None:
    found = read([0.5, 0.4, 0.5, 0.5])
    assert found.ways == pytest.approx({("n0", "n1"): 0.5, ("n1", "n2"): 0.4, ("n2", "n3"): 0.5, ("n3", "n0"): 0.5}, rel=0.05)
    assert (found.pairs, found.apart()) == (8, 2) and found.ago_ns == pytest.approx(8e9, abs=1e9)
    assert found.before == pytest.approx(10 * GB, rel=0.05) and found.after == pytest.approx(5 * GB, rel=0.05)


def test_requests_that_became_others_tell_nothing() -> None:
    assert not read([0.5] * 4, request=(1 << 20, 1 << 18))
    assert not read([0.5] * 4, request=(1 << 14, 1 << 14)), "small ones are latency"


def test_what_is_shared_among_more_queue_pairs_leaves_the_nic_as_it_was() -> None:
    """A second collective that runs beside the first one from then on halves the rate of each queue pair."""
    found = read([0.5] * 4, beside=2)
    assert found.most == pytest.approx(0.5, rel=0.05) and found.of_nics == pytest.approx(1.0, rel=0.05)


def named(fallen: FallenRates, busy: float = 0.4) -> bool:
    """Whether the network is, where lines tell nothing; ways are numbers of hosts."""
    case = recorded("network-slow")
    hosts = [host for (host,) in case.execute("SELECT DISTINCT host FROM devices WHERE kind = 'port' ORDER BY host").fetchall()]
    assert len(hosts) == HOSTS
    own = {f"n{at}": host for at, host in enumerate(hosts)}
    ways = {(own[a], own[b] if b else None): kept for (a, b), kept in fallen.ways.items()}
    uses = LineUses(tuple(LineUse(host, "m", (at,), 14e9, busy, 25e9, "x", ()) for at, host in enumerate(hosts)))
    known = FallenRates(ways, fallen.ago_ns, fallen.pairs, fallen.before, fallen.after, fallen.of_nics, "x")
    found, _ = run(supply_of(case, instead={LineUses: uses, FallenRates: known}), [RULE], {})
    return bool(found)


def ring(kept: Sequence[float], of_nics: float = 0.5) -> FallenRates:
    ways: dict[tuple[str, str | None], float] = {
        (f"n{at}", f"n{(at + 1) % HOSTS}"): kept[at % len(kept)] for at in range(HOSTS)
    }
    return FallenRates(ways, 8 * S, 32, 10e9, 5e9, of_nics)


@pytest.mark.parametrize(
    ("fallen", "busy", "is_named"),
    [
        (ring([0.5, 0.45, 0.55, 0.5]), 0.4, True),
        (ring([0.5, 1.0, 1.0, 0.5]), 0.4, False),
        (ring([0.9, 0.95, 0.9, 1.0], of_nics=0.95), 0.4, False),
        (ring([0.5] * 4, of_nics=1.0), 0.4, False),
        (ring([0.5] * 4), 0.05, False),
        (FallenRates({("n0", f"n{at}"): 0.5 for at in range(1, HOSTS)}, 8 * S, 32, 10e9, 5e9, 0.5), 0.4, False),
        (FallenRates({}), 0.4, False),
    ],
    ids=["all fell", "one host", "as ever", "shared with more", "little to do", "all with one host", "no past"],
)
def test_only_where_every_way_and_the_nics_fell_the_network_is_named(fallen: FallenRates, busy: float, is_named: bool) -> None:
    """Between four and seven tenths of the line nothing is shown by lines; what a way kept of its past tells it."""
    assert named(fallen, busy) is is_named


@pytest.mark.parametrize(("hosts", "seen", "is_named"), [(8, 6, True), (8, 4, False), (14, 6, False)])
def test_ways_of_most_hosts_are_enough_where_three_pairs_fell(hosts: int, seen: int, is_named: bool) -> None:
    """Of the other hosts no log is left: two of these may be slow, and not a third pair because of them."""
    ways: dict[tuple[str, str | None], float] = {(f"n{at}", f"n{(at + 1) % seen}"): 0.5 for at in range(seen)}
    roster = Roster({rank: RankFacts(rank, host=f"n{rank}") for rank in range(hosts)}, hosts)
    uses = LineUses(tuple(LineUse(f"n{at}", "m", (at,), 14e9, 0.4, 25e9, "x", ()) for at in range(seen)))
    given: dict[object, object] = {
        LineUses: uses,
        Roster: roster,
        FallenRates: FallenRates(ways, 8 * S, 32, 10e9, 5e9, 0.5, "x"),
    }
    found, _ = run(supply_of(recorded("network-slow"), instead=given), [RULE], {})
    assert bool(found) is is_named
