"""Dumps and shim logs of one communicator: when the numbers of both are the same, and when nothing proves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from forensics.case.database import Connection, new_case
from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator, Position
from forensics.rules.reductions.waits.same_communicator import unified

Calls = Iterable[tuple[int, str, int]]
"""Number, kind and elements."""

SAME = [(n, "all_reduce", 100 + n % 3) for n in range(1, 10)]


def case(dumped: Calls, logged: Calls) -> Connection:
    """Calls of rank 0 in a dump, as group `0`, and of rank 1 in a shim log, as `nccl:a`."""
    connection = new_case()
    rows = [(1, 0, 0, "0", *call) for call in dumped] + [(2, None, 1, "nccl:a", *call) for call in logged]
    for locator, (source, snapshot, rank, label, number, kind, count) in enumerate(rows):
        connection.execute(
            "INSERT INTO operations (source_id, locator, snapshot, rank, communicator, sequence, kind, count, is_p2p, state) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, false, 'done')",
            [source, locator, snapshot, rank, label, number, kind, count],
        )
    connection.execute(
        "INSERT INTO logged_calls SELECT source_id, locator, sequence, locator, state FROM operations WHERE snapshot IS NULL"
    )
    return connection


def group(label: str, rank: int, entered: int, family: Family, pending: int | None = None) -> Communicator:
    place = Position(rank, entered, 0 if pending is None else pending - 1, pending, None, family, f"{family}#1")
    return Communicator(label, (0, 1), "read", {rank: place}, "nccl")


def merged(dumped: Calls, logged: Calls, entered: int = 9) -> Communicator:
    groups = (group("0", 0, 9, Family.RECORDER, pending=9), group("nccl:a", 1, entered, Family.SHIM))
    return unified(case(dumped, logged), groups)[0]


def test_calls_that_fit_in_one_way_only_prove_the_numbers() -> None:
    found = merged(SAME[3:], SAME[4:8], entered=8)
    assert found.positions[1].entered == 8 and found.positions[1].pending is None
    assert found.positions[1].family is Family.SHIM


def test_a_logged_rank_that_made_the_call_waits_in_it() -> None:
    assert merged(SAME, SAME).positions[1].pending == 9


@pytest.mark.parametrize(
    ("dumped", "logged"),
    [
        (SAME, [(n, "all_reduce", 100 + (n + 1) % 3) for n in range(1, 10)]),
        ([(n, "all_reduce", 100) for n in range(4, 10)], [(n, "all_reduce", 100) for n in range(5, 10)]),
        (SAME, [(n, "broadcast", 100 + n % 3) for n in range(1, 10)]),
        ([(n, "all_to_all", 100) for n in range(1, 10)], [(n, "all_to_all", 100) for n in range(1, 10)]),
        (SAME[:3], SAME[5:]),
    ],
    ids=["shifted", "all alike and begun before", "another kind", "several calls of NCCL each", "no number in common"],
)
def test_numbers_that_nothing_proves_stay_apart(dumped: Calls, logged: Calls) -> None:
    assert 1 not in merged(dumped, logged).positions


def test_calls_that_are_all_alike_fit_from_the_first_one_on() -> None:
    alike = [(n, "all_reduce", 100) for n in range(1, 10)]
    assert 1 in merged(alike, alike).positions


def test_a_gather_of_torch_under_its_own_name_is_one_of_nccl() -> None:
    torch = [(n, "_all_gather_base", 7 * n) for n in range(3, 8)]
    assert 1 in merged(torch, [(n, "all_gather", 7 * n) for n in range(3, 8)]).positions


def test_two_communicators_with_the_same_members_are_not_distinguished() -> None:
    groups = (group("0", 0, 9, Family.RECORDER), group("1", 0, 9, Family.RECORDER), group("nccl:a", 1, 9, Family.SHIM))
    assert all(1 not in found.positions for found in unified(case(SAME, SAME), groups)[:2])


def test_the_communicator_of_the_logs_speaks_of_its_collectives_no_more() -> None:
    groups = (group("0", 0, 9, Family.RECORDER, pending=9), group("nccl:a", 1, 9, Family.SHIM, pending=9))
    assert unified(case(SAME, SAME), groups)[1].pending == ()


ALIKE: Calls = [(n, "all_reduce", 100) for n in range(5, 10)]


def several(logged_ends: Sequence[int]) -> Communicator:
    """Ranks 0, 2, 3, ... have a dump that ends at 9 and a log, rank 1 only a log; all calls are alike and begun before."""
    ranks = (0, *range(2, 1 + len(logged_ends)))
    places = {rank: Position(rank, 9, 8, 9, None, Family.RECORDER, "dump") for rank in ranks}
    logs = {
        rank: Position(rank, end, end, None, None, Family.SHIM, "log") for rank, end in zip(ranks, logged_ends, strict=True)
    }
    logs[1] = Position(1, 9, 9, None, None, Family.SHIM, "log")
    members = tuple(range(1 + len(ranks)))
    groups = (Communicator("0", members, "read", places, "nccl"), Communicator("nccl:a", members, "read", logs, "nccl"))
    return unified(case(ALIKE, ALIKE), groups)[0]


def test_several_ranks_whose_dump_and_log_end_alike_prove_the_numbers() -> None:
    assert several([9, 9, 9]).positions[1].entered == 9


@pytest.mark.parametrize("ends", [[9, 9], [9, 9, 10], [10, 10, 10]])
def test_fewer_ends_or_one_that_differs_prove_nothing(ends: list[int]) -> None:
    assert 1 not in several(ends).positions
