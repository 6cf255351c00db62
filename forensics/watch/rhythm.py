"""How a rank usually moves, and whether it still does: the trigger of Mycroft, Algorithm 1, on what single readings give.

No completion where there was a rhythm is a standstill; half the throughput, or twice the time for an operation, is a slowdown.
A reading sees a number of completed operations (and bytes), or a stack, or time on a CPU; only numbers tell of slowdowns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

_LEAST_MOVES = 3
"""Movements seen before there is a rhythm to break."""
_PATIENCE = 2.0
"""A standstill lasts so many times the longest pause that ended by itself: saving and evaluation have pauses of their own."""
_LEAST_WINDOWS, _MOST_WINDOWS = 4, 12
_SLOW_WINDOWS = 3
"""Windows in a row that must be slow: a pause, such as a checkpoint, reaches into two, or covers one wholly."""
_BUSY = 0.02
"""Share of a core below which a process is idle: threads of its own that read a clock use less."""

NOTHING = "nothing"
"""Source of a reading that gave nothing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds without movement that are a standstill, of a window of rates, and to the first movement; `drop` is the factor."""

    stuck_s: float = 60.0
    window_s: float = 60.0
    first_s: float = 900.0
    drop: float = 2.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of one rank, `at_s` on the monotonic clock. `source` says which of the other fields can be had."""

    rank: int
    at_s: float
    source: str
    completed: int | None = None
    moved_bytes: int | None = None
    stack: str | None = None
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rhythm:
    """What was seen of one rank: when it last moved, how often, the longest pause between movements, rates of closed windows.

    `rates` and `byte_rates` are per second, oldest first. `is_known` is set while its standstill has been reported.
    """

    first: Reading
    last: Reading
    moved_s: float
    moves: int = 0
    longest_s: float = 0.0
    window: Reading | None = None
    rates: tuple[float, ...] = ()
    byte_rates: tuple[float, ...] = ()
    is_known: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether operations are counted, so that a standstill of this rank alone says something."""
        return self.last.completed is not None

    def still_s(self) -> float:
        """Seconds without movement at the last reading."""
        return self.last.at_s - self.moved_s

    def stands(self, limits: Limits) -> bool:
        """Whether it has not moved for longer than it ever does; without any rhythm, for longer than any start takes."""
        if self.moves < _LEAST_MOVES:
            return self.still_s() >= limits.first_s
        return self.still_s() >= max(limits.stuck_s, _PATIENCE * self.longest_s)


def begun(reading: Reading) -> Rhythm:
    """The rhythm after the first reading."""
    return Rhythm(reading, reading, reading.at_s, window=reading)


def seen(rhythm: Rhythm, reading: Reading, limits: Limits) -> Rhythm:
    """The rhythm after another reading; that of stacks says nothing of counters that can only now be had."""
    if reading.completed is not None and rhythm.last.source != NOTHING and not rhythm.is_counted:
        return begun(reading)
    found = replace(rhythm, last=reading)
    if _has_moved(rhythm.last, reading):
        longest = max(rhythm.longest_s, reading.at_s - rhythm.moved_s)
        found = replace(found, moved_s=reading.at_s, moves=rhythm.moves + 1, longest_s=longest, is_known=False)
    return _with_rates(found, reading, limits)


def stated(rhythm: Rhythm) -> Rhythm:
    """The rhythm while its standstill is known: it is stated again only after it has moved."""
    return replace(rhythm, is_known=True)


def relearned(rhythm: Rhythm) -> Rhythm:
    """The rhythm after a slowdown has been stated: what comes next is the new normal."""
    return replace(rhythm, rates=(), byte_rates=(), window=rhythm.last)


def slowdown(rhythm: Rhythm, limits: Limits) -> str | None:
    """What dropped, with numbers, where the last windows are slow beside those before; a standstill is none."""
    for rates, what in ((rhythm.rates, "operations"), (rhythm.byte_rates, "bytes")):
        usual, last = rates[:-_SLOW_WINDOWS], rates[-_SLOW_WINDOWS:]
        if len(usual) < _LEAST_WINDOWS or not all(last):
            continue
        normal = median(usual)
        if max(last) * limits.drop <= normal:
            return f"{max(last):.3g} {what} a second, {normal:.3g} before"
    return None


def _has_moved(before: Reading, now: Reading) -> bool:
    """Whether something happened between two readings; readings of different kinds cannot be held against each other."""
    if before.source != now.source:
        return True
    if now.completed is not None or now.stack is not None:
        return (now.completed, now.stack) != (before.completed, before.stack)
    if now.cpu_s is not None and before.cpu_s is not None:
        return now.cpu_s - before.cpu_s >= _BUSY * (now.at_s - before.at_s)
    return False


def _with_rates(rhythm: Rhythm, reading: Reading, limits: Limits) -> Rhythm:
    """Close the window when it is over; windows without any movement are left to the standstill."""
    begin = rhythm.window
    if begin is None or begin.source != reading.source:
        return replace(rhythm, window=reading)
    span = reading.at_s - begin.at_s
    if span < limits.window_s:
        return rhythm
    operations = _rate(begin.completed, reading.completed, span)
    moved_bytes = _rate(begin.moved_bytes, reading.moved_bytes, span)
    return replace(
        rhythm,
        window=reading,
        rates=(*rhythm.rates, *operations)[-_MOST_WINDOWS:],
        byte_rates=(*rhythm.byte_rates, *moved_bytes)[-_MOST_WINDOWS:],
    )


def _rate(before: int | None, now: int | None, span_s: float) -> tuple[float, ...]:
    """Per second; nothing where it is not counted or the count began anew."""
    return ((now - before) / span_s,) if before is not None and now is not None and now >= before else ()
