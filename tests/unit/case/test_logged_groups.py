"""Who belongs to a communicator of which a member left no log: told by groups whose ranks lie alike, or not at all."""

from __future__ import annotations

import pytest

from forensics.case.database import insert_rows, new_case
from forensics.case.logged_groups import logged_groups

GRID: dict[str, tuple[int, ...]] = {"a": (0, 4, 8, 12), "b": (1, 5, 9, 13), "c": (2, 6, 10, 14), "d": (3, 7, 11, 15)}
PAIRS: dict[str, tuple[int, ...]] = {
    "e": (0, 1),
    "f": (2, 3),
    "g": (4, 5),
    "h": (6, 7),
    "i": (8, 9),
    "j": (10, 11),
    "k": (12, 13),
    "l": (14, 15),
}


def alike(groups: dict[str, tuple[int, ...]], lost: set[int], world: int | None = 16) -> dict[str, tuple[int, ...]]:
    """The members that are inferred, by label, where the logs of some ranks are lost."""
    connection = new_case()
    rows: list[tuple[object, ...]] = [
        (0, 0, rank, label, place, len(ranks))
        for label, ranks in groups.items()
        for place, rank in enumerate(ranks)
        if rank not in lost
    ]
    insert_rows(connection, "communicator_states", "source_id locator rank communicator group_rank size", rows)
    return {each.communicator: each.alike for each in logged_groups(connection, world) if each.alike}


def test_a_lost_member_has_the_place_that_groups_alike_leave() -> None:
    assert alike(GRID | PAIRS, {15}) == {"d": GRID["d"], "l": PAIRS["l"]}
    assert alike(GRID | PAIRS, {3, 12}) == {"a": GRID["a"], "d": GRID["d"], "f": PAIRS["f"], "k": PAIRS["k"]}


@pytest.mark.parametrize(
    ("groups", "lost", "world"),
    [
        ({"c": (2, 6, 10, 14), "d": (3, 7, 11, 15)}, {15}, 16),
        ({"a": (0, 4, 8, 12), "b": (1, 6, 9, 14), "d": (3, 7, 11, 15)}, {15}, 16),
        (GRID | {"x": (0, 3, 6, 9), "y": (1, 4, 7, 10), "z": (8, 11, 14, 13)}, {13}, 16),
        ({**GRID, "d": (3, 7, 11, 2), "p": (14, 15)}, {2}, 16),
        (GRID, {15}, 15),
        ({"e": (0, 1), "f": (2, 3), "m": (0, 2), "n": (1, 3), "o": (4, 5)}, {5, 6}, 8),
    ],
    ids=["one group alone", "no two alike", "another shape", "a rank with a log", "no such rank", "two shapes fit"],
)
def test_nobody_is_inferred_where_groups_alike_do_not_tell(
    groups: dict[str, tuple[int, ...]], lost: set[int], world: int
) -> None:
    told = alike(groups, lost, world)
    assert {label: told[label] for label in ("d", "z", "o") if label in told} == {}
