"""Ranks that may wait for a message that no frame tells of: `wait()` of `isend` and `irecv` leaves none below the job's code.

A thread that waits in `with lock:` looks the same. What else the job shows decides: whether it exchanges messages at all,
and whether another thread of the process may hold a lock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NewType

from forensics.frame_form import PlainFrame
from forensics.model import StageName, WaitKind
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.stacks.other_threads import may_hold, stayed
from forensics.rules.reductions.stacks.samples import Sample, Stacks, StacksByRank

# One rank may wait for a lock of its own; two that sleep in the same way at once rather wait for others.
LEAST_SLEEPERS = 2
_FILES = frozenset({StageName.DATA, StageName.CHECKPOINT, StageName.INIT})


MessageWaits = NewType("MessageWaits", frozenset[int])
"""Ranks that may wait for a message."""


@reduction
def message_waits(roster: Roster, stacks: StacksByRank) -> MessageWaits:
    """Ranks asleep right below the job's own code in a job that exchanges messages, none of whose threads may hold a lock."""
    if most := _most_at_one_line(roster, stacks):
        return MessageWaits(frozenset(most))
    unframed = {rank: found for rank, found in stacks.items() if found.unframed and not _in_a_lock(roster.rank(rank), found)}
    together = _at_one_line(roster, unframed)
    asleep = {rank for rank in unframed if _sleeps(roster.rank(rank)) or rank in together}
    if not asleep or not (len(asleep) >= LEAST_SLEEPERS or _exchanges(roster, stacks)):
        return MessageWaits(frozenset())
    return MessageWaits(frozenset(rank for rank in asleep if rank in together or not _lock_holders(stacks[rank])))


def _sleeps(facts: RankFacts) -> bool:
    """Whether the kernel says that the main thread sleeps: without a word of it, it may as well compute."""
    return not facts.stopped and "S" in facts.thread_states


def _in_a_lock(facts: RankFacts, found: Stacks) -> bool:
    """Whether the thread sleeps without a limit, and its recorder is there: messages have a limit, collectives are recorded."""
    return facts.calls_unrecorded and not facts.recorder_damaged and all(sample.deadline is False for sample in found.main)


def _at_one_line(roster: Roster, unframed: Mapping[int, Stacks]) -> set[int]:
    """Ranks of which the kernel has no word, and that stay at the very line where others stay.

    Work or locks of their own would not hold several ranks at one line, files that all of them read or write may.
    """
    lines = {
        rank: found.main[-1].activity.python_path[0]
        for rank, found in unframed.items()
        if not roster.rank(rank).thread_states and not roster.rank(rank).stopped
        if found.main[-1].activity.stage not in _FILES
    }
    count = Counter(lines.values())
    return {rank for rank, line in lines.items() if count[line] >= LEAST_SLEEPERS}


def _most_at_one_line(roster: Roster, stacks: Mapping[int, Stacks]) -> set[int]:
    """Most ranks, asleep at one line of the job's own code while nobody is in communication: a barrier of the job's own.

    What they sleep in may be a socket (a store without a frame of its own) or a pause between looks at a file. Sound jobs pause
    in their steps as well: whoever is elsewhere must not have run at all.
    """
    if any(found.waits_now or found.communicated for found in stacks.values()):
        return set()
    lines: dict[PlainFrame, set[int]] = defaultdict(set)
    for rank, found in stacks.items():
        if found.rests and _sleeps(roster.rank(rank)) and found.main[-1].activity.stage not in _FILES:
            lines[found.main[-1].activity.python_path[0].plain].add(rank)
    most = max(lines.values(), key=len, default=set[int]())
    elsewhere = stacks.keys() - most
    stuck = bool(elsewhere) and all(roster.rank(rank).switches == 0 for rank in elsewhere)
    return most if stuck and len(most) >= LEAST_SLEEPERS and 2 * len(most) > len(stacks) else set()


def _exchanges(roster: Roster, stacks: StacksByRank) -> bool:
    """Whether messages are sent beside what a recorder keeps, or native frames show a wait for one."""
    if any(facts.calls_unrecorded for facts in roster.ranks.values()):
        return True
    activities = (sample.activity for found in stacks.values() for sample in found.main)
    return any(found.wait is WaitKind.POINT_TO_POINT and found.call_frame is None for found in activities)


def _lock_holders(found: Stacks) -> list[Sample]:
    """Other threads at work in the job's own code at one place; one that sleeps for a time of its own holds nothing up."""
    threads = [thread for thread in found.latest_threads() if may_hold(thread) and thread.activity.wait is not WaitKind.SLEEP]
    return [thread for thread in threads if stayed(found, thread)]
