"""Where an exception was raised, from the traceback in a log: the only stack that a process leaves that has ended."""

from __future__ import annotations

import re
from collections.abc import Iterable

from forensics.rules.reductions.logs.events import LogEvent
from forensics.rules.reductions.stacks.activity import Activity, activity
from forensics.rules.reductions.stacks.call_paths import frame

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d{1,9}), in (?P<name>.+)')


def raised_at(events: Iterable[LogEvent]) -> Activity | None:
    """Place of the last exception in the events of a rank; None when no traceback came with it."""
    text = next((event.text for event in reversed(tuple(events)) if event.kind == "traceback"), "")
    frames = [match for line in text.splitlines() if (match := _FRAME.match(line))]
    path = tuple(frame(match["name"], match["file"], int(match["line"])) for match in reversed(frames))
    return activity(path) if path else None
