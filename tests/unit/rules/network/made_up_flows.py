"""Rows of `ended_flows` whose times are made up from waits: the table that the reductions of slow jobs read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
from duckdb import DuckDBPyConnection

_COLUMNS = """
source_id BIGINT, locator BIGINT, communicator VARCHAR, rank INTEGER, other INTEGER, position INTEGER, peer INTEGER,
size INTEGER, channel INTEGER, sends BOOLEAN, kind VARCHAR, number BIGINT, total BIGINT, bytes BIGINT, start_ns BIGINT,
end_ns BIGINT, took_ns BIGINT, buffers BIGINT, gpu_ns DOUBLE, credit_ns DOUBLE, nic_ns DOUBLE, wire_ns DOUBLE,
consume_ns DOUBLE, group_call BIGINT
"""
STEP_NS = 100_000_000
MS = 1_000_000

Waits = Callable[[int, int, int], tuple[float, float, float, float, float]]
"""Of sender, receiver and step: ms for the sender's GPU, credit, NIC, then the wire and the receiver's GPU."""


@contextmanager
def flows_of(ranks: int) -> Iterator[DuckDBPyConnection]:
    """A connection with an empty `ended_flows` and one log for each rank."""
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE sources (source_id BIGINT, rank INTEGER, path VARCHAR, kind VARCHAR)")
        opened.execute(f"INSERT INTO sources SELECT n, n, n || '.frx', 'shim_log' FROM range({ranks}) r(n)")
        opened.execute(f"CREATE TEMP TABLE ended_flows ({_COLUMNS})")
        yield opened


def ring(connection: DuckDBPyConnection, ranks: int, steps: int, waits: Waits, skew_ns: int = 0) -> None:
    """Flows of one ring, one channel, an operation every 100 ms; the clock of rank n is n `skew_ns` ahead."""
    rows: list[tuple[object, ...]] = []
    for step in range(steps):
        for sender in range(ranks):
            receiver = (sender + 1) % ranks
            gpu, credit, nic, wire, consume = (each * MS for each in waits(sender, receiver, step))
            end, took = step * STEP_NS, int(gpu + credit + nic)
            for rank, other, sends in ((sender, receiver, True), (receiver, sender, False)):
                own = (gpu, credit, nic, None, None) if sends else (None, None, None, wire, consume)
                when = (end + rank * skew_ns - took, end + rank * skew_ns, took, 8)
                place = (rank, step + 1000 * sends, "ring", rank, other, rank, other, ranks, 0, sends, "all_reduce")
                rows.append((*place, step + 1, 16, 1 << 20, *when, *own))
    add(connection, rows)


def exchange(
    connection: DuckDBPyConnection, number: int, begins_ms: Sequence[float], unready_ms: Sequence[float],
    volumes: Callable[[int, int], float], skew_ns: int = 0,
) -> None:  # fmt: skip
    """One exchange: when the host of each member calls, how long after that its GPU is there, ms that each message takes."""
    rows: list[tuple[object, ...]] = []
    members = range(len(begins_ms))
    for sender, receiver in ((a, b) for a in members for b in members if a != b):
        takes, there = volumes(sender, receiver), begins_ms[sender] + unready_ms[sender]
        end = max(there, begins_ms[receiver] + unready_ms[receiver]) + takes
        for rank, other, sends in ((sender, receiver, True), (receiver, sender, False)):
            took, at = int((end - begins_ms[rank]) * MS), number * STEP_NS + int(end * MS) + rank * skew_ns
            waits = (
                (unready_ms[rank] * MS, (took - takes * MS - unready_ms[rank] * MS), takes * MS, None, None)
                if sends
                else (None, None, None, (max(there - begins_ms[rank], 0.0) + takes) * MS, unready_ms[rank] * MS)
            )
            place = (rank, number * 1000 + other * 2 + sends, "ep", rank, other, rank, other, len(begins_ms), 0, sends)
            rows.append((*place, "all_to_all", number, 16, int(takes * (1 << 20)), at - took, at, took, 8, *waits, number))
    add(connection, rows)


def message(
    connection: DuckDBPyConnection, sender: int, receiver: int, number: int, sent_ns: int, places: tuple[int, int],
    waited: tuple[float, float] = (0.0, STEP_NS),
) -> None:  # fmt: skip
    """One message, which ends for both at the same time; `waited` are ns of its ends for credit and for what is sent."""
    shared = (number, 16, 1 << 20, sent_ns - MS, sent_ns, MS, 8)
    label = f"pipe {min(sender, receiver)}"
    one = (
        sender,
        5000 + number,
        label,
        sender,
        receiver,
        *places,
        2,
        0,
        True,
        "p2p",
        *shared,
        0.0,
        waited[0],
        1000.0,
        None,
        None,
    )
    two = (
        receiver,
        7000 + number,
        label,
        receiver,
        sender,
        *places[::-1],
        2,
        0,
        False,
        "p2p",
        *shared,
        None,
        None,
        None,
        waited[1],
        0.0,
    )
    add(connection, [one, two])


def add(connection: DuckDBPyConnection, rows: list[tuple[object, ...]]) -> None:
    """Rows in one statement: one by one they take seconds. Columns that they end before are null."""
    names = ", ".join(column.split()[0] for column in _COLUMNS.split(",")[: len(rows[0])])
    values = ", ".join("(" + ", ".join(_literal(each) for each in row) + ")" for row in rows)
    connection.execute(f"INSERT INTO ended_flows ({names}) VALUES {values}")


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)
