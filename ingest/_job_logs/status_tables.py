"""Tables of ranks and the step that each is at, as people put them into tickets: the one rank that is behind all others.

`| rank | host | last step | state |` of Markdown, with commas or tabs, or in columns; one row a rank, of one number a step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from forensics.ingest._job_logs.event_owners import LAUNCHER
from forensics.ingest._job_logs.event_rows import Events
from forensics.ingest._job_logs.line_origin import Origin

KIND = "rank_behind"
MOST_BYTES = 1 << 20
"""What somebody put into a ticket is short."""
_HEADING = re.compile(rb"(?im)^[^\n]{0,200}\brank\b[^\n]{0,200}(?:\b|_)(?:step|iter(?:ation)?)s?\b[^\n]{0,200}$")
_SEPARATORS = (re.compile(r"\s*\|\s*"), re.compile(r"\s*[,\t;]\s*"), re.compile(r" {2,}"))
_RANK = re.compile(r"(?i)(?:global[ _]?)?rank")
_STEP = re.compile(r"(?i)(?:last|global|current|train|latest)?[ _]?(?:step|iter|iteration)")
_RULE = re.compile(r"[\s|:+-]*")
_LEAST, _MOST = 4, 65_536
_ORIGIN = Origin(None, LAUNCHER, "", 0)


class StatusTables:
    """Looks at blocks of whole lines, of a file of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._is_short = size <= MOST_BYTES
        self._steps: dict[int, set[int]] = {}
        self._lines: dict[int, tuple[int, str]] = {}

    def survey(self, number: int, block: bytes) -> None:
        """Take whole lines, the first of which has this number."""
        if not self._is_short or (heading := _HEADING.search(block)) is None:
            return
        above = block.count(b"\n", 0, heading.start())
        lines = block[heading.start() :].decode("utf-8", "replace").splitlines()
        for separator in _SEPARATORS:
            names = _cells(lines[0], separator)
            ranks = [at for at, name in enumerate(names) if _RANK.fullmatch(name)]
            steps = [at for at, name in enumerate(names) if _STEP.fullmatch(name)]
            if len(ranks) == len(steps) == 1:
                self._rows(number + above, lines, separator, (len(names), ranks[0], steps[0]))
                return

    def _rows(self, number: int, lines: Sequence[str], separator: re.Pattern[str], columns: tuple[int, int, int]) -> None:
        """Rows up to the first line of something else."""
        width, rank, step = columns
        for at, line in enumerate(lines[1:_MOST], number + 1):
            if _RULE.fullmatch(line):
                continue
            cells = _cells(line, separator)
            if len(cells) != width or not (cells[rank].isdecimal() and cells[step].isdecimal()):
                return
            self._steps.setdefault(int(cells[rank][:7]), set()).add(int(cells[step][:12]))
            self._lines[int(cells[rank][:7])] = at, line

    def add_to(self, events: Events) -> None:
        """The one rank that is behind, where all others of 0 to n - 1 are at one step."""
        steps = {rank: max(said) for rank, said in self._steps.items() if len(said) == 1}
        if len(steps) < max(_LEAST, len(self._steps)) or [*sorted(steps)] != [*range(len(steps))]:
            return
        usual = max(steps.values())
        behind = [rank for rank, step in steps.items() if step < usual]
        if len(behind) == 1:
            line, text = self._lines[behind[0]]
            subject = f"rank={behind[0]} step={steps[behind[0]]} others={usual} count={len(steps) - 1}"
            events.add(line, KIND, subject, text.strip(), None, _ORIGIN)


def _cells(line: str, separator: re.Pattern[str]) -> list[str]:
    return separator.split(line.strip().strip("|").strip())
