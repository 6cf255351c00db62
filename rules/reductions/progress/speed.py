"""Whether the speed of the job was looked at, by what, and whether it is still what it was earlier in the same record.

That a job moves says nothing of how fast. Recorded steps tell their length; else the steps that the calls of a rank show, each
on the rank's own clock. Where these are not alike, the rarest call that recurs in the record of a rank stands for a step;
where it recurs several times in one (layers, microbatches), as many of its times as repeat alike make one. What was before the
record began is not known: `steady` is a word for the record only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, longest
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.onset import onset_of, warmed_up
from forensics.rules.reductions.progress.step_lines import StepLines, step_lines
from forensics.rules.reductions.progress.varied import (
    LEAST_STEPS,
    MOST_SPREAD,
    Floats,
    even_pauses,
    fills,
    in_steps,
    longest_at_last,
    most_factor,
    outer_thirds,
    spread_of,
)
from forensics.rules.reductions.steps.begins import step_begins
from forensics.rules.reductions.steps.records import UNKNOWN, Record, Recorded
from forensics.rules.reductions.steps.times import StepTimes

# On either side of a change.
_LEAST_SIDE = 4
# Whole steps of which none may differ by more, where there are too few to see a change; the ends of a record as well.
_FEWEST_STEPS, _ALIKE = 5, 1.15
# Slower is what a third more time a step is at least.
SLOWER = 1.33
# Records of more ranks than these tell the same of one job.
_MOST_RECORDS = 16
# A call that stands for a step recurs over most of the record.
_LEAST_COVER = 0.5

# The newest dump of each rank, by kind of call; the rarest that recurs often enough is its step.
_STEP_CALLS = f"""
WITH newest AS (
    SELECT rank, max(snapshot) AS snapshot FROM operations WHERE rank IS NOT NULL GROUP BY rank
), calls AS (
    SELECT o.rank, coalesce(o.communicator, o.pg_name, '') AS communicator,
           o.kind || ' ' || coalesce(o.input_sizes, CAST(o.count AS VARCHAR), '') AS signature,
           coalesce(o.device_end_ns, o.enqueued_ns, o.entered_ns) AS at_ns, s.path
    FROM operations o JOIN newest n ON n.rank = o.rank AND n.snapshot IS NOT DISTINCT FROM o.snapshot
    JOIN sources s USING (source_id) WHERE at_ns IS NOT NULL AND NOT coalesce(o.is_p2p, false)
), spans AS (
    SELECT rank, max(at_ns) - min(at_ns) AS span FROM calls GROUP BY rank
), kinds AS (
    SELECT rank, communicator, signature, count(*) AS times, max(at_ns) - min(at_ns) AS cover, min(path) AS path,
           list(at_ns ORDER BY at_ns) AS at_ns
    FROM calls GROUP BY rank, communicator, signature HAVING count(*) > {LEAST_STEPS}
)
SELECT rank, communicator, split_part(signature, ' ', 1), at_ns, path FROM kinds JOIN spans USING (rank)
WHERE cover >= {_LEAST_COVER} * span
QUALIFY row_number() OVER (PARTITION BY rank ORDER BY times, communicator, signature) = 1
ORDER BY rank LIMIT {_MOST_RECORDS}
"""

_RECORDED = f"""
SELECT o.rank, min(s.path) FROM operations o JOIN sources s USING (source_id) WHERE o.rank >= 0
GROUP BY o.rank ORDER BY o.rank LIMIT {_MOST_RECORDS}
"""


class Pace(StrEnum):
    """What a look at the speed of the job gave."""

    STEADY = "steady"
    SLOWER = "slower"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Speed:
    """The result, by what it was come to, in words.

    `steps` of `step_ns` (median, at the end of the record) were examined. A slower job's steps take `factor` times as long as
    before since the moment `since_ns` on the clock of `source`; None where they became so gradually. `in_log`: shown by lines
    of a log, which show that a job became slower, not that it kept its speed to the end. `lost_ns` is what the longest of
    steady steps took more than the middle one, by calls: the stages of marked steps tell why one is long. `few` is how many
    steps were recorded, where they are too few.
    """

    pace: Pace
    reason: str
    by: str | None = None
    steps: int = 0
    step_ns: float | None = None
    factor: float | None = None
    since_ns: int | None = None
    source: str | None = None
    in_log: bool = False
    lost_ns: float = 0.0
    few: int = 0

    @property
    def was_measured(self) -> bool:
        """Whether anything says how fast the job is against its own past."""
        return self.pace is not Pace.NOT_MEASURED


@dataclass(frozen=True, slots=True)
class _Series:
    """Lengths of consecutive steps in ns with the moments at which they ended, as one source tells them.

    `whole`: the program marked them as steps; saves between them that last longer than they do make them no bursts.
    `of_program`: calls that recur step by step tell them, which no times between calls of one kind do.
    """

    by: str
    lengths: Floats
    ends_ns: Sequence[int]
    source: str | None
    whole: bool = False
    of_program: bool = False


@reduction
def speed(calls: Calls, windows: FrontierWindows, records: Recorded) -> Speed:
    """Examine recorded steps where there are enough of them, else the calls of the recorders or of the shim's logs."""
    if unknown := next((window.matrix.unrecognised for window in windows if window.matrix.unrecognised), None):
        return Speed(Pace.NOT_MEASURED, f"no communication was recognised among the kernels: {unknown}")
    recorded = longest(windows)
    steps = [_of_window(window) for window in recorded if len(window.matrix.steps) > LEAST_STEPS]
    found = judged(steps or _of_programs(calls.connection, records) or _of_calls(calls.connection))
    if not found.was_measured and (few := [each for each in recorded if 1 < len(each.matrix.steps) <= LEAST_STEPS]):
        lengths = max((np.median(window.matrix.walls, axis=1) for window in few), key=len)
        found = replace(found, reason=of_few("steps are recorded", lengths), few=len(lengths))
    logged = found if found.was_measured else _decided([_of_lines(lines) for lines in step_lines(calls.connection)])
    return logged if logged.pace is Pace.SLOWER else found


