"""Ranks that did not come as far as the others, which say that they wait: by lines that a program writes alike on all ranks.

A line that only some ranks write shows nothing by itself: the main process, or a stage, may have lines of its own. It tells
where those who wrote it say at the end of the log, again and again, that they wait in communication, where all others wrote
the lines before it as often as they did and nothing since, and where these others are no majority.

What all ranks but one wrote last, in a log that ends there, is where to begin with that one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from forensics.ingest._job_logs.event_rows import Events
from forensics.ingest._job_logs.front import front
from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.rank_rolls import STANDS, RankRolls
from forensics.ingest._job_logs.reports import report

PASTED_BYTES = 1 << 20
"""Larger files are not read for it: every line would have to be looked at."""
_OPERATION = r"barrier|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|collective"
_HINT = re.compile(rb"(?i)rank\W{0,2}\d")
_WAITS = re.compile(rf"(?i)\bwait(?:s|ing)\b(?: for)?(?: (?P<seconds>\d{{1,6}}) ?s\b)?.{{0,60}}?(?P<kind>{_OPERATION})")
_LEAST_RANKS, _MOST_RANKS = 3, 1 << 12
_LONGEST_WAIT_LINE = 512
_LEAST_SECONDS = 30
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    rank: int
    form: str
    kind: str | None
    seconds: int


class Milestones:
    """The lines of a file in which its ranks speak for themselves."""

    def __init__(self, size: int) -> None:
        self._is_read = size <= PASTED_BYTES
        self._lines: list[_Line] = []
        self._rolls = RankRolls()

    def survey(self, number: int, block: bytes) -> None:
        """Take whole lines, the first of which has this number."""
        if self._is_read and _HINT.search(block):
            for at, line in enumerate(block.decode("utf-8", "replace").split("\n"), number):
                self._lines += [found] if (found := _spoken(at, line)) else []
                self._rolls.feed(at, line)

    @property
    def positions(self) -> Iterator[LogPosition]:
        """Rows of one operation: who waits in it, and who is not there."""
        said: dict[int, Counter[str]] = defaultdict(Counter)
        last: dict[int, _Line] = {}
        for line in self._lines:
            said[line.rank][line.form] += line.kind is None
            last[line.rank] = line
        waiting = {rank for rank, line in last.items() if line.kind}
        missing = last.keys() - waiting
        first = min((line.number for line in self._lines if line.kind and line.rank in waiting), default=0)
        is_whole = len(last) >= _LEAST_RANKS and last.keys() == set(range(len(last))) and 0 < len(missing) <= len(waiting)
        if not is_whole or any(last[rank].number > first for rank in missing) or not _lasting(self._lines, waiting):
            return
        kinds = {last[rank].kind for rank in waiting}
        ahead = _reached(said, waiting, missing)
        if ahead is not None and len(kinds) == 1 and all(_is_common(said, last[rank].form) for rank in missing):
            name = f'the wait after "{ahead[:_SHOWN].strip()}"'
            yield from report("milestone", first, name, waiting, missing, len(last), kinds.pop() or "")

    def add_to(self, events: Events) -> None:
        """The one rank that did not write what all others wrote last, once each, below a line that all ranks wrote."""
        self._rolls.add_to(events)
        said: dict[int, Counter[str]] = defaultdict(Counter)
        last: dict[int, _Line] = {}
        for line in self._lines:
            said[line.rank][line.form] += 1
            last[line.rank] = line
        if len(last) < _LEAST_RANKS or last.keys() != set(range(len(last))):
            return
        form, writers = Counter(line.form for line in last.values()).most_common(1)[0]
        behind = [rank for rank, line in last.items() if line.form != form]
        times = {rank: counted[form] for rank, counted in said.items()}
        if writers != len(last) - 1 or any(count != (rank not in behind) for rank, count in times.items()):
            return
        odd = last[behind[0]]
        is_first = all(odd.number < line.number for line in last.values() if line is not odd)
        # What ranks that gave up wrote last is for the readers of their watchdogs.
        is_apart = not STANDS & {*events.columns["kind"]} and _one_by_one(self._lines)
        if _is_common(said, odd.form) and (is_first or is_apart):
            subject = f"{writers} others wrote: {form.strip()[-3 * _SHOWN :]}"
            events.add(odd.number, "not_reached", subject, odd.form, None, Origin(odd.rank, None, "", 0))


def _one_by_one(lines: Sequence[_Line]) -> bool:
    """Whether what each rank wrote stands together: then the place of a line tells nothing of its time."""
    changes = sum(one.rank != other.rank for one, other in pairwise(lines))
    return changes == len({line.rank for line in lines}) - 1


def _spoken(number: int, line: str) -> _Line | None:
    origin = front(line[:_LONGEST_WAIT_LINE])
    text = origin.bare[origin.text :]
    if origin.rank is None or origin.rank >= _MOST_RANKS:
        return None
    waits = _WAITS.search(text)
    form = re.sub(r"\d[\d.,]*", "N", text)
    seconds = int(waits["seconds"] or 0) if waits else 0
    return _Line(number, origin.rank, form, waits["kind"].lower() if waits else None, seconds)


def _lasting(lines: list[_Line], waiting: set[int]) -> bool:
    """Whether each of them says so again and again, or for how long."""
    times = Counter(line.rank for line in lines if line.kind)
    longest = {rank: max(line.seconds for line in lines if line.kind and line.rank == rank) for rank in waiting}
    return all(times[rank] > 1 or longest[rank] >= _LEAST_SECONDS for rank in waiting)


def _reached(said: Mapping[int, Counter[str]], waiting: set[int], missing: set[int]) -> str | None:
    """The first form of line that all who wait wrote once more than all others."""
    for form in next(iter(said[rank] for rank in sorted(waiting))):
        times = {said[rank][form] for rank in waiting}
        others = {said[rank][form] for rank in missing}
        if len(times) == len(others) == 1 and times.pop() == others.pop() + 1:
            return form
    return None


def _is_common(said: Mapping[int, Counter[str]], form: str) -> bool:
    """Whether all ranks wrote it, those who got further perhaps once more."""
    times = [counted[form] for counted in said.values()]
    return min(times) > 0 and max(times) - min(times) <= 1
