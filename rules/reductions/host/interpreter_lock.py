"""Which thread of a rank held Python's interpreter lock in every sample without getting on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NewType

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.stacks.samples import Sample, Stacks, StacksByRank, same_place

LockHolders = NewType("LockHolders", Mapping[int, Sample])
"""By rank the thread that kept the interpreter lock, in its newest sample."""


@reduction
def lock_holders(stacks: StacksByRank) -> LockHolders:
    """Threads that held the lock at one place in every one of at least two samples."""
    return LockHolders({rank: holder for rank, found in stacks.items() if (holder := _holder(found))})


def _holder(found: Stacks) -> Sample | None:
    """The thread that did not get on with the lock.

    Python code gives the lock away every few milliseconds and moves on; only native code can hold it at one place. Calls that
    wait for other ranks, and the autograd engine, give it away before they wait: a sampler that says otherwise is wrong.
    """
    if len(found.main) < 2:
        return None
    by_thread: dict[int, list[Sample]] = defaultdict(list)
    for sample in (*found.main, *found.threads):
        by_thread[sample.thread].append(sample)
    for _, samples in sorted(by_thread.items()):
        held = all(sample.owns_gil for sample in samples) and len(samples) == len(found.main)
        waits = any(sample.activity.waits_for_others for sample in samples)
        if held and not waits and same_place(samples):
            return samples[-1]
    return None
