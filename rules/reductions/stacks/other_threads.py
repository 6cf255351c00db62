"""Threads besides the main one: which are idle, and which may hold what another one waits for."""

from __future__ import annotations

from forensics.model import WaitKind
from forensics.rules.reductions.stacks.samples import Sample, Stacks, same_place


def is_idle(thread: Sample) -> bool:
    """Whether the thread waits for work: at a queue or condition of the standard library."""
    path = thread.activity.python_path
    return not path or (thread.activity.wait is WaitKind.LOCK and path[0].origin == "stdlib")


def stayed(found: Stacks, thread: Sample) -> bool:
    """Whether the thread was at one place in all samples of it."""
    return same_place([sample for sample in found.threads if sample.thread == thread.thread])


def may_hold(thread: Sample) -> bool:
    """Whether the thread may hold a lock that another one waits for: in the job's own code, not idle, in no communication."""
    return thread.activity.application is not None and not thread.activity.waits_for_others and not is_idle(thread)
