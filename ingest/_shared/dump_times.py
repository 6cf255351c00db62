"""Times that people and scripts write between the stack dumps of one file: ISO 8601, and what `date` prints."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T _](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_DATE = re.compile(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) +([A-Z][a-z]{2}) +(\d{1,2}) +(\d\d:\d\d:\d\d)(?: [AP]M)?(?: [A-Z]{2,5})? +(\d{4})\b"
)


_CLOCK = re.compile(r"(?<![\d:.])([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?(?![\d:])")


def clock_in(line: str) -> int | None:
    """Seconds of the day that a line gives without a date, as in `=== host n-1 pid 88 === 02:44:00`; None for several."""
    found = _CLOCK.findall(line)
    return 3600 * int(found[0][0]) + 60 * int(found[0][1]) + int(found[0][2] or 0) if len(found) == 1 else None


def time_in(line: str) -> int | None:
    """The time in a line, in ns; one without a zone is taken for UTC: it is only compared within its file."""
    try:
        if match := _ISO.search(line):
            zone = (match[4] or "+00:00").replace("Z", "+00:00")
            found = datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}")
            return int(found.timestamp()) * 10**9 + int((match[3] or "0").ljust(9, "0"))
        if match := _DATE.search(line):
            found = datetime.strptime(f"{match[4]} {match[1]} {match[2]} {match[3]}", "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)
            return int(found.timestamp()) * 10**9
    except ValueError:
        return None
    return None
