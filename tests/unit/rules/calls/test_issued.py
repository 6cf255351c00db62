"""Pauses between calls, known from columns: held against windows over the rows, and against misleading evidence."""

from __future__ import annotations

import random
from itertools import product

import pytest
from duckdb import DuckDBPyConnection

from forensics.case.database import insert_rows, new_case
from forensics.rules.reductions.calls.issued import Issued, issued
from forensics.rules.reductions.calls.shim_calls import calls
from forensics.rules.reductions.progress.stays import Place, seldom_stays

Row = tuple[object, ...]
COLUMNS = "source_id locator rank snapshot communicator kind call_path enqueued_ns is_p2p state"
PAUSES = """
WITH pauses AS (
    SELECT rank, communicator, enqueued_ns - lag(enqueued_ns) OVER (PARTITION BY rank ORDER BY enqueued_ns) AS any_pause,
           enqueued_ns - lag(enqueued_ns) OVER (PARTITION BY rank, communicator ORDER BY enqueued_ns) AS own_pause
    FROM latest_call WHERE enqueued_ns IS NOT NULL
)
"""
OF_RANKS = f"{PAUSES} SELECT rank, (max(any_pause, 2) FILTER (any_pause > 0))[2] FROM pauses GROUP BY rank"
WITHIN = f"""{PAUSES}, own AS (
    SELECT communicator, max(own_pause, 2) AS two FROM pauses WHERE own_pause > 0 GROUP BY rank, communicator
)
SELECT communicator, max(two[2]) FROM own WHERE communicator IS NOT NULL GROUP BY communicator
"""
STAYS = """
SELECT rank, communicator, kind, call_path, max(stay) FROM (
    SELECT *, lead(enqueued_ns) OVER (PARTITION BY rank ORDER BY enqueued_ns) - enqueued_ns AS stay
    FROM latest_call WHERE enqueued_ns IS NOT NULL AND communicator IS NOT NULL AND NOT coalesce(is_p2p, false)
) WHERE stay IS NOT NULL GROUP BY ALL HAVING count(*) <= 2
"""


def case(rows: list[Row]) -> DuckDBPyConnection:
    connection = new_case()
    insert_rows(connection, "operations", COLUMNS, [(*row, "done") for row in rows])
    return connection


def read(rows: list[Row]) -> Issued:
    return issued(calls(case(rows)))


def ring(source_id: int, rank: int, draw: random.Random) -> list[Row]:
    """Calls of one rank, no two at one time, some of them undated, of no communicator, messages, or of no call path."""
    times = draw.sample(range(1, 10_000), 40)
    return [
        (source_id, at, rank, 0, draw.choice(("a", "b", None)), draw.choice(("all_reduce", "barrier")),
         draw.choice((7, 8, 9, None)), draw.choice((when, when, when, None)), draw.choice((True, False, None)))
        for at, when in enumerate(times)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_sorted", [True, False], ids=["in order", "in any order"])
def test_as_windows_over_the_rows_say(seed: int, is_sorted: bool) -> None:
    """Files come by path, so that rank 10 stands before rank 2; a log may be written by several threads."""
    draw = random.Random(seed)
    rows = [row for source_id, rank in enumerate((0, 10, 2), start=1) for row in ring(source_id, rank, draw)]
    if is_sorted:
        rows.sort(key=lambda row: (row[0], row[7] or 0))
    connection = case(rows)
    found = issued(calls(connection))
    assert found.recurring_pauses() == {rank: ns for rank, ns in connection.execute(OF_RANKS).fetchall() if ns}
    assert found.recurring_pauses_within() == {name: ns for name, ns in connection.execute(WITHIN).fetchall() if ns}
    longest = {Place(*place): stay for *place, stay in connection.execute(STAYS).fetchall()}
    paths, places = (7, 8, 9, None), product((0, 2, 10, 11), ("a", "b", "c"), ("all_reduce", "barrier", "send"))
    asked = [Place(*place, path) for place in places for path in paths]
    assert seldom_stays(found, asked) == longest
    newest = "SELECT {0}, max(enqueued_ns) FROM operations WHERE enqueued_ns IS NOT NULL GROUP BY {0}"
    assert found.newest() == dict(connection.execute(newest.format("rank")).fetchall())
    assert found.newest_of_sources() == dict(connection.execute(newest.format("source_id")).fetchall())


def test_one_long_pause_is_none_that_recurs() -> None:
    """Of two equally long ones either is the second longest; the pause of one rank is none of another's."""
    times = {0: (1, 2, 3, 1000), 1: (5000, 6000, 7000), 2: (9,)}
    rows: list[Row] = [(r, at, r, 0, "a", "barrier", 1, ns, False) for r in times for at, ns in enumerate(times[r])]
    found = read(rows)
    assert found.recurring_pauses() == {0: 1, 1: 1000}
    assert found.recurring_pauses_within() == {"a": 1000}


def test_nothing_dated() -> None:
    assert not read([]).recurring_pauses()
    undated = read([(1, 0, 0, 0, None, "barrier", None, None, None)])
    assert (undated.newest(), undated.recurring_pauses(), undated.recurring_pauses_within()) == ({}, {}, {})
    assert not seldom_stays(undated, [Place(0, "a", "barrier", None)])
