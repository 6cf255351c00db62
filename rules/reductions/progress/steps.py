"""Whether recorded steps show that the job moves, where what looks at hangs could not tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.reductions.progress.liveness import LEAST_SILENCE_NS, Liveness, Motion

LEAST_STEPS = 3

# What looks for hangs: where there is any of it, it decides, unless the record goes on to the moment at which it was fetched.
_CAPTURES = "SELECT count(*) FROM sources WHERE kind IN ('flight_recorder', 'python_stacks', 'shim_log', 'nccl_ras')"
_SILENCE = """
WITH newest AS (
    SELECT source_id, rank, max(end_ns) AS newest_ns FROM steps GROUP BY source_id, rank
), by_rank AS (
    SELECT n.rank, max(s.captured_ns) AS captured_ns, max(n.newest_ns) AS newest_ns
    FROM newest n JOIN sources s USING (source_id) GROUP BY n.rank
)
SELECT max(captured_ns) - max(newest_ns), max(captured_ns - newest_ns), bool_and(captured_ns IS NOT NULL) FROM by_rank
"""


def moving_by_steps(
    connection: DuckDBPyConnection, motion: Liveness, windows: Sequence[FrontierWindow], silence_factor: float
) -> Liveness:
    """Call a job moving whose every rank recorded steps, unless the record had been silent for long when it was collected.

    Beside stacks or dumps that only did not see it move, the record of every rank must go on until it was fetched.
    """
    if motion.motion is not Motion.UNSEEN or not windows:
        return motion
    ((has_captures,),) = connection.execute(_CAPTURES).fetchall()
    ((silence, of_any_rank, is_dated),) = connection.execute(_SILENCE).fetchall()
    longest = max(float(window.matrix.walls.max(initial=0.0)) for window in windows)
    limit = max(silence_factor * longest, LEAST_SILENCE_NS)
    steps = sum(len(window.matrix.steps) for window in windows)
    is_whole = is_dated and not any(window.matrix.missing for window in windows)
    is_up_to_date = is_whole and of_any_rank is not None and of_any_rank <= limit
    if (has_captures and not is_up_to_date) or (silence is not None and silence > limit) or steps < LEAST_STEPS:
        return motion
    ranks = sorted({rank for window in windows for rank in window.matrix.ranks})
    last = int(np.max([window.matrix.steps[-1] for window in windows]))
    reason = f"steps up to {last} were recorded on {len(ranks)} {'rank' if len(ranks) == 1 else 'ranks'}"
    return replace(motion, motion=Motion.MOVING, reason=reason, advanced=tuple(ranks))
