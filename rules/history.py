"""How far back large histories have to be read, by what some of them show when read whole (Mycroft, section 5.1)."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import read_only
from forensics.model import Anomaly, Outcome, Verdict
from forensics.rules.engine import Overrides, supply_of
from forensics.rules.reductions.calls.unread import DUMPS, unread
from forensics.rules.reductions.network.went_wrong import JobOnset, Trigger, WindowSeconds
from forensics.rules.reductions.progress.liveness import Liveness, Motion, SilenceFactor
from forensics.rules.reductions.progress.speed import Pace, Speed
from forensics.rules.reductions.ranks.shim_logs import ShimLogs
from forensics.rules.reductions.steps.begins import step_begins
from forensics.rules.reductions.steps.records import UNKNOWN, Record, Recorded
from forensics.rules.reductions.steps.times import StepTimes

# Steps before a halt: what is usual in a step, and what recurs, is told by some of them.
_STEPS = 6
# Where nothing dates the halt it may be a slow step: who is late in each is told by more of them.
_STEPS_UNDATED = 12
_LONGEST = """
SELECT max(pause) FROM (
    SELECT at_ns - lag(at_ns) OVER (PARTITION BY source_id ORDER BY at_ns) AS pause
    FROM (SELECT source_id, coalesce(entered_ns, enqueued_ns) AS at_ns FROM operations) WHERE at_ns IS NOT NULL
)
"""


def history_needed(connection: DuckDBPyConnection, overrides: Overrides | None = None) -> int | None:
    """Nanoseconds before the end of each history, from a case of some of them; None where all of it may matter.

    It does where the job still moves, or had long steps: whether it became slower, and when, is told by what it did before.
    It does after a halt that is not longer than twice the longest pause of these histories: before the pause there may be
    others, which excuse it.
    """
    supply = supply_of(connection, overrides)
    with read_only(connection):
        ((longest,),) = connection.execute(_LONGEST).fetchall()
        excused_ns = supply.get(SilenceFactor) * (longest or 0)
        if supply.get(ShimLogs):
            return needed(supply.get(JobOnset), supply.get(WindowSeconds), excused_ns)
        # Of a job that is known to stand still, nobody asks for its steps.
        if supply.get(Speed).pace is Pace.SLOWER or supply.get(StepTimes).long():
            return None
        return needed_of_dumps(supply.get(Liveness), supply.get(Recorded).of().values(), excused_ns)


def needed(onset: JobOnset, seconds: float, excused_ns: float) -> int | None:
    """The same of logs from the onset of the job; a halt of up to `excused_ns` may be one of its pauses."""
    first = onset.first
    if first is None or first.trigger is not Trigger.NO_COMPLETION or first.after_ns <= excused_ns:
        return None
    return first.ago_ns + max(int(seconds * 1e9), _STEPS * first.step_ns)


def needed_of_dumps(motion: Liveness, records: Collection[Record], excused_ns: float) -> int | None:
    """The same of dumps, which end with the last call of a rank; most of the records must show so many steps."""
    is_excused = motion.silence_ns is not None and motion.silence_ns <= excused_ns
    if motion.may_move or (motion.motion is Motion.STALLED and is_excused):
        return None
    steps = _STEPS if motion.motion is Motion.STALLED else _STEPS_UNDATED
    found = [ago_ns for record in records if (ago_ns := _ago_ns(record, steps)) is not None]
    return max(found) if 2 * len(found) > len(records) else None


def _ago_ns(record: Record, steps: int) -> int | None:
    """How long before the last call so many whole steps began; None where the record does not show it."""
    begins = step_begins(record)
    begins = begins[begins < len(record)]
    if len(begins) <= steps or (record.enqueued_ns == UNKNOWN).any():
        return None
    return int(np.max(record.enqueued_ns)) - int(record.enqueued_ns[begins[-1 - steps]])


def is_enough(connection: DuckDBPyConnection, verdict: Verdict) -> bool:
    """Whether what was read of dumps explains a halt, where only their ends were: what is slow is told by the whole of them."""
    if DUMPS not in unread(connection):
        return True
    suspects = verdict.suspects
    return verdict.outcome is Outcome.HANG and bool(suspects) and all(s.anomaly is Anomaly.FAIL_STOP for s in suspects)
