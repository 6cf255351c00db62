"""Which ranks stand apart in one moment, so that somebody should look at them first."""

from __future__ import annotations

import pytest

from forensics.model import TreeLine, WaitKind
from forensics.rules.leads.first import unproven
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.stacks.tree import apart


@pytest.mark.parametrize(
    ("few", "many", "stated"),
    [
        (WaitKind.IO, WaitKind.COLLECTIVE, True),
        (WaitKind.COLLECTIVE, WaitKind.COLLECTIVE, True),
        (WaitKind.IO, WaitKind.SLEEP, True),
        (WaitKind.COLLECTIVE, WaitKind.IO, False),
    ],
)
def test_one_that_waits_for_those_who_are_elsewhere_is_no_place_to_begin(few: WaitKind, many: WaitKind, stated: bool) -> None:
    tree = (TreeLine(1, (3,), ("one",), few), TreeLine(1, (0, 1, 2), ("three",), many))
    found = apart(tree)
    assert (found is not None) is stated
    assert not stated or (found is not None and found[0].ranks == (3,))


@pytest.mark.parametrize(
    ("numbers", "spoken", "silent"),
    [([0, 1, 3, 4], [], True), ([0, 1, 5], [3, 4], True), ([0, 1, 2], [], False), ([0, 1, 9_999_999], [2], False)],
    ids=["one is missing", "one is neither seen nor heard", "all are there", "a number that was misread"],
)
def test_numbers_that_are_missing_among_the_others(numbers: list[int], spoken: list[int], silent: bool) -> None:
    roster = Roster({rank: RankFacts(rank, has_stack=True) for rank in numbers}, None)
    assert bool(list(unproven(roster, ((),), spoken))) is silent


BATON = "FileBaton.wait (file_baton.py:50)"


@pytest.mark.parametrize(
    ("tree", "reported"),
    [
        ((TreeLine(0, (0, 1, 2), ("init (fit.py:9)", BATON), WaitKind.COMPILE),), True),
        ((TreeLine(0, (0, 2), (BATON,), WaitKind.COMPILE), TreeLine(0, (1,), ("run (x.py:5)",), WaitKind.CHILD)), False),
        ((TreeLine(0, (0, 1, 2), ("FileBaton.wait (baton.py:50)",), WaitKind.LOCK),), False),
    ],
    ids=["nobody builds", "one builds", "another lock"],
)  # fmt: skip
def test_a_build_that_all_ranks_wait_for(tree: tuple[TreeLine, ...], reported: bool) -> None:
    roster = Roster({rank: RankFacts(rank, has_stack=True) for rank in range(3)}, None)
    assert any("the lock file" in said for said in unproven(roster, (tree,), ())) is reported
