"""What samples of a thread tell of its running: the share of a CPU that it had, and how often it woke."""

from __future__ import annotations

from collections.abc import Sequence

# The kernel reports times to processes in hundredths of a second on every architecture that trains.
NS_PER_TICK = 10_000_000
_LOCK = "futex"


def cpu_share(samples: Sequence[tuple[int | None, int | None]]) -> float | None:
    """Share of the time on a CPU, from (clock ticks, time in ns) of each sample; None when fewer than two samples have both."""
    known = [(ticks, time_ns) for ticks, time_ns in samples if ticks is not None and time_ns is not None]
    if len(known) < 2 or known[-1][1] <= known[0][1]:
        return None
    share = (known[-1][0] - known[0][0]) * NS_PER_TICK / (known[-1][1] - known[0][1])
    return min(max(share, 0.0), 1.0)


def wakes_per_s(samples: Sequence[tuple[int | None, int | None, str | None]]) -> float | None:
    """Context switches per second, from (their count, time in ns, kernel function it sleeps in) of each sample, oldest first.

    None with fewer than two samples, and for a thread that sleeps for a lock: one that waits for Python's own lock, or for a
    condition with a time limit, wakes hundreds of times a second for nothing.
    """
    known = [(count, time_ns) for count, time_ns, _ in samples if count is not None and time_ns is not None]
    if len(known) < 2 or known[-1][1] <= known[0][1] or any((place or "").startswith(_LOCK) for *_, place in samples):
        return None
    return (known[-1][0] - known[0][0]) / (known[-1][1] - known[0][1]) * 1e9
