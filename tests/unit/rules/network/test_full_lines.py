"""Ranks that share a NIC: half of the rate each where they meet, with nothing lost, and half of it because the NIC is slow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import duckdb
import pytest

from forensics.rules.reductions.network.full_lines import full_links
from forensics.rules.reductions.ranks.shim_logs import ShimLog, ShimLogs

RANKS, EPOCH_NS, MB = 12, 100_000, 1_000_000
_TABLES = (
    "sources (source_id BIGINT, path VARCHAR, host VARCHAR)",
    "captures (source_id BIGINT, capture_id BIGINT, nic VARCHAR, epoch_ns BIGINT)",
    "queue_pairs (source_id BIGINT, queue_pair VARCHAR, host VARCHAR, nic VARCHAR, direction VARCHAR, remote_nic VARCHAR,"
    " remote_queue_pair VARCHAR, gid VARCHAR, number BIGINT, rank INTEGER)",
    "nic_epochs (source_id BIGINT, capture_id BIGINT, queue_pair VARCHAR, direction VARCHAR, first_epoch BIGINT,"
    " values BIGINT[])",
)


def links(each_mb: dict[int, float], shared: bool = True, together: bool = True) -> set[tuple[int, int]]:
    """A ring of hosts with two ranks each, which have one NIC where it is `shared`; MB an epoch of a rank, 4 of the others.

    Ranks of one host send `together`, or in turn, then twice as much each.
    """
    with duckdb.connect() as opened:
        for table in _TABLES:
            opened.execute(f"CREATE TABLE {table}")
        for rank in range(RANKS):
            host, there = rank // 2, (rank + 2) % RANKS
            nic, far = (0, 0) if shared else (rank % 2, there % 2)
            opened.execute("INSERT INTO sources VALUES (?, ?, ?)", [rank, f"{rank}.frx", f"n{host}"])
            opened.execute("INSERT INTO captures VALUES (?, 0, NULL, ?)", [rank, EPOCH_NS])
            pair = [rank, "#1", None, f"m{nic}", "send", f"gid {there // 2} {far}", str(there), f"gid {host} {nic}", rank, rank]
            opened.execute(f"INSERT INTO queue_pairs VALUES ({', '.join('?' * len(pair))})", pair)
            moved = int(each_mb.get(rank, 4) * MB) * (1 if together else 2)
            first = 1000 if together else 1000 + 200 * (rank % 2)
            opened.execute("INSERT INTO nic_epochs VALUES (?, 0, '#1', 'send', ?, ?)", [rank, first, [moved] * 100])
        logs = ShimLogs({rank: cast(ShimLog, SimpleNamespace(source_id=rank)) for rank in range(RANKS)})
        return set(full_links(opened, logs))


RING = {(rank, (rank + 2) % RANKS) for rank in range(RANKS)}


@pytest.mark.parametrize("together", [True, False])
def test_two_ranks_fill_their_line_together_or_in_turn(together: bool) -> None:
    assert links({}, together=together) == RING


@pytest.mark.parametrize("together", [True, False])
def test_a_nic_at_half_of_its_rate_is_not_full(together: bool) -> None:
    assert links({2: 2, 3: 2}, together=together) == RING - {(2, 4), (3, 5)}


def test_a_nic_of_one_rank_shares_nothing() -> None:
    assert links({}, shared=False) == set()
