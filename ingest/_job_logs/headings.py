"""Ranks that stand in a line of their own, above what they are said of."""

from __future__ import annotations

import re

from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._job_logs.tracebacks import TRACEBACK

_LONGEST_HEADING = 256
_FAILED = re.compile(r"ERROR|CRITICAL|Exception|[Ee]rror|[Ff]ailed")
# Ray Train prints errors of its workers below the rank of each; of several that raised alike it prints one error.
_OF_WORKER = re.compile(r"\[Rank (\d{1,7})(?: Error Snippet)?\]:?\s*$")
_HEADING = re.compile(r"(?:ERROR|CRITICAL|Exception).{0,80}?\brank[ _:=]?(\d{1,7})\b.{0,120}(?:Exception|[Ee]rror|failed)\b")


class Heading:
    """Ranks that a program puts in front of a traceback, on a line of its own: logging prints it below its message."""

    def __init__(self) -> None:
        self._said: tuple[int, int] | None = None
        self._of_traceback: int | None = None

    def feed(self, number: int, line: str, origin: Origin) -> int | None:
        """Take one line; the rank of the bare traceback that is being read."""
        if origin.bare.startswith(TRACEBACK):
            is_next = self._said is not None and number - self._said[0] == 1
            self._of_traceback = self._said[1] if is_next and self._said else None
        elif origin.rank is not None and _FAILED.search(line, 0, _LONGEST_HEADING):
            self._said = number, origin.rank
        elif found := _heading(line):
            self._said = number, int(found[1])
        return self._of_traceback


def _heading(line: str) -> re.Match[str] | None:
    if line.startswith("[Rank "):
        return _OF_WORKER.match(line, 0, _LONGEST_HEADING)
    return _HEADING.search(line, 0, _LONGEST_HEADING) if "rank" in line else None
