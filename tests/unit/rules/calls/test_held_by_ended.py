"""Beside a process that is gone, devices may stand in a call with it: neither a GPU nor an order of calls is at fault."""

from __future__ import annotations

import signal

import pytest

from forensics.rules.reductions.calls.positions import Communicator, Communicators
from forensics.rules.reductions.network.held_devices import held_by_ended
from forensics.rules.reductions.ranks.roster import RankFacts, Roster

GROUPS = Communicators((Communicator("1:dp", (0, 1, 2), "read", {}), Communicator("2:pair", (3, 4), "read", {})))
KILLED = {"state": "absent", "exit_signal": signal.SIGKILL}


@pytest.mark.parametrize(
    ("facts", "held"),
    [
        ({1: KILLED}, {0, 2}),
        ({1: KILLED, 2: KILLED}, {0}),
        # Its own watchdog ended it: it had waited like the others.
        ({1: {"state": "absent", "exit_signal": signal.SIGABRT}}, set()),
        ({1: {"state": "absent", "timed_out": True}}, set()),
        ({}, set()),
    ],
    ids=["one", "two", "gave up", "timed out", "all live"],
)
def test_the_living_members_of_its_communicators(facts: dict[int, dict[str, object]], held: set[int]) -> None:
    ranks = {rank: RankFacts(rank, **facts.get(rank, {"state": "alive"})) for rank in range(5)}  # type: ignore[arg-type]
    assert {*held_by_ended(GROUPS, Roster(ranks, 5))} == held
