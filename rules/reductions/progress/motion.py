"""Whether the job moves, by every source there is, the first that tells."""

from __future__ import annotations

from typing import NewType

from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.progress.liveness import Liveness, liveness
from forensics.rules.reductions.progress.other_sources import with_progress
from forensics.rules.reductions.progress.shim_logs import logged_motion
from forensics.rules.reductions.progress.steps import moving_by_steps
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ShimLogs
from forensics.rules.reductions.stacks.samples import StacksByRank

SilenceFactor = NewType("SilenceFactor", float)
"""How many of its own recurring pauses a silence must last to count as a stall."""


@reduction
def motion(
    calls: Calls, ranks: Roster, samples: StacksByRank, shim: ShimLogs, windows: FrontierWindows, factor: SilenceFactor
) -> Liveness:
    """Logs of calls where the calls are theirs, else dumps and stacks; then recorded steps, then other sources."""
    silent = [rank for rank, facts in ranks.ranks.items() if facts.heartbeat_gap_ns]
    found = logged_motion(shim.values(), factor, silent) if calls.from_shim else None
    found = found or liveness(calls.connection, ranks, samples, factor)
    found = moving_by_steps(calls.connection, found, windows, factor)
    return with_progress(calls.connection, found, shim, ranks, factor)