def of_whole_steps(times: StepTimes) -> Speed | None:
    """The speed by steps that have the usual calls alone, saves and evaluations left out; None where they are not alike.

    Of few none may differ. They tell nothing of what was before: whoever takes it for the speed must have compared the ranks.
    """
    count = len(times.length)
    if count > LEAST_STEPS:
        ends = times.length.cumsum().astype(np.int64).tolist()
        found = _of_series(_Series("the calls that each usual step makes", times.length, ends, None, whole=True))
        return found if found.pace is Pace.STEADY else None
    if not _FEWEST_STEPS <= count <= LEAST_STEPS or times.length.max() > _ALIKE * times.length.min():
        return None
    length = times.typical_ns
    reason = f"{count} whole steps of {_ms(length)}, all within {100 * (_ALIKE - 1):.0f} % of each other"
    return Speed(Pace.STEADY, reason, by="the calls that each step makes", steps=count, step_ns=length, factor=1.0)


def judged(series: Iterable[_Series]) -> Speed:
    """One result for all series: slower where most of them are, steady where most are, else not measured."""
    return _decided([_of_series(each) for each in series])


def _decided(judgements: Sequence[Speed]) -> Speed:
    if not judgements:
        return Speed(Pace.NOT_MEASURED, f"fewer than {LEAST_STEPS + 1} steps are recorded: too few to compare their lengths")
    for pace in (Pace.SLOWER, Pace.STEADY):
        alike = [each for each in judgements if each.pace is pace]
        if 2 * len(alike) > len(judgements):
            middle = median(each.factor or 1.0 for each in alike)
            return min(alike, key=lambda each: (abs((each.factor or 1.0) - middle), each.source or ""))
    found = next((each for each in judgements if not each.was_measured), judgements[0])
    return found if not found.was_measured else Speed(Pace.NOT_MEASURED, "records of the ranks disagree on the speed", found.by)


def _of_window(window: FrontierWindow) -> _Series:
    matrix = window.matrix
    ends = matrix.epoch_ns + np.median(matrix.begins + matrix.walls, axis=1).astype(np.int64)
    return _Series("recorded steps", np.median(matrix.walls, axis=1), ends.tolist(), matrix.path(), whole=True)


def of_few(which: str, lengths: Floats) -> str:
    """What steps show that are too few to be compared with each other."""
    return f"{len(lengths)} {which}, of {_ms(lengths.min())} to {_ms(lengths.max())}: fewer than {LEAST_STEPS + 1}"


def _of_programs(connection: DuckDBPyConnection, records: Recorded) -> list[_Series]:
    """Times from one begin of a step to the next, where the records of most ranks show the same calls step by step."""
    paths = dict(rows_of(connection, "operations", _RECORDED))
    found = records.of(paths)
    series = [each for rank, record in found.items() if (each := _of_program(record, paths[rank])) is not None]
    return series if 2 * len(series) > len(found) else []


def _of_program(record: Record, path: str) -> _Series | None:
    begins = step_begins(record)
    moments = record.enqueued_ns[begins[begins < len(record)]]
    if len(moments) <= LEAST_STEPS or (moments == UNKNOWN).any():
        return None
    return _Series(
        "the calls that each step makes", np.diff(moments).astype(np.float64), moments[1:].tolist(), path, of_program=True
    )


def _of_calls(connection: DuckDBPyConnection) -> list[_Series]:
    found: dict[tuple[str, str], list[_Series]] = defaultdict(list)
    for _, communicator, kind, moments, path in rows_of(connection, "operations", _STEP_CALLS):
        lengths = np.diff(np.array(moments, dtype=np.int64)).astype(np.float64)
        found[communicator, kind].append(_Series(f"{kind} of {communicator}", lengths, moments[1:], path))
    return [each for same in found.values() for each in same]


