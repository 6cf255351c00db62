"""Launch orders compare what one source tells of a rank: a dump and a shim log see what began at different moments."""

from __future__ import annotations

import pytest

from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator, Communicators, Operation, Position
from forensics.rules.reductions.waits.graph import Wait, WaitGraph
from forensics.rules.reductions.waits.launch_orders import order_inversions


def waiting(label: str, started: int, family: Family) -> Wait:
    """Ranks 0 and 1 are in a call of which one device has begun."""
    calls = {rank: Operation("all_reduce", "[[4]]", 1000, None, f"{label}#{rank}", started=rank == started) for rank in (0, 1)}
    return Wait(label, 7, calls, (), families=dict.fromkeys(calls, family))


def orders(second: Family) -> list[str]:
    waits = (waiting("a", 0, Family.RECORDER), waiting("b", 1, second))
    groups = [
        Communicator(wait.communicator, (0, 1), "read", {r: Position(r, 7, 6, 7, wait.waiting[r]) for r in (0, 1)}, "nccl")
        for wait in waits
    ]
    return [found.order for found in order_inversions(Communicators(tuple(groups)), WaitGraph(waits, (), {}))]


@pytest.mark.parametrize(("second", "found"), [(Family.RECORDER, ["started"]), (Family.SHIM, [])])
def test_only_what_one_source_tells_is_an_order(second: Family, found: list[str]) -> None:
    assert orders(second) == found
