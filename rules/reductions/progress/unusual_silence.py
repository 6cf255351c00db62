"""Whether a job was silent, when it was captured, for longer than it ever was at that place of its program.

Saves and evaluations make long silences usual. They are made at places of their own: one that no rank stayed at for long before
is none of them, and the step in which it lies is a long one, however the job goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NewType

import numpy as np

from forensics.rules.reductions.calls.issued import Issued, issued
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.progress.liveness import LEAST_SILENCE_NS, Liveness, SilenceFactor, seconds
from forensics.rules.reductions.progress.speed import SLOWER, Speed

UnusualSilence = NewType("UnusualSilence", tuple[str, ...])
"""One sentence on the silence; none where it was short, or is usual there, or nothing tells."""

_OFTEN = 5
"""Earlier stays at a place that show what is usual there."""


@reduction
def unusual_silence(calls: Calls, motion: Liveness, pace: Speed, factor: SilenceFactor) -> UnusualSilence:
    """Hold the silence of the whole job against all earlier stays of each rank behind the call that it made last."""
    silence, step = motion.silence_ns, pace.step_ns
    if silence is None or step is None or silence < max(LEAST_SILENCE_NS, SLOWER * step):
        return UnusualSilence(())
    longest = max(longest_stays(issued(calls)).values(), default=None)
    if longest is None or silence < factor * longest:
        return UnusualSilence(())
    before = f"no rank stayed behind its last call for more than {seconds(longest)} before, in steps of {seconds(round(step))}"
    return UnusualSilence((f"no new call for {seconds(silence)} when it was captured, and {before}",))


def longest_stays(calls: Issued) -> Mapping[int, int]:
    """The longest earlier time (ns) until the next call, of ranks that made their last call before, one of them often."""
    found = {rank: _stays(calls, at) for rank, at in calls.places.items()}
    # One long stay where a rank seldom is, as in the barrier behind an evaluation, is what the job does there.
    is_known = any(len(stays) >= _OFTEN for stays in found.values())
    return {rank: int(stays.max()) for rank, stays in found.items() if len(stays)} if is_known else {}


def _stays(calls: Issued, at: slice) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    same = np.ones(at.stop - at.start, bool)
    for column in (calls.communicator[at], calls.kind[at], calls.call_path[at]):
        same &= column == column[-1]
    return np.diff(calls.enqueued_ns[at])[same[:-1]]
