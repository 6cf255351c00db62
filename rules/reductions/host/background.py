"""Stalls of a main thread that waits for another thread of its own process: a checkpoint writer, a prefetcher."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NewType

from forensics.model import Evidence, StageName, WaitKind
from forensics.rules.reductions.host.interpreter_lock import LockHolders
from forensics.rules.reductions.host.stalls import Stall, Stalls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.stacks.other_threads import is_idle, stayed
from forensics.rules.reductions.stacks.samples import Sample, Stacks, StacksByRank

# What a thread that waits for another one of its process looks like.
_WAITING = frozenset({WaitKind.LOCK, WaitKind.SLEEP, WaitKind.CHILD})
_STAGES = (StageName.CHECKPOINT, StageName.DATA)


@dataclass(frozen=True, slots=True)
class Helped:
    """A stall, with the thread that explains it; the stage is the thread's where the main thread shows none."""

    stall: Stall
    thread: Sample | None

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Where the explaining thread is."""
        return (thread_statement(self.thread, self.stall.rank),) if self.thread else ()


HelpedStalls = NewType("HelpedStalls", tuple[Helped, ...])
"""Stalls, each with the background thread that its main thread waits for."""


@reduction
def helped_stalls(stalls: Stalls, stacks: StacksByRank, holders: LockHolders) -> HelpedStalls:
    """All stalls in rank order, each with the background thread that its main thread waits for, when there is one."""
    return HelpedStalls(tuple(_helped(stall, stacks.get(stall.rank), holders.get(stall.rank)) for stall in stalls))


def _helped(stall: Stall, found: Stacks | None, holder: Sample | None) -> Helped:
    thread = _blocked(holder) or (_explaining(found, stall) if found and stall.activity else None)
    return Helped(replace(stall, stage=thread.activity.stage, by_words=False) if thread else stall, thread)


def _blocked(holder: Sample | None) -> Sample | None:
    """The thread that keeps the interpreter lock inside a library's read or write: the main thread stands wherever it was."""
    if holder is None or holder.is_main or holder.activity.by_words or holder.activity.stage not in _STAGES:
        return None
    return holder


def _explaining(found: Stacks, stall: Stall) -> Sample | None:
    """The thread at work in a checkpoint or in data loading that stayed where it is while the main thread waits."""
    if stall.activity is None or stall.activity.wait not in _WAITING or stall.child:
        return None
    is_open = stall.by_words or stall.stage is StageName.UNKNOWN
    wanted = _STAGES if is_open else (stall.stage,) if stall.stage in _STAGES else ()
    busy = [thread for thread in found.latest_threads() if thread.activity.stage in wanted and _at_work(thread)]
    return next((thread for thread in busy if stayed(found, thread)), None)


def _at_work(thread: Sample) -> bool:
    """Neither idle at a queue nor waiting for other ranks; a library's loader alone only passes batches on."""
    activity = thread.activity
    if activity.waits_for_others or activity.words_alone or is_idle(thread):
        return False
    return activity.stage is StageName.CHECKPOINT or activity.application is not None


def thread_statement(thread: Sample, rank: int) -> Evidence:
    """Say where another thread of the rank's process is."""
    name = f" ({thread.name})" if thread.name else ""
    return Evidence(f"thread {thread.thread}{name} of rank {rank} at {thread.activity.describe()}", thread.source)
