"""Which rank detectors of stragglers report as the slowest, how clearly and how often; clocks only say why.

Only sections that hold a rank's own work count: one that waits for peers is longest on ranks that are early.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import StageName
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.progress.stage_times import StepOfStage, stage_times

_SECTION_STAGES = {
    re.compile(r"forward|\bfwd", re.IGNORECASE): StageName.FORWARD,
    re.compile(r"backward|\bbwd", re.IGNORECASE): StageName.BACKWARD,
    re.compile(r"optim", re.IGNORECASE): StageName.OPTIMIZER,
    re.compile(r"data", re.IGNORECASE): StageName.DATA,
}
_OF_SEVERAL = re.compile(r"recv|receive|send|comm|reduce|gather|sync|wait|barrier|p2p", re.IGNORECASE)
_LEAST_SLOW = 1.3
_LEAST_SINCE, _SHARE_SINCE = 20, 0.95
_ROWS = """
SELECT r.source_id, r.measure, r.report, r.rank, r.factor, r.is_listed, s.path || '#line=' || r.locator
FROM straggler_reports r JOIN sources s USING (source_id) ORDER BY s.path, r.measure, r.report, r.factor DESC, r.rank
"""


@dataclass(frozen=True, slots=True)
class Slowest:
    """The ranks that one measure of one log reports as the slowest in most of `reports`: in `times` of them; mostly one.

    `factor` is how many times as long as the fastest it takes, in the middle of these, `next_factor` the most that another rank
    takes, None where no other is listed. `times_ms` are its own time of a stage and that of its peers. `has_begun` says that
    the reports are only the last ones: it was no slower than others before.
    """

    measure: str
    stage: StageName
    ranks: tuple[int, ...]
    times: int
    reports: int
    factor: float
    next_factor: float | None
    source: str
    times_ms: tuple[float, float] | None = None
    has_begun: bool = False


StragglerReports = NewType("StragglerReports", tuple[Slowest, ...])
"""One for each measure of each log."""


@reduction
def straggler_reports(connection: DuckDBPyConnection) -> StragglerReports:
    """Read the reports of a case."""
    reports: dict[tuple[int, str], dict[int, list[tuple[int, float, bool, str]]]] = defaultdict(lambda: defaultdict(list))
    for source_id, measure, report, *row in rows_of(connection, "straggler_reports", _ROWS):
        if not measure.startswith("section ") or _stage(measure) is not StageName.UNKNOWN:
            reports[source_id, measure][report].append(tuple(row))
    found = [_slowest(measure, list(listed.values()), max(listed)) for (_, measure), listed in reports.items()]
    return StragglerReports((*found, *_by_times(connection)))


def _by_times(connection: DuckDBPyConnection) -> Iterator[Slowest]:
    """The slowest by the times of stages that all ranks print, of each stage: in all steps, or in all since it became so."""
    for stage, steps in stage_times(connection):
        late = [step.ranks for step in steps if step.is_awaited]
        if late:
            ranks = max(dict.fromkeys(late), key=late.count)
            last = _became_slowest(steps, ranks)
            own = [step for step in last if step.is_awaited and step.ranks == ranks]
            factor, other = median(step.factor for step in own), median(step.next_factor for step in own)
            times = median(step.ms for step in own), median(step.peers_ms for step in own)
            begun = len(last) < len(steps)
            yield Slowest("times", stage, ranks, len(own), len(last), factor, other, own[0].source, times, begun)


def _became_slowest(steps: Sequence[StepOfStage], ranks: tuple[int, ...]) -> Sequence[StepOfStage]:
    """The steps from the first one on since which they are the slowest in nearly all; all of them where there is none such.

    It must last for a good part of the record, up to its end: ranks of a sound job take turns.
    """
    is_own = [step.is_awaited and step.ranks == ranks and step.factor >= _LEAST_SLOW for step in steps]
    least = max(_LEAST_SINCE, len(steps) // 4)
    for place in (place for place, own in enumerate(is_own) if own):
        if len(steps) - place < least:
            break
        if sum(is_own[place:]) >= _SHARE_SINCE * (len(steps) - place):
            return steps[place:]
    return steps


def _stage(measure: str) -> StageName:
    if not measure.startswith("section ") or _OF_SEVERAL.search(measure):
        return StageName.UNKNOWN
    return next((stage for words, stage in _SECTION_STAGES.items() if words.search(measure)), StageName.UNKNOWN)


def _since(reports: Sequence[Sequence[tuple[int, float, bool, str]]]) -> int:
    """How many of the newest reports name one rank that is slow, where those before name nobody; 0 where none does."""
    slow = [report[0][0] if report[0][1] >= _LEAST_SLOW else None for report in reports]
    number = next((place for place, rank in enumerate(reversed(slow)) if rank is None or rank != slow[-1]), 0)
    return number if number > 1 and set(slow[:-number]) == {None} else 0


def _slowest(measure: str, reports: Sequence[Sequence[tuple[int, float, bool, str]]], made: int) -> Slowest:
    """Of the `made` reports those that name nobody have no rows; of a rank that became slow only those since then count."""
    if made == len(reports) and (since := _since(reports)):
        reports, made = reports[-since:], since
    first = [report[0] for report in reports]
    ranks = [rank for rank, *_ in first]
    rank = max(dict.fromkeys(ranks), key=ranks.count)
    own = [row for row in first if row[0] == rank]
    others = [report[1][1] for report in reports if report[0][0] == rank and len(report) > 1]
    return Slowest(
        measure,
        _stage(measure),
        (rank,),
        len(own),
        max(made, len(reports)),
        median(factor for _, factor, _, _ in own),
        max(others, default=None),
        own[0][3],
    )
