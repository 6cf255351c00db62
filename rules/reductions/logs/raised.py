"""Which exceptions in a log ended the rank that raised them, and which its program may have caught and noted.

torch prints the rank in front of what nothing caught, unless the program puts it in front of all its lines; elsewhere the
outermost frame of the traceback, or that the rank says nothing more while its peers give up waiting for it, shows the same.
A rank that waits, or a job that trains, later went on; what could not be imported was optional more often than not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

_MARKED = re.compile(r"\[rank\d{1,7}\]: |^ +\S")
_OUTERMOST = re.compile(r'[^\n]*(?:, in <module>|multiprocessing/process\.py", line \d{1,7}, in _bootstrap)(?:\n|$)')
"""The frame around which nothing stands: what is printed from there on was caught nowhere below."""
_IMPORT = re.compile(r"(?:ImportError|ModuleNotFoundError):")
_NEAR = 1000
"""Lines between an error and what it does to the peers."""
_GAVE_UP = ("watchdog_timeout", "transfer_timeout", "store_timeout", "barrier_timeout")
_STALLED = f"""
SELECT source_id, rank, min(locator), max(locator) FROM log_events WHERE kind IN {_GAVE_UP} GROUP BY source_id, rank
"""
# One more step may be noted by a peer that was ahead.
_STEPS = "SELECT source_id, max(locator, 2)[2], count(*) FILTER (text LIKE '%[rank%') FROM log_progress GROUP BY source_id"

_FINISHED = "SELECT source_id, max(locator) FROM log_events WHERE kind = 'job_finished' GROUP BY source_id"
_SERIES = """
SELECT source_id, min(locator), max(locator) FROM log_progress GROUP BY source_id, rank, series, part
ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that ended a rank by its own doing; `of_gpu` marks one that its device reported."""

    rank: int
    text: str
    source: str
    of_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Standstill:
    """Lines in which ranks gave up waiting, by artefact: the first, the first and last of each rank; the last step but one.

    `labelled` are artefacts in which the rank stands in front of steps too. `finished` are the lines by which a trainer says
    that it is done, `series` the first and last line of each series of steps.
    """

    first: Mapping[int, int]
    firsts: Mapping[tuple[int, int], int]
    lasts: Mapping[tuple[int, int], int]
    steps: Mapping[int, int | None]
    labelled: frozenset[int] = frozenset()
    finished: Mapping[int, int] = field(default_factory=dict)
    series: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def had_begun(self, source_id: int, line: int) -> bool:
        """Whether somebody had given up before a line."""
        return line > self.first.get(source_id, line)

    def goes_on(self, source_id: int, rank: int, line: int) -> bool:
        """Whether a rank gives up waiting after a line, or the job trains."""
        return self.lasts.get((source_id, rank), line) > line or (self.steps.get(source_id) or line) > line

    def was_survived(self, source_id: int, line: int) -> bool:
        """Whether steps go on across a line, or all begin below it, and their trainer says in the end that it is done.

        Steps alone do not tell: what a program had written before may be printed after its error.
        """
        series = self.series.get(source_id, ())
        spans = any(first < line < last for first, last in series) or all(line < first for first, _ in series)
        return bool(series) and spans and self.finished.get(source_id, line) > line


def standstill(connection: DuckDBPyConnection) -> Standstill:
    """Read who gave up waiting, and until when steps were trained."""
    rows = rows_of(connection, "log_events", _STALLED, kinds=_GAVE_UP)
    first: dict[int, int] = {}
    for source_id, _, begin, _ in rows:
        first[source_id] = min(begin, first.get(source_id, begin))
    ranked = [((source_id, rank), begin, end) for source_id, rank, begin, end in rows if rank is not None]
    steps = rows_of(connection, "log_progress", _STEPS)
    return Standstill(
        first=first,
        firsts={key: begin for key, begin, _ in ranked},
        lasts={key: end for key, _, end in ranked},
        steps={source_id: line for source_id, line, _ in steps},
        labelled=frozenset(source_id for source_id, _, labelled in steps if labelled),
        finished=dict(rows_of(connection, "log_events", _FINISHED, kinds=("job_finished",))),
        series=_series(connection),
    )


def _series(connection: DuckDBPyConnection) -> dict[int, tuple[tuple[int, int], ...]]:
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for source_id, first, last in rows_of(connection, "log_progress", _SERIES):
        found[source_id].append((first, last))
    return {source_id: tuple(spans) for source_id, spans in found.items()}


class Raised:
    """Takes tracebacks and exceptions in the order of the log, the traceback of an exception first."""

    def __init__(self, stalls: Standstill) -> None:
        self._stalls = stalls
        self._outermost: tuple[int, int] | None = None

    def is_uncaught(self, kind: str, rank: int | None, text: str, source_id: int, line: int) -> bool:
        """Whether this is an exception that nothing caught."""
        if kind == "traceback" and _OUTERMOST.match(text):
            self._outermost = source_id, line
        if kind != "exception" or self._stalls.was_survived(source_id, line):
            return False
        if _MARKED.search(text) and source_id not in self._stalls.labelled:
            return True
        is_outermost = self._outermost == (source_id, line) and not _IMPORT.search(text)
        return is_outermost and rank is not None and not self._stalls.goes_on(source_id, rank, line)


@dataclass(slots=True)
class Caught:
    """Errors that programs logged themselves: one of its own, and right behind it the errors of peers that lost the rank."""

    stalls: Standstill
    first: dict[int, tuple[int, int, Failure]] = field(default_factory=dict)
    lost: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, failure: Failure, follows: bool, source_id: int, line: int) -> None:
        """Take an exception."""
        if follows:
            self.lost.setdefault(failure.rank, (source_id, line))
        else:
            self.first.setdefault(failure.rank, (source_id, line, failure))

    @property
    def is_shared(self) -> bool:
        """Whether several ranks raised something of their own."""
        return len(self.first) > 1

    def own(self, died: set[int], ranks: int) -> dict[int, Failure]:
        """The one rank that raised something of its own, where the others only tell that it was gone, or that died by it.

        Of `ranks` all others gave up waiting, where nothing but that tells of it. Logs of one rank each have no order: there
        all others must have lost it, and it lost nobody.
        """
        if len(self.first) != 1:
            return {}
        ((rank, (source_id, line, failure)),) = self.first.items()
        if died == {rank}:
            return {rank: failure}
        waited = {peer: (source, begin) for (source, peer), begin in self.stalls.firsts.items()}
        lost = self.lost or (waited if len(waited.keys() - {rank}) >= max(2, ranks - 1) else {})
        sources = [other for other, _ in lost.values()]
        apart = len({source_id, *sources}) > len(sources) >= max(2, ranks - 1)
        near = apart or all(other == source_id and 0 < at - line < _NEAR for other, at in lost.values())
        is_last = rank not in lost and not self.stalls.goes_on(source_id, rank, line)
        return {rank: failure} if lost and near and is_last else {}
