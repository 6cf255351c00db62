"""Waits for jobs that are stuck although somebody keeps a CPU busy."""

from __future__ import annotations

import time

from tests.live.faults import ALL
from tests.live.harness import START_LIMIT_S, Job

SILENT_S = 6.0
# A job that still starts is silent too, after the first words of its libraries.
LEAST_LINES = 5


def wait_silent(job: Job, ranks: tuple[int, ...] = ALL) -> None:
    """Wait until the logs of these ranks stopped growing and nobody ends; for jobs in which somebody keeps a CPU busy."""
    deadline = time.monotonic() + START_LIMIT_S
    since, before, gone = time.monotonic(), [0] * len(ranks), ended(job)
    while time.monotonic() - since < SILENT_S or min(before) < LEAST_LINES:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the job still moves\n{job.tails()}")
        time.sleep(0.2)
        now = [job.lines(rank) for rank in ranks], ended(job)
        if now != (before, gone):
            since, (before, gone) = time.monotonic(), now


def ended(job: Job) -> list[bool]:
    """Which ranks have no living process any more: the last words of one are in its log long before it is gone."""
    return [state in (None, "Z", "X") for state in job.states()]
