"""Ranks whose hosts may wait for messages inside a pass: a stage that is long there tells no rank."""

from __future__ import annotations

from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster

Messengers = NewType("Messengers", frozenset[int])
"""Ranks that send or receive messages, also those whose recorder keeps none of them."""

_PAIRED = "SELECT DISTINCT rank FROM operations WHERE is_p2p AND rank IS NOT NULL"


@reduction
def messengers(connection: DuckDBPyConnection, roster: Roster) -> Messengers:
    """The ranks of pipelines, of rings of attention, and of whatever else is passed from rank to rank."""
    seen = {rank for (rank,) in connection.execute(_PAIRED).fetchall()}
    return Messengers(frozenset(seen | {rank for rank, facts in roster.ranks.items() if facts.calls_unrecorded}))
