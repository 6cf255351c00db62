"""Waits for jobs that are stuck although somebody keeps a CPU busy."""

from __future__ import annotations

import time

from tests.live.faults import ALL
from tests.live.harness import START_LIMIT_S, Job

SILENT_S = 6.0


def wait_silent(job: Job, ranks: tuple[int, ...] = ALL) -> None:
    """Wait until the logs of these ranks stopped growing; for jobs in which somebody keeps a CPU busy."""
    deadline = time.monotonic() + START_LIMIT_S
    since, before = time.monotonic(), [0] * len(ranks)
    while time.monotonic() - since < SILENT_S or not all(before):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the job still moves\n{job.tails()}")
        time.sleep(0.2)
        now = [job.lines(rank) for rank in ranks]
        if now != before:
            since, before = time.monotonic(), now
