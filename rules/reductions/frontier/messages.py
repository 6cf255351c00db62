"""Ranks whose hosts may wait for messages inside a pass: a stage that is long there shows no rank."""

from __future__ import annotations

from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.model import WaitKind
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank

Messengers = NewType("Messengers", frozenset[int])
"""Ranks that send or receive messages, also those whose recorder keeps none of them."""

_PAIRED = "SELECT DISTINCT rank FROM operations WHERE is_p2p AND rank IS NOT NULL"


UnrecordedMessages = NewType("UnrecordedMessages", frozenset[int])
"""Ranks that send or receive messages which no recorder keeps."""


@reduction
def unrecorded_messages(connection: DuckDBPyConnection, roster: Roster, stacks: StacksByRank) -> UnrecordedMessages:
    """By the numbers of their other calls; of a group that has messages only, stacks inside one tell it."""
    counted = {rank for rank, facts in roster.ranks.items() if facts.calls_unrecorded}
    inside = {rank for rank, found in stacks.items() if any(s.activity.wait is WaitKind.POINT_TO_POINT for s in found.main)}
    return UnrecordedMessages(frozenset(counted | inside - _recorded(connection)))


@reduction
def messengers(connection: DuckDBPyConnection, unrecorded: UnrecordedMessages) -> Messengers:
    """The ranks of pipelines, of rings of attention, and of whatever else is passed from rank to rank."""
    return Messengers(frozenset(_recorded(connection) | unrecorded))


def _recorded(connection: DuckDBPyConnection) -> set[int]:
    return {rank for (rank,) in connection.execute(_PAIRED).fetchall()}
