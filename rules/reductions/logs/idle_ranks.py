"""The one rank that waits for nothing while all others gave up on messages, by the numbers of their watchdogs.

Sends and receives count for each rank alone, so that their numbers do not say who is behind. But a rank that has completed all
that it enqueued in the group, and gave up on nothing, waits for nobody in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.logs.positions import LogPosition, furthest, log_positions

_ON_MESSAGES = "SELECT 1 FROM log_positions WHERE timed_out IS NOT NULL AND is_p2p LIMIT 1"
# One of two may have given up before the other one did.
_LEAST_WAITING = 2


@dataclass(frozen=True, slots=True)
class IdleRank:
    """The rank, its group, and the newest line of each member."""

    rank: int
    label: str
    positions: Mapping[int, LogPosition]


@dataclass(frozen=True, slots=True)
class IdleInLogs:
    """It, None where the logs do not tell."""

    found: IdleRank | None = None


@reduction
def idle_in_logs(connection: DuckDBPyConnection, logged: Logged) -> IdleInLogs:
    """Find it in the one group on whose messages ranks gave up."""
    if not rows_of(connection, "log_positions", _ON_MESSAGES):
        return IdleInLogs()
    every = log_positions(connection, logged.world_size)
    size = logged.world_size or max((row.size or 0 for row in every), default=0)
    rows = [row for row in every if row.origin == "watchdog"]
    labels = {row.communicator for row in rows if row.timed_out is not None}
    if len(labels) != 1:
        return IdleInLogs()
    (label,) = labels
    latest = dict(sorted(furthest(row for row in rows if row.communicator == label and row.rank is not None).items()))
    waiting = [rank for rank, row in latest.items() if row.timed_out is not None and row.is_p2p]
    idle = [rank for rank, row in latest.items() if _is_idle(row) and rank not in logged.timed_out]
    everybody = latest.keys() == set(range(size or len(latest)))
    if len(idle) != 1 or len(waiting) < max(_LEAST_WAITING, len(latest) - 1) or not everybody:
        return IdleInLogs()
    return IdleInLogs(IdleRank(idle[0], label, latest))


def _is_idle(row: LogPosition) -> bool:
    return row.timed_out is None and row.enqueued is not None and row.enqueued == row.completed
