"""Whether a rank that others wait for is at work: work ends by itself, so that a wait for it must be long to be a hang."""

from __future__ import annotations

from forensics.model import WaitKind
from forensics.rules.reductions.ranks.roster import RankFacts
from forensics.rules.reductions.stacks.samples import Stacks

LEAST_WORK_NS = 10_000_000_000
"""Evaluating, compiling and collecting garbage take a sound rank this long, even if no earlier pause was as long."""
LEAST_SAVE_NS = 300_000_000_000
"""Writing the first checkpoint of a run, and fetching its data, takes minutes, and nothing of the run tells how many."""
BUSY_SHARE = 0.5
"""A thread that polls with pauses uses far less than half a CPU; one that works or loops nearly all of it."""
_BLOCKED = frozenset({WaitKind.LOCK, WaitKind.SLEEP, WaitKind.CHILD, WaitKind.DATA, WaitKind.STORE, WaitKind.EXITING})


def at_work(facts: RankFacts, found: Stacks | None) -> str | None:
    """Say by what a rank is seen to be at work, or None when it sleeps or nothing tells."""
    if facts.fed:
        return f"data came to what it reads: {facts.switches} context switches in a read without a time limit"
    if facts.cpu_share is not None:
        return f"it used {facts.cpu_share:.0%} of a CPU" if facts.cpu_share >= BUSY_SHARE else _passed(found)
    if found is not None and found.main and found.main[-1].active:
        return "the sampler saw it on a CPU"
    return _passed(found)


def _passed(found: Stacks | None) -> str | None:
    """Its samples lie at different places of its code, in none of the calls that a thread sleeps in."""
    if found is None or not found.moved or any(sample.activity.wait in _BLOCKED for sample in found.main):
        return None
    return "its samples lie at different places"