def _of_series(series: _Series) -> Speed:
    """Compare a series with its own past."""
    warm = warmed_up(series.lengths, SLOWER) if series.whole or series.of_program else 1
    lengths, ends = in_steps(series.lengths[warm:], series.ends_ns[warm:])
    lost = float(lengths.max() - np.median(lengths)) if len(lengths) and not series.whole else 0.0
    kept = ~(even_pauses(lengths) & (series.whole or series.of_program))
    lengths, ends = lengths[kept], np.asarray(ends)[kept].tolist()
    known = Speed(Pace.NOT_MEASURED, "", by=series.by, steps=len(lengths), source=series.source, lost_ns=lost)
    place = onset_of(lengths.tolist(), (_LEAST_SIDE, _LEAST_SIDE), _became_slower)
    if place is not None:
        before, after = float(np.median(lengths[:place])), float(np.median(lengths[place:]))
        reason = f"since then {_ms(after)} from one to the next, {_ms(before)} before, in {len(lengths)} steps by {series.by}"
        return replace(known, pace=Pace.SLOWER, reason=reason, step_ns=after, factor=after / before, since_ns=int(ends[place]))
    first, last = outer_thirds(lengths)
    before, after = float(np.median(first)), float(np.median(last))
    spread = max(spread_of(first), spread_of(last))
    factor = after / before if before > 0 else 1.0
    if factor >= max(SLOWER, spread):
        if len(last) < _LEAST_SIDE:  # a save or an evaluation may be as long, in two steps that it spans
            reason = f"too few steps by {series.by} to be called slower: the last {len(last)} of {len(lengths)} are longer"
            return replace(known, reason=reason, step_ns=after)
        reason = f"steps by {series.by} became longer little by little: {_ms(before)} at first, {_ms(after)} in the end"
        return replace(known, pace=Pace.SLOWER, reason=reason, step_ns=after, factor=factor)
    differ = spread > MOST_SPREAD
    alike = fills(lengths) and not longest_at_last(lengths) and most_factor(first, last) <= SLOWER
    if differ and (series.whole or series.of_program) and alike:
        reason = f"{len(lengths)} steps by {series.by} that differ, their middle {_ms(after)}, as at the begin of the record"
        return replace(known, pace=Pace.STEADY, reason=reason, step_ns=after, factor=factor)
    if differ or not (series.whole or fills(lengths)):
        low, high = np.quantile(lengths, (0.25, 0.75))
        intervals = f"{len(lengths)} intervals between calls ({series.by})"
        reason = f"{intervals} vary too much: middle half {_ms(low)} to {_ms(high)}, mean {_ms(float(lengths.mean()))}"
        return replace(known, reason=reason, step_ns=after)
    if factor > _ALIKE or longest_at_last(lengths):
        reason = f"{len(lengths)} steps by {series.by}: {_ms(before)} at first, {_ms(after)} at last, newest {_ms(lengths[-1])}"
        return replace(known, reason=reason, step_ns=after)
    reason = f"{len(lengths)} steps by {series.by} of {_ms(after)}, as long as at the begin of the record"
    return replace(known, pace=Pace.STEADY, reason=reason, step_ns=after, factor=factor)


def _of_lines(lines: StepLines) -> Speed:
    """Compare the steps that a log prints with those it printed before; the first pays for start-up."""
    lengths, steps = np.array(lines.lengths[1:]), lines.steps[1:]
    known = Speed(Pace.NOT_MEASURED, "", by="lines of a log", steps=len(lengths), source=lines.source, in_log=True)
    if len(lengths) < LEAST_STEPS - 1:
        return known
    place = onset_of(lengths.tolist(), (_LEAST_SIDE, _LEAST_SIDE), _became_slower)
    first, last = outer_thirds(lengths) if place is None else (lengths[:place], lengths[place:])
    before, after = float(np.median(first)), float(np.median(last))
    factor = after / before if before > 0 else 1.0
    is_few = place is None and len(last) < _LEAST_SIDE
    if is_few or factor < SLOWER or (place is None and factor < max(spread_of(first), spread_of(last))):
        return replace(known, pace=Pace.STEADY, step_ns=after, factor=factor)
    since = f"since {lines.unit} {steps[place]}" if place is not None else f"little by little up to {lines.unit} {steps[-1]}"
    reason = f"{_ms(after)} a {lines.unit} {since}, {factor:.1f} times the {_ms(before)} before, by {lines.source}"
    return replace(known, pace=Pace.SLOWER, reason=reason, step_ns=after, factor=factor)


def _became_slower(before: float, after: float, first: float) -> bool:
    return before > 0 and after >= SLOWER * before


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.0f} ms"
