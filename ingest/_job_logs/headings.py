"""Ranks that stand in a line of their own, above what they are said of."""

from __future__ import annotations

import re

from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._job_logs.tracebacks import TRACEBACK

_LONGEST_HEADING = 256
_FAILED = re.compile(r"ERROR|CRITICAL|Exception|[Ee]rror|[Ff]ailed")
# Ray Train prints the errors by which workers ended below their ranks, one error for all that raised it alike.
_OF_WORKERS = re.compile(r"\[Rank (\d{1,7}(?:,\d{1,7}){0,2047})(?: Error Snippet)?\]:?\s*$")
_HEADING = re.compile(r"(?:ERROR|CRITICAL|Exception).{0,80}?\brank[ _:=]?(\d{1,7})\b.{0,120}(?:Exception|[Ee]rror|failed)\b")


class Heading:
    """Ranks that a program puts in front of a traceback, on a line of its own: logging prints it below its message."""

    def __init__(self) -> None:
        self._line = 0
        self._said: tuple[int, ...] = ()
        self._of_traceback: tuple[int, ...] = ()
        self._by_launcher = False
        self.is_end = False
        """Whether the traceback that is being read is by which its ranks ended."""

    def feed(self, number: int, line: str, origin: Origin) -> tuple[int, ...]:
        """Take one line; the ranks of the bare traceback that is being read."""
        if origin.bare.startswith(TRACEBACK):
            self._of_traceback = self._said if number - self._line == 1 else ()
            self.is_end = bool(self._of_traceback) and self._by_launcher
        elif origin.rank is not None and _FAILED.search(line, 0, _LONGEST_HEADING):
            self._note(number, str(origin.rank))
        elif found := _heading(line):
            self._note(number, found[1], found.re is _OF_WORKERS)
        return self._of_traceback

    def _note(self, number: int, ranks: str, by_launcher: bool = False) -> None:
        self._line, self._by_launcher = number, by_launcher
        self._said = tuple(int(rank) for rank in ranks.split(","))


def _heading(line: str) -> re.Match[str] | None:
    if line.startswith("[Rank "):
        return _OF_WORKERS.match(line)
    return _HEADING.search(line, 0, _LONGEST_HEADING) if "rank" in line else None
