"""Times for people: UTC only, exact, and never the time of the reader's machine."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from forensics.model import Outcome, Since

_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))


def utc(time_ns: int) -> str:
    """CLOCK_REALTIME nanoseconds as `2026-11-20T11:28:56.123Z`; as `N ns` when no calendar has the year."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"


def duration(length_ns: int) -> str:
    """Nanoseconds in the unit that fits, at most four digits: `3 ms`, `1.25 s`, `898.7 ms`."""
    for unit, width in _UNITS:
        if abs(length_ns) >= width:
            places = max(0, 4 - len(str(abs(length_ns) // width)))
            shown = f"{length_ns / width:.{places}f}"
            return (shown.rstrip("0").rstrip(".") if places else shown) + f" {unit}"
    return f"{length_ns} ns"


def marks(length_ns: int) -> range:
    """Round moments for the axis of a drawing, from 0 to at most `length_ns`: four to nine of them where there are so many."""
    power = 10 ** max(len(str(length_ns)) - 2, 0)
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if length_ns < 9 * power * factor)
    return range(0, length_ns + 1, step)


def begins(outcome: Outcome) -> str:
    """What it is that began at the moment of `since`."""
    return "slowdown begins" if outcome is Outcome.SLOWDOWN else "stall begins"


def is_realtime(since: Since) -> bool:
    """Whether the clock of `since` is CLOCK_REALTIME, so that it can be compared with the timeline."""
    return "realtime" in since.clock.lower()


def moment(since: Since) -> str:
    """When the stall began, with its error bound: `2026-11-20T11:28:56.123Z (+-3 ms), step 412`."""
    when = utc(since.time_ns) if is_realtime(since) else f"{since.time_ns} ns of clock {since.clock}"
    step = "" if since.step is None else f", step {since.step}"
    return f"{when} ({uncertainty(since)}){step}"


def uncertainty(since: Since) -> str:
    """The error bound in words, of the clock or of the step in which an onset lies: none was measured where it is 0."""
    return f"+-{duration(since.bound_ns)}" if since.bound_ns else "clock uncertainty unknown"


def short(since: Since) -> str:
    """The same to the second, `2026-11-20T11:28:56Z, step 412`; the bound is kept where it is a second or more."""
    if not is_realtime(since) or since.bound_ns >= 1_000_000_000:
        return moment(since)
    step = "" if since.step is None else f", step {since.step}"
    return re.sub(r"\.\d+Z", "Z", utc(since.time_ns)) + step


def offset(time_ns: int, since: Since | None) -> str:
    """The time against the stall, `T-12.500 s`; empty when the stall is not dated on the same clock."""
    if since is None or not is_realtime(since):
        return ""
    return f"T{(time_ns - since.time_ns) / 1_000_000_000:+.3f} s"
