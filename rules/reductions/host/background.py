"""Stalls of a main thread that waits for another thread of its own process: a checkpoint writer, a prefetcher."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from forensics.model import Evidence, StageName, WaitKind
from forensics.rules.reductions.host.interpreter_lock import lock_holder
from forensics.rules.reductions.host.stalls import Stall, stalls
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.stacks.samples import Sample, Stacks, same_place

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


def helped_stalls(job: Job) -> Iterator[Helped]:
    """All stalls in rank order, each with the background thread that its main thread waits for, when there is one."""
    for stall in stalls(job):
        found = job.stacks.get(stall.rank)
        thread = _blocked_holder(job, stall) or (_explaining(found, stall) if found and stall.activity else None)
        yield Helped(replace(stall, stage=thread.activity.stage) if thread else stall, thread)


def _blocked_holder(job: Job, stall: Stall) -> Sample | None:
    """The thread that keeps the interpreter lock inside a library's read or write: the main thread stands wherever it was."""
    holder = lock_holder(job, stall.rank)
    if holder is None or holder.is_main or holder.activity.by_words or holder.activity.stage not in _STAGES:
        return None
    return holder


def _explaining(found: Stacks, stall: Stall) -> Sample | None:
    """The thread at work in a checkpoint or in data loading that stayed where it is while the main thread waits."""
    if stall.activity is None or stall.activity.wait not in _WAITING or stall.child:
        return None
    wanted = (stall.stage,) if stall.stage in _STAGES else _STAGES if stall.stage is StageName.UNKNOWN else ()
    busy = [thread for thread in found.latest_threads() if thread.activity.stage in wanted and _at_work(thread)]
    return next((thread for thread in busy if _stayed(found, thread)), None)


def _at_work(thread: Sample) -> bool:
    """Neither idle at a queue nor in communication; a loader of the library without code of the job only passes batches on."""
    activity = thread.activity
    if activity.communicating or is_idle(thread):
        return False
    return activity.stage is StageName.CHECKPOINT or activity.application is not None


def is_idle(thread: Sample) -> bool:
    """Whether the thread waits for work: at a queue or condition of the standard library."""
    path = thread.activity.python_path
    return not path or (thread.activity.wait is WaitKind.LOCK and path[0].origin == "stdlib")


def _stayed(found: Stacks, thread: Sample) -> bool:
    return same_place([sample for sample in found.threads if sample.thread == thread.thread])


def thread_statement(thread: Sample, rank: int) -> Evidence:
    """Say where another thread of the rank's process is."""
    name = f" ({thread.name})" if thread.name else ""
    return Evidence(f"thread {thread.thread}{name} of rank {rank} at {thread.activity.describe()}", thread.source)
