"""Groups that stand in an operation at once beside one that is known whole: none of them is more to blame than another."""

from __future__ import annotations

import pytest

from forensics.model import Family
from forensics.rules.collectives.joined_not_finished import _begun_beside
from forensics.rules.reductions.calls.positions import Operation
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait
from forensics.rules.reductions.waits.sinks import wait_graph


def wait(label: str, started: dict[int, bool | None], absent: tuple[int, ...] = ()) -> Wait:
    """Ranks in an operation, and whether their devices have begun it; None of a rank whose record ends before."""
    calls = {
        rank: None if begun is None else Operation("all_reduce", "[8]", 5, None, f"{rank}.fr", started=begun)
        for rank, begun in started.items()
    }
    return Wait(label, 7, calls, absent, families=dict.fromkeys(calls, Family.RECORDER))


WHOLE = wait("a", {16: True, 18: True, 20: True, 22: True})


@pytest.mark.parametrize(
    ("beside", "count"),
    [
        (wait("b", {17: True, 19: True, 21: None, 23: True}), 1),
        (wait("b", {17: True, 19: False, 21: None, 23: True}), 0),
        (wait("b", {17: True, 19: True, 23: True}, absent=(21,)), 0),
        (wait("b", {17: True, 21: None}), 0),
        (wait("b", {16: None, 17: True, 19: True}), 0),
    ],
    ids=["one record is cut", "one device has not begun", "one is missing", "one device alone", "a rank of the first"],
)
def test_a_group_whose_known_members_are_all_inside_is_as_far_as_one_that_is_known_whole(beside: Wait, count: int) -> None:
    graph = wait_graph([WHOLE, beside])
    assert _begun_beside(graph, [Root(RootKind.ALL_JOINED, (16, 18, 20, 22), (WHOLE,))]) == count
