"""Which devices have not begun an operation that all hosts issued, by what is recorded of the call itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from forensics.rules.reductions.calls.positions import Operation
from forensics.rules.reductions.waits.completions import StartRecords, not_begun
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait, WaitGraph

INSIDE = Operation("all_reduce", "", 1, None, "fr#entry=1", started=True)
ISSUED = Operation("all_reduce", "", 1, None, "fr#entry=1")


@pytest.mark.parametrize(
    ("calls", "behind"),
    [
        ({0: INSIDE, 1: INSIDE, 2: ISSUED}, (2,)),
        ({0: INSIDE, 1: INSIDE, 2: None}, ()),
        ({0: INSIDE, 1: None, 2: ISSUED}, ()),
        ({0: INSIDE, 1: ISSUED, 2: ISSUED}, ()),
    ],
)
def test_a_call_that_only_counters_tell_of_shows_no_device_behind(
    calls: Mapping[int, Operation | None], behind: tuple[int, ...]
) -> None:
    """Of a dump that is cut before the call what the device waits for may be among what is lost."""
    wait = Wait("0", 9, calls, ())
    root = Root(RootKind.ALL_JOINED, tuple(calls), (wait,))
    assert not_begun(root, WaitGraph((wait,), (root,), {}), StartRecords(frozenset(calls))) == behind
