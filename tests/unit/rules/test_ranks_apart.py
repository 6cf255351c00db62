"""Which ranks stand apart in one moment, so that somebody should look at them first."""

from __future__ import annotations

import pytest

from forensics.model import TreeLine, WaitKind
from forensics.rules.reductions.stacks.tree import apart


@pytest.mark.parametrize(
    ("few", "many", "told"),
    [
        (WaitKind.IO, WaitKind.COLLECTIVE, True),
        (WaitKind.COLLECTIVE, WaitKind.COLLECTIVE, True),
        (WaitKind.IO, WaitKind.SLEEP, True),
        (WaitKind.COLLECTIVE, WaitKind.IO, False),
    ],
)
def test_one_that_waits_for_those_who_are_elsewhere_is_no_place_to_begin(few: WaitKind, many: WaitKind, told: bool) -> None:
    tree = (TreeLine(1, (3,), ("one",), few), TreeLine(1, (0, 1, 2), ("three",), many))
    found = apart(tree)
    assert (found is not None) is told
    assert not told or (found is not None and found[0].ranks == (3,))
