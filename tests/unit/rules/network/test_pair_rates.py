"""Rates of queue pairs against those of the same use: how far sound ones differ says which of them stands out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from duckdb import DuckDBPyConnection, connect

from forensics.rules.reductions.network.pair_rates import PairRate, pair_rates

GB = 1e9


@pytest.fixture
def connection() -> Iterator[DuckDBPyConnection]:
    with connect() as made:
        made.execute("CREATE TABLE sources (source_id BIGINT, path VARCHAR)")
        made.execute(
            "CREATE TABLE queue_pairs (source_id BIGINT, rank INTEGER, queue_pair VARCHAR, nic VARCHAR, port INTEGER, "
            "gid VARCHAR, number BIGINT, remote_nic VARCHAR, remote_queue_pair VARCHAR)"
        )
        made.execute(
            "CREATE TABLE wr_samples (source_id BIGINT, locator BIGINT, rank INTEGER, queue_pair VARCHAR, time_ns BIGINT, "
            "completed BIGINT, completed_bytes BIGINT, busy_ns BIGINT, error_status INTEGER)"
        )
        yield made


def served(connection: DuckDBPyConnection, rates: list[float]) -> None:
    """One queue pair of each rank, which moved 1 GB at its rate (GB/s)."""
    for rank, rate in enumerate(rates):
        busy = round(1e9 / rate)
        connection.execute("INSERT INTO sources VALUES (?, ?)", [rank, f"{rank}.frx"])
        connection.execute("INSERT INTO queue_pairs VALUES (?, ?, 'q', 'n', 1, ?, 1, NULL, NULL)", [rank, rank, str(rank)])
        for locator, (moved, spent) in enumerate(((0, 0), (10**9, busy))):
            requests = 1000 * locator
            row = [rank, locator, rank, "q", locator * 10**10, requests, moved, spent, None]
            connection.execute(f"INSERT INTO wr_samples VALUES ({', '.join('?' * len(row))})", row)


@pytest.mark.parametrize(
    ("others", "stands_out"),
    [
        ([6.3, 6.4, 6.5, 6.6, 6.6, 6.7, 6.8, 6.9], True),
        ([3.8, 4.9, 5.6, 6.2, 6.6, 7.2, 8.7, 10.2, 10.7], False),
        ([3.8, 6.6, 9.8], True),
        ([1.0, 6.4, 6.5, 6.6, 6.6, 6.7, 6.8, 6.9], True),
    ],
    ids=["alike", "as slow by themselves", "too few to know", "another slow one"],
)
def test_half_of_the_rate_stands_out_where_others_differ_by_less(
    connection: DuckDBPyConnection, others: list[float], stands_out: bool
) -> None:
    served(connection, [3.38, *others])
    found = pair_rates(connection, range(len(others) + 1))
    assert found[0].slowdown == pytest.approx(6.6 / 3.38, rel=0.02)
    assert found[0].stands_out is stands_out
    assert found[0].rate == pytest.approx(3.38 * GB, rel=0.01)


@pytest.mark.parametrize(("rate", "peers", "is_far"), [(1.83, 6, True), (1.83, 63, False), (0.96, 63, True)])
def test_the_slowest_of_many_pairs_is_further_from_the_others_by_chance(rate: float, peers: int, *, is_far: bool) -> None:
    pair = PairRate(0, 1, "q", "mlx5_0", 1, 600, rate * GB, 5.78 * GB, peers, 0.0, 0.2, "shim", spread=0.54)
    assert pair.stands_out is is_far
