"""A slow rank whose process may run on few cores: said beside it where the others have more, and of no other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from forensics.case.database import insert_rows, new_case
from forensics.rules.engine import supply_of
from forensics.rules.reductions.hardware.allowed_cores import AllowedCores, FewCores, cores_in, fewer_cores


def stated(ranks: tuple[int, ...], lists: Mapping[int, str]) -> FewCores | None:
    """What is known of slow ranks, where the processes of the job may run on these cores."""
    connection = new_case()
    sources: list[tuple[object, ...]] = [(rank, f"ranks/{rank}/rank.json", "ok", 1) for rank in lists]
    insert_rows(connection, "sources", "source_id path status rows", sources)
    rows: list[tuple[object, ...]] = [(rank, rank, "process.cpus_allowed", value) for rank, value in lists.items()]
    insert_rows(connection, "job_config", "source_id rank key value", rows)
    return fewer_cores(ranks, supply_of(connection).get(AllowedCores))


EQUAL = {rank: f"{12 * rank}-{12 * rank + 11}" for rank in range(8)}


@pytest.mark.parametrize(
    ("ranks", "lists", "is_said"),
    [
        ((3,), EQUAL | {3: "0"}, True),
        ((3,), EQUAL | {3: "36-41"}, True),
        ((3,), EQUAL | {3: "36-43"}, False),
        ((3,), EQUAL, False),
        ((2, 3), EQUAL | {2: "0", 3: "0"}, True),
        ((2, 3), EQUAL | {3: "0"}, False),
        ((4,), dict.fromkeys(range(8), "0"), False),
        ((1,), dict.fromkeys(range(4), "0") | dict.fromkeys(range(4, 8), "0-95"), False),
        ((3,), {3: "0", 2: "0-11"}, False),
        ((3,), {rank: value for rank, value in EQUAL.items() if rank != 3}, False),
        ((3,), EQUAL | {3: "all of them"}, False),
        ((), EQUAL, False),
    ],
    ids=[
        "one core", "half", "two thirds", "alike", "both", "one of two", "all pinned to one core", "every other rank as few",
        "too few others", "its own not known", "no list", "nobody named",
    ],
)  # fmt: skip
def test_only_a_rank_with_far_fewer_cores_than_the_others_is_said_to_have_them(
    ranks: tuple[int, ...], lists: dict[int, str], is_said: bool
) -> None:
    assert bool(stated(ranks, lists)) is is_said


def test_both_numbers_are_stated_with_their_place() -> None:
    assert stated((3,), EQUAL | {3: "36,37"}) == FewCores(2, 12, "ranks/3/rank.json")


@pytest.mark.parametrize(("text", "cores"), [("0-11", 12), ("5", 1), ("0-3,8,10-11", 7), ("", 0), ("3-1", 0), ("a-b", 0)])
def test_lists_of_the_kernel(text: str, cores: int) -> None:
    assert cores_in(text) == cores
