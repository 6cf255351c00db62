"""Whether a rank that others wait for is at work: work ends by itself, so that a wait for it must be long to be a hang."""

from __future__ import annotations

from collections.abc import Sequence

from forensics.model import WaitKind
from forensics.rules.reductions.ranks.children import ChildProcess
from forensics.rules.reductions.ranks.roster import RankFacts
from forensics.rules.reductions.stacks.samples import Stacks

LEAST_WORK_NS = 10_000_000_000
"""Compiling and collecting garbage take a sound rank this long, even if no earlier pause was as long."""
LEAST_SAVE_NS = 300_000_000_000
"""Writing the first checkpoint of a run, evaluating on one rank, fetching data and working in small pieces with pauses take
minutes, and nothing of the run shows how many."""
BUSY_SHARE = 0.5
"""A thread that polls with pauses uses far less than half a CPU; one that works or loops nearly all of it."""
BUSY_WAKES_PER_S = 20.0
"""Loops that ask again and again sleep for a tenth of a second or longer; work in small pieces wakes a thread more often."""
LEAST_WRITTEN = 1 << 16
"""Bytes from one sample to the next: what a rank that stands, or asks again and again, notes in its log is far less."""
_SLEEPING, _RUNNING = "S", "R"
# One look may meet a thread that polls while it asks.
_LEAST_LOOKS = 3
_BLOCKED = frozenset(
    {
        WaitKind.LOCK,
        WaitKind.FILE_LOCK,
        WaitKind.SLEEP,
        WaitKind.CHILD,
        WaitKind.DATA,
        WaitKind.STORE,
        WaitKind.EXITING,
    }
)


def at_work(facts: RankFacts, found: Stacks | None, children: Sequence[ChildProcess] = ()) -> str | None:
    """Say by what a rank is seen to be at work, or None when it sleeps or nothing tells."""
    worker = working_child(found, children)
    if worker is not None:
        return f"its child process {worker.pid} used {worker.cpu_share:.0%} of a CPU"
    if facts.fed:
        return f"data moves: {facts.switches} context switches in a read or write without a time limit"
    if writes(facts):
        return f"it wrote {(facts.written_bytes or 0) / 1e6:.1f} MB or more from each sample to the next"
    if facts.cpu_share is not None and facts.cpu_share >= BUSY_SHARE:
        return f"it used {facts.cpu_share:.0%} of a CPU"
    if len(facts.thread_states) >= _LEAST_LOOKS and set(facts.thread_states) == {_RUNNING}:
        return f"it was ready to run in each of {len(facts.thread_states)} samples"
    if wakes_often(facts, found):
        return f"it woke {facts.wakes_per_s:.0f} times a second"
    if facts.cpu_share is None and found is not None and found.main and found.main[-1].active:
        return "the sampler saw it on a CPU"
    return _passed(found)


def working_child(found: Stacks | None, children: Sequence[ChildProcess]) -> ChildProcess | None:
    """The child process that works while the rank waits, as those of a pool do that prepares data.

    Where the rank waits for the end of a program that it started, one that gets on will do. A rank that waits for its next
    batch, or for a compiler, has a rule of its own.
    """
    if _blocked(found, frozenset({WaitKind.DATA})):
        return None
    awaited = found is not None and bool(found.main) and all(each.activity.wait is WaitKind.CHILD for each in found.main)
    works = (child for child in children if (child.gets_on if awaited else child.at_work) and not child.compiles)
    return next(works, None)


def writes(facts: RankFacts) -> bool:
    """Whether data leaves it, to a file or to another process, between all samples: what it writes to answers."""
    return (facts.written_bytes or 0) >= LEAST_WRITTEN


def wakes_often(facts: RankFacts, found: Stacks | None) -> bool:
    """Whether it wakes more often than one that polls, in code that no sample shows to sleep until something comes.

    Neither an endless loop nor a call that never returns looks like this: the one uses a CPU, the other does not wake. A loop
    on a host short of CPU is switched as often, and never seen to sleep.
    """
    if _SLEEPING not in facts.thread_states:
        return False
    if facts.wakes_per_s is None or facts.wakes_per_s < BUSY_WAKES_PER_S or (facts.cpu_share or 0.0) >= BUSY_SHARE:
        return False
    return not _blocked(found, _BLOCKED - {WaitKind.SLEEP})


def _blocked(found: Stacks | None, kinds: frozenset[WaitKind]) -> bool:
    return found is not None and any(sample.activity.wait in kinds for sample in found.main)


def _passed(found: Stacks | None) -> str | None:
    """Its samples lie at different places of its code, in none of the calls that a thread sleeps in."""
    if found is None or not found.moved or _blocked(found, _BLOCKED):
        return None
    return "its samples lie at different places"
