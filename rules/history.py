"""How far back large logs have to be read, by what some of them show when read whole (Mycroft, section 5.1)."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from forensics.case.database import read_only
from forensics.rules.engine import Overrides, supply_of
from forensics.rules.reductions.network.went_wrong import JobOnset, Trigger, WindowSeconds
from forensics.rules.reductions.progress.motion import SilenceFactor

# Steps before a halt: what is usual in a step, and what recurs, is told by some of them.
_STEPS = 6
_LONGEST = """
SELECT max(pause) FROM (
    SELECT entered_ns - lag(entered_ns) OVER (PARTITION BY source_id ORDER BY entered_ns) AS pause
    FROM operations WHERE entered_ns IS NOT NULL
)
"""


def history_needed(connection: DuckDBPyConnection, overrides: Overrides | None = None) -> int | None:
    """Nanoseconds before the end of each log, from a case of some logs; None where all of the history may matter.

    It does where the job still moves: whether it became slower, and when, is told by what it did before. It does after a halt
    that is not longer than twice the longest pause of these logs: before the pause there may be others, which excuse it.
    """
    supply = supply_of(connection, overrides)
    with read_only(connection):
        onset, factor, seconds = supply.get(JobOnset), supply.get(SilenceFactor), supply.get(WindowSeconds)
        ((longest,),) = connection.execute(_LONGEST).fetchall()
    return needed(onset, seconds, factor * (longest or 0))


def needed(onset: JobOnset, seconds: float, excused_ns: float) -> int | None:
    """The same from the onset of the job; a halt of up to `excused_ns` may be one of its pauses."""
    first = onset.first
    if first is None or first.trigger is not Trigger.NO_COMPLETION or first.after_ns <= excused_ns:
        return None
    return first.ago_ns + max(int(seconds * 1e9), _STEPS * first.step_ns)
