"""The timeline of a verdict dates what came first and what was seen last, however many calls somebody waits in."""

from __future__ import annotations

from forensics.case.database import new_case
from forensics.rules.context import timeline
from forensics.rules.reductions.calls.positions import Operation
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.waits.graph import Wait, WaitGraph

ROSTER = Roster({rank: RankFacts(rank, host=f"n{rank}") for rank in range(16)}, 16)


def call(rank: int, at_ns: int | None) -> Operation:
    return Operation("all_reduce", "", at_ns, None, f"rank{rank}#entry=1")


def texts(*waits: Wait) -> list[str]:
    connection = new_case()
    connection.execute(
        "INSERT INTO coverage (scope, kind, status, begin_ns, end_ns) VALUES ('host', 'stacks', 'ok', 5000, 9000)"
    )
    return [entry.text for entry in timeline(connection, WaitGraph(waits, (), {}), ROSTER)]


def test_both_ends_of_a_wait_are_dated() -> None:
    assert texts(Wait("a", 7, {0: call(0, 20), 1: call(1, 10)}, (2,))) == [
        "rank 1 is the first to wait in all_reduce 7 of a",
        "rank 0 is the last to join all_reduce 7 of a",
        "the collection began",
        "the collection ended",
    ]


def test_of_many_waits_the_first_three_are_dated_and_the_others_counted() -> None:
    waits = [Wait(f"g{rank}", 7, {rank: call(rank, 1000 - rank)}, ()) for rank in range(16)]
    *first, further, began, ended = texts(*waits)
    assert first == [f"rank {rank} is the first to wait in all_reduce 7 of g{rank}" for rank in (15, 14, 13)]
    assert further == "ranks wait in 13 further calls by now, rank 0 in the last of them"
    assert (began, ended) == ("the collection began", "the collection ended")


def test_a_wait_without_a_time_is_in_no_count() -> None:
    waits = [Wait(f"g{rank}", 7, {rank: call(rank, 1000 + rank if rank < 3 else None)}, ()) for rank in range(9)]
    assert not any("further" in text for text in texts(*waits))
