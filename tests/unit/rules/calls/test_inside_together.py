"""Ranks that are behind in logs of calls alone, and may all be inside one call: nobody shows that they left it."""

from __future__ import annotations

import duckdb
import pytest

from forensics.rules.reductions.calls.positions import Communicator, Communicators, Position
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.host.stalls import stalls
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs, ShimLogs
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.waits.device_waits import DeviceWaits
from forensics.rules.reductions.waits.graph import Root, RootKind, WaitGraph
from forensics.rules.reductions.waits.messages import MessageWaits

ALL = (1, 3, 5, 7)


def named(
    roots: tuple[int, ...] = ALL, entered: tuple[int, ...] = (40, 40, 40, 40), per_host: int = 2, has_stack: bool = False,
    dumped: frozenset[int] = frozenset(), chunks: frozenset[int] = frozenset(),
) -> list[int]:  # fmt: skip
    """Who is called stalled: ranks of a group over hosts of two ranks, each awaited by its neighbour."""
    places = {rank: Position(rank, number, number, None, None) for rank, number in zip(ALL, entered, strict=True)}
    roster = Roster(
        {rank: RankFacts(rank, host=f"n{rank // per_host}", has_stack=has_stack, has_recorder=True) for rank in range(8)}, 8
    )
    graph = WaitGraph((), tuple(Root(RootKind.FREE, (rank,), ()) for rank in roots), {})
    found = stalls(
        graph, roster, StacksByRank({}), MessageWaits(frozenset()), DeviceWaits(frozenset()), ShimLogs({}),
        Calls(duckdb.connect(), dumped, frozenset(range(8))), Communicators((Communicator("rail", ALL, "read", places),)),
        ChunkLogs(chunks),
    )  # fmt: skip
    return [each.rank for each in found]


def test_one_fault_inside_is_nearer_than_as_many_hosts() -> None:
    assert named() == [] and named(roots=(1, 3)) == []


@pytest.mark.parametrize(
    ("stated", "roots"),
    [
        ({"roots": (3,)}, [3]),
        ({"entered": (39, 40, 40, 40)}, list(ALL)),
        ({"per_host": 8}, list(ALL)),
        ({"has_stack": True}, list(ALL)),
        ({"dumped": frozenset(ALL)}, list(ALL)),
        ({"chunks": frozenset(ALL)}, list(ALL)),
    ],
    ids=[
        "one rank",
        "one has not entered",
        "one host",
        "stacks show what they do",
        "dumps show who left",
        "chunks show who left",
    ],
)
def test_what_shows_where_they_are_names_them(stated: dict[str, object], roots: list[int]) -> None:
    assert named(**stated) == roots  # type: ignore[arg-type]
