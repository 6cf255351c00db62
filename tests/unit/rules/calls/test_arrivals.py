"""Which calls of a communicator are held against each other as calls of one kind."""

from __future__ import annotations

import pytest

from forensics.case.database import Connection, insert_rows, new_case
from forensics.rules.reductions.arrivals.arrivals import arrivals
from forensics.rules.reductions.arrivals.lateness import of_series

MS = 1_000_000
CALLS = 80
_COLUMNS = (
    "source_id locator snapshot rank communicator backend record_id kind input_sizes sequence state enqueued_ns duration_ns "
    "device_end_ns"
)


def case(kind: str, sizes: tuple[str, ...]) -> Connection:
    """Two ranks of one group; the sizes of their calls go round, and rank 1 comes 3 ms late to each of them."""
    connection = new_case()
    insert_rows(connection, "members", "communicator position rank", [("tp", rank, rank) for rank in range(2)])
    insert_rows(
        connection, "sources", "source_id path kind status rows", [(rank, f"{rank}", "x", "ok", 9) for rank in range(2)]
    )
    rows: list[tuple[object, ...]] = []
    for number in range(CALLS):
        for rank in range(2):
            place = (rank, number, 0, rank, "tp", "nccl", number, kind, sizes[number % len(sizes)], number, "done")
            rows.append((*place, number * 10 * MS, (4 - 3 * rank) * MS, (number * 10 + 4) * MS))
    insert_rows(connection, "operations", _COLUMNS, rows)
    return connection


@pytest.mark.parametrize(
    ("kind", "sizes", "count"),
    [
        ("all_reduce", ("[[1024, 1, 64]]", "[[2048, 1, 64]]", "[[512, 1, 64]]", "[[96, 1, 64]]"), 1),
        ("all_reduce", ("[[1024, 1, 64]]", "[[1024, 1, 1]]"), 2),
        ("all_reduce", ("[[1024]]", "[[2048]]"), 2),
        ("all_to_all", ("[[1024, 64]]", "[[2048, 64]]"), 2),
    ],
    ids=["tokens", "width", "parameters", "what each member gets"],
)
def test_activations_of_more_or_fewer_tokens_are_of_one_kind(kind: str, sizes: tuple[str, ...], count: int) -> None:
    found = list(arrivals(case(kind, sizes)))
    assert len(found) == count and sum(len(each) for each in found) == CALLS
    if count == 1:
        # Calls 10 ms apart: of each size alone they are 40 ms apart, of which 3 ms are less than a tenth.
        (late,) = of_series(found).found
        assert (late.rank, late.late, late.calls) == (1, CALLS - CALLS // 4, CALLS - CALLS // 4)
