"""Communicators of one kind stand on one line, but those that the suspect is missing from on one of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from forensics.model import GroupRow
from forensics.report import group_rows
from tests.unit.report.verdicts import DATALOADER, HANG, HEALTHY


def pair(number: int, sequence: int = 7, missing: bool = True, name: str = "{}:mesh_pp") -> GroupRow:
    members = (2 * number, 2 * number + 1)
    joined = members[:1] if missing else members
    return GroupRow(name.format(number), members, "read", sequence, "recv", "[[8]]", joined, members[1:] if missing else (), ())


def shown(rows: Iterable[GroupRow], most: int | None = 8) -> list[tuple[str, str]]:
    accused = replace(HANG, suspects=(replace(DATALOADER, ranks=(5,)),))
    return [(item.marker, item.text) for item in group_rows.items(accused, rows, most)]


def test_groups_that_wait_alike_are_one_line() -> None:
    rows = [pair(number, 70 + number) for number in (10, 11, 13)]
    words = "recv seq 80-83 [[8]]   3 groups of 2 members (read)   joined 3 [20,22,26]   missing 3 [21,23,27]"
    assert shown(rows) == [("10-11,13:mesh_pp", words)]
    assert [marker for marker, _ in shown(rows, None)] == ["10:mesh_pp", "11:mesh_pp", "13:mesh_pp"]
    assert [marker for marker, _ in shown(rows[:2])] == ["10:mesh_pp", "11:mesh_pp"]


def test_the_group_that_the_suspect_is_missing_from_comes_first_and_alone() -> None:
    rows = [pair(20, missing=False), *map(pair, (10, 2, 11, 13))]
    assert [marker for marker, _ in shown(rows)] == ["2:mesh_pp", "10-11,13:mesh_pp", "20:mesh_pp"]


def test_groups_that_differ_are_kept_apart() -> None:
    rows = [pair(number, name=name) for name in ("{}:mesh_pp", "{}", "tp_{}") for number in (10, 11, 13)]
    assert [marker for marker, _ in shown(rows)] == ["10-11,13:mesh_pp", "10-11,13", "tp_10-11,13"]
    other = [replace(pair(30), sizes="[[9]]"), replace(pair(31), joined=()), replace(pair(32), operation="send")]
    assert len(shown(other)) == 3


def test_calls_of_one_communicator_count_it_once() -> None:
    assert shown(pair(10, sequence) for sequence in (1, 4, 9)) == [
        ("10:mesh_pp", "recv seq 1-9 [[8]]   2 members (read)   joined 1 [20]   missing 1 [21]")
    ]


def test_without_a_suspect_nothing_is_set_apart() -> None:
    assert len(list(group_rows.items(HEALTHY, [pair(number) for number in range(4)]))) == 1
