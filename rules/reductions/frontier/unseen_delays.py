"""Why a lasting delay of one rank or stage might not have shown in the times of stages."""

from __future__ import annotations

from forensics.rules.reductions.frontier.cut import LEAST_OF_ALL
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.long_stages import is_limited
from forensics.rules.reductions.frontier.verdicts import WindowVerdict

SEEN_MEETINGS = ("aligned", "collectives", "arrivals")
"""How ranks are seen to meet, rather than assumed to."""
LIKELY_STEPS = 10
"""Fewer steps may recur by chance; the rank is then a lead."""


def unseen_delay(judged: WindowVerdict, gates: Gates) -> str | None:
    """Why a lasting delay of one rank or stage might not have shown in a window; None when it would have, and did not."""
    found, cut = judged.attribution, judged.cut
    if cut is None:
        return found.reason
    if is_limited(judged, gates) or judged.matrix.missing or found.method not in SEEN_MEETINGS:
        return "ranks play different parts, are missing, or are not seen to meet"
    if found.steps < LIKELY_STEPS:
        return f"{found.steps} steps were compared, {LIKELY_STEPS} would be enough"
    # Where all are as long as the one that works longest, one that always does is not seen.
    met = [segment.stop - 1 for segment in cut.segments][: None if cut.waits == LEAST_OF_ALL else -1]
    if float(cut.work[:, met].mean(axis=0).max(initial=0.0)) >= gates.rank_share * found.step_ns:
        return f"what a rank works in {found.sync} cannot be distinguished from what the others wait there"
    over = cut.excess.mean(axis=0)
    if float(over.max(initial=0.0)) >= gates.rank_share * found.step_ns:
        return f"one rank takes {over.max() / 1e6:.1f} ms a step longer than its peers in a stage"
    return None
