"""Messages that take long once both ends are there, made up, and which of them say something of their ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forensics.case.database import Connection
from forensics.rules.engine import supply_of
from forensics.rules.reductions.network.long_calls import LongCalls
from tests.recordings.grouped_calls import case_of_dumps

MS = 1_000_000
STEPS, LONG = 20, (6, 10, 15)
GROUPS = {"pp": (0, 1), "dp": (1, 2), "far": (2, 3), "all": (0, 1, 2, 3)}
_COLUMNS = (
    "source_id locator snapshot rank communicator backend record_id kind is_p2p peer count sequence state "
    "enqueued_ns duration_ns device_end_ns group_call"
)


def case(took: int, reduces: int, *, late: int | None = None, cut: int = 0, batched: bool = False) -> Connection:
    """Rank 1 sends to rank 0, and rank 2 to rank 3; in long steps the first takes `took` ms. Reductions take `reduces` ms.

    Where one is `late`, only the other is in it for long. `cut` steps are missing at the begin of the record of rank 0.
    Where they are `batched`, rank 1 sends in one group call with what it receives from rank 2.
    """
    rows = (row for rank in range(4) for row in _rows(rank, took, reduces, late, 0 if rank else cut, batched))
    return case_of_dumps(GROUPS, _COLUMNS, rows)


def _rows(rank: int, took: int, reduces: int, late: int | None, cut: int, batched: bool) -> Iterator[tuple[object, ...]]:
    for step in range(cut, STEPS):
        begin = (step * 2500 + took * sum(each < step for each in LONG)) * MS
        sends = took if step in LONG and rank < 2 and rank != late else 3
        group, peer = ("all" if batched else "pp", 1 - rank) if rank < 2 else ("far", 3 - rank)
        kind = "send" if rank in (1, 2) else "recv"
        calls: list[tuple[str, str, bool, int | None, int, int, int]]
        calls = [(group, kind, True, peer if rank < 2 else int(rank == 2), 20, 400, sends)]
        calls += [("dp", "all_reduce", False, None, 10, 0, reduces)] if rank in (1, 2) else []
        calls += (
            [("all", "recv" if rank == 1 else "send", True, 3 - rank, 40, 401, sends)] if batched and rank in (1, 2) else []
        )
        calls += [("all", "all_reduce", False, None, 30, 450 + took * (step in LONG), 10)]
        for at, (name, what, is_p2p, other, count, after, inside) in enumerate(sorted(calls, key=lambda each: each[5])):
            number, issued = step * 4 + at, begin + after * MS
            group_call = step if batched and rank == 1 and is_p2p else None
            place = (rank, number, 0, rank, name, "nccl", 100 + number, what, is_p2p, other, count, 100 + step - cut * is_p2p)
            yield (*place, "done", issued, inside * MS, issued + inside * MS, group_call)


@pytest.mark.parametrize("cut", [0, 3], ids=["whole", "a record that was cut"])
def test_messages_that_took_long_with_both_ends_there(cut: int) -> None:
    found = supply_of(case(1000, 100, cut=cut), None).get(LongCalls)
    assert found.link == (0, 1) and [round(each.took_ns / 1e6) for each in found.found] == [1000] * 3
    assert found.found[0].source == "1.json#entry=25"


@pytest.mark.parametrize("late", [0, 1], ids=["who receives", "who sends"])
def test_an_end_that_comes_late_makes_no_message_long(late: int) -> None:
    assert not supply_of(case(1000, 100, late=late), None).get(LongCalls).found


def test_a_message_that_may_wait_for_collectives_is_not_long() -> None:
    """What a neighbour reduces is on the same NIC."""
    assert not supply_of(case(1000, 390), None).get(LongCalls).found


def test_of_messages_that_one_group_call_issued_none_has_a_time_of_its_own() -> None:
    assert not supply_of(case(1000, 100, batched=True), None).get(LongCalls).found
