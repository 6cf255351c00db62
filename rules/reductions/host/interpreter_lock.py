"""Which thread of a rank held Python's interpreter lock in every sample without getting on."""

from __future__ import annotations

from collections import defaultdict

from forensics.rules.reductions.job import Job
from forensics.rules.reductions.stacks.samples import Sample, same_place


def lock_holder(job: Job, rank: int) -> Sample | None:
    """Newest sample of the thread that held the lock, at the same place, in every one of at least two samples.

    Python code gives the lock away every few milliseconds and moves on; only native code can hold it at one place.
    """
    found = job.stacks.get(rank)
    if found is None or len(found.main) < 2:
        return None
    by_thread: dict[int, list[Sample]] = defaultdict(list)
    for sample in (*found.main, *found.threads):
        by_thread[sample.thread].append(sample)
    for _, samples in sorted(by_thread.items()):
        held = all(sample.owns_gil for sample in samples) and len(samples) == len(found.main)
        if held and same_place(samples):
            return samples[-1]
    return None
