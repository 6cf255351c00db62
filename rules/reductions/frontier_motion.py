"""Whether recorded steps show that the job moves, where nothing that looks at hangs could tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.frontier import FrontierWindow
from forensics.rules.reductions.liveness import LEAST_SILENCE_NS, Liveness, Motion

LEAST_STEPS = 3

# What looks for hangs: where there is any of it, it decides.
_LOOKS = "SELECT count(*) FROM sources WHERE kind IN ('flight_recorder', 'python_stacks', 'shim_log', 'nccl_ras')"
_CAPTURED = """
SELECT max(captured_ns), (SELECT max(end_ns) FROM steps) FROM sources WHERE source_id IN (SELECT source_id FROM steps)
"""


def moving_by_steps(
    connection: DuckDBPyConnection, motion: Liveness, windows: Sequence[FrontierWindow], silence_factor: float
) -> Liveness:
    """Call a job moving whose every rank recorded steps, unless the record had been silent for long when it was collected."""
    if motion.motion is not Motion.UNSEEN or not windows:
        return motion
    ((looks,),) = connection.execute(_LOOKS).fetchall()
    ((captured, newest),) = connection.execute(_CAPTURED).fetchall()
    longest = max(float(window.matrix.walls.max(initial=0.0)) for window in windows)
    silent = captured is not None and newest is not None and captured - newest > max(silence_factor * longest, LEAST_SILENCE_NS)
    steps = sum(len(window.matrix.steps) for window in windows)
    if looks or silent or steps < LEAST_STEPS:
        return motion
    ranks = sorted({rank for window in windows for rank in window.matrix.ranks})
    last = int(np.max([window.matrix.steps[-1] for window in windows]))
    reason = f"steps up to {last} were recorded on {len(ranks)} {'rank' if len(ranks) == 1 else 'ranks'}"
    return replace(motion, motion=Motion.MOVING, reason=reason, advanced=tuple(ranks))
