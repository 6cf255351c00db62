"""Time that each rank spent waiting inside collectives, by step: from how long one call took on each of its members.

The member that comes last is in the call for the shortest time; what the others are in it beyond that, they wait. Calls may run
side by side, so that their waits are united and never added up. Calls of one stream run one after the other while the rank
works on: once the others wait in the first call of a step, the later ones begin late on them, and last as long as the late rank
works between its calls, which they would have worked as well. Then only the first wait shows how late it is. Where a later one
is longer than in steps in which the first was as long, another rank became late since, and that is who the step waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.frontier.accounting import Flags, Floats, Ints
from forensics.rules.reductions.frontier.matrix import StageMatrix

# A recorder finds begin and end of a call at one moment, up to 100 ms after its end: it began its duration before that.
TIMED_CALLS = """
    SELECT o.rank, coalesce(o.pg_name, '') AS pg, o.kind, least(o.device_start_ns, o.device_end_ns - o.duration_ns) AS begun,
        o.duration_ns AS lasted,
        coalesce(o.enqueued_ns, o.entered_ns, o.device_start_ns) AS called, o.sequence, o.enqueued_ns IS NOT NULL AS of_host
    FROM operations o WHERE o.rank IS NOT NULL AND o.device_start_ns IS NOT NULL AND o.duration_ns IS NOT NULL
        AND NOT coalesce(o.is_p2p, false)
    UNION ALL
    SELECT rank, '', name, begin_ns, end_ns - begin_ns, begin_ns, NULL, false FROM spans
    WHERE category = 'collective' AND rank IS NOT NULL AND end_ns IS NOT NULL
"""
"""Collectives of all sources that time them: rank, group, kind, when each was begun, called, and how long it lasted (ns)."""
# Calls of one group are matched by their number, else by their place among its calls of the same kind in one step.
_CALLS = f"""
WITH marks AS (
    SELECT rank, step, begin_ns FROM steps WHERE begin_ns IS NOT NULL
), calls AS ({TIMED_CALLS}), placed AS (
    SELECT c.*, m.step FROM calls c ASOF JOIN marks m ON c.rank = m.rank AND c.called >= m.begin_ns
), numbered AS (
    SELECT *, row_number() OVER (PARTITION BY rank, step, pg, kind, sequence ORDER BY called, begun) AS place,
        count(*) OVER (PARTITION BY rank, step, pg, kind, sequence) AS many FROM placed
)
SELECT rank, step, begun, lasted - min(lasted) OVER same AS waited, called, of_host FROM numbered
WINDOW same AS (PARTITION BY if(sequence IS NULL, step, NULL), pg, kind, sequence, many, place)
QUALIFY count(*) OVER same > 1 ORDER BY rank, step, called, begun
"""
# Of all waiting of a step: a rank that is this late to the first call is late for what it did before.
_FIRST = 0.2
_OPEN = -1


class Wait(NamedTuple):
    """One wait in ns, realtime: when it began and ended on the device, as far as that is known, and when the host called.

    `of_host`: a recorder noted that moment; else it is when the device began.
    """

    begin: int
    end: int
    called: int
    of_host: bool = False

    @property
    def length(self) -> int:
        """How long it was."""
        return self.end - self.begin


Waits = dict[tuple[int, int], list[Wait]]
"""What each rank waited in each step, in the order of its calls, calls without waiting included."""


def collective_waits(connection: DuckDBPyConnection) -> Waits:
    """The waits of a case; empty when no collective was timed on its members."""
    waits: Waits = defaultdict(list)
    for rank, step, begun, waited, called, of_host in rows_of(connection, "steps", _CALLS):
        waits[rank, step].append(Wait(begun, begun + waited, called, of_host))
    return waits


def limited(connection: DuckDBPyConnection, matrices: tuple[StageMatrix, ...]) -> tuple[StageMatrix, ...]:
    """The windows, those of traces with what hides waiting in them."""
    if not matrices:
        return ()
    unknown, waiting = _unrecognised_kernels(connection), _waits_for_messages(connection)
    return tuple(
        replace(matrix, unrecognised=unknown, messages=not waiting.isdisjoint(matrix.ranks))
        if matrix.source == "kineto"
        else matrix
        for matrix in matrices
    )


def _unrecognised_kernels(connection: DuckDBPyConnection) -> str | None:
    """Kernels of a trace in which none is known to communicate although its rank has peers; None without such a trace."""
    query = "SELECT min(value) FROM job_config WHERE key = 'trace.unrecognised_kernels'"
    ((names,),) = connection.execute(query).fetchall()
    return None if names is None else str(names)


_MESSAGES = """
SELECT DISTINCT rank FROM spans WHERE category = 'collective' AND rank IS NOT NULL AND regexp_matches(name, 'send|recv')
UNION SELECT DISTINCT o.rank FROM operations o JOIN sources s USING (source_id)
WHERE s.kind IN ('kineto', 'nsight') AND o.is_p2p AND o.rank IS NOT NULL
"""


def _waits_for_messages(connection: DuckDBPyConnection) -> frozenset[int]:
    """Ranks of traces that exchange messages: what they wait for them is not shown by how long other members took."""
    return frozenset(rank for (rank,) in connection.execute(_MESSAGES).fetchall())


class _Waited(NamedTuple):
    """What one rank waited in each step: by the first wait where it is a good part of all, else all of it.

    `since` is what later calls of a step took longer than with as long a first wait, NaN where the first one is small.
    """

    length: Floats
    since: Floats


def _waited(steps: Sequence[Sequence[Wait]]) -> _Waited:
    total = np.array([united(found) for found in steps])
    first = np.array([found[0].length if found else 0.0 for found in steps])
    is_first = (first > 0) & (first >= _FIRST * total)
    since = np.where(is_first, 0.0, np.nan)
    counts = [len(found) for found in steps]
    # Only calls of steps that make as many can be compared by their place in the step.
    same = np.flatnonzero(np.array(counts) == max(counts, key=counts.count))
    later = np.array([[wait.length for wait in steps[row][1:]] for row in same.tolist()], dtype=np.float64)
    for place, row in enumerate(same.tolist()):
        if is_first[row]:
            beyond = later[place] - later[first[same] >= (1 - _FIRST) * first[row]].min(axis=0)
            since[row] = beyond[beyond >= _FIRST * total[row]].sum()
    return _Waited(np.where(is_first, first, total), since)


def _met_last(found: Sequence[_Waited]) -> Floats:
    """Waits for the rank that came last, `[step, rank]`: since the first call, where most ranks waited for one then."""
    length, since = (np.stack(each, axis=1) for each in zip(*found, strict=True))
    is_later = 2 * (since > 0).sum(axis=1, keepdims=True) > len(found)
    return np.asarray(np.where(is_later & np.isfinite(since), since, length))


def united(waits: Iterable[Wait]) -> float:
    """Length of the union of waits."""
    total, reached = 0, None
    for begin, end, *_ in sorted(waits):
        start = begin if reached is None else max(begin, reached)
        total += max(end - start, 0)
        reached = end if reached is None else max(reached, end)
    return float(total)


class Made(NamedTuple):
    """Calls that hosts made in each stage, `[step, column, rank]`, NaN where none is known.

    `launched` is the time from the begin of the stage until the last one was made, `waited` the longest wait in one of them,
    which may end in a later stage, `first` that in the first one.
    """

    launched: Floats
    waited: Floats
    first: Floats


class Waiting(NamedTuple):
    """Time spent waiting in ns by stage, `[step, column, rank]`, and the stage in which most of it ends.

    `unstaged`: what of that in stage `where` lies before it in no stage. `of_all`: it is known of every rank in every step.
    `first` is what was waited in the first call of the step that counts in that stage, `launched` the time from the begin of
    the stage until the host had made the last one (`[step, rank]`, NaN: not known). `made` are the calls of all stages.
    """

    times: Floats
    where: int
    unstaged: Floats | float = 0.0
    of_all: bool = True
    first: Floats | None = None
    launched: Floats | None = None
    made: Made | None = None


def of_window(waits: Waits, matrix: StageMatrix) -> Waiting | None:
    """Waits of a window; None when nobody is known to have waited."""
    if matrix.ends is None or not waits:
        return None
    ends = matrix.ends + matrix.epoch_ns
    inside, before, known = (
        np.zeros(matrix.durations.shape),
        np.zeros(matrix.durations.shape),
        np.zeros(matrix.walls.shape, bool),
    )
    held: dict[tuple[int, int], dict[int, list[Wait]]] = {}
    for row, column in np.ndindex(known.shape):
        found = waits.get((matrix.ranks[column], int(matrix.steps[row])))
        known[row, column] = found is not None
        held[row, column] = defaultdict(list)
        for wait in found or ():
            held[row, column][_stage_of(wait, ends[row, :, column])].append(wait)
            # A host that is in a later stage when its wait ends was not held in the one in which that began.
            place = int(np.searchsorted(ends[row, :, column], wait.end))
            if place < len(matrix.columns):
                inside[row, place, column] += wait.end - wait.begin
                begun = ends[row, place, column] - matrix.durations[row, place, column]
                reached = max(wait.begin, ends[row, place - 1, column]) if place else wait.begin
                before[row, place, column] += max(min(wait.end, begun) - reached, 0)
    if not inside.any():
        return None
    where = int(inside.sum(axis=(0, 2)).argmax())
    times, first = np.zeros(matrix.durations.shape), np.full(known.shape, np.nan)
    launched = np.full(known.shape, np.nan)
    begun = ends[:, where] - matrix.durations[:, where]
    met = [[_of_meeting(held[row, column], where) for row in range(len(known))] for column in range(len(matrix.ranks))]
    times[:, where] = _met_last([_waited(here) for here in met])
    for row, column in np.ndindex(known.shape):
        if here := met[column][row]:
            first[row, column] = here[0].length
            launched[row, column] = here[-1].called - begun[row, column] if here[-1].of_host else np.nan
    for (row, column), by_stage in held.items():
        for stage, found in by_stage.items():
            if stage not in (_OPEN, where):
                times[row, stage, column] = united(found)
    times[:, where] = _filled(times[:, where], known, matrix.durations[:, where])
    for stage in {stage for by_stage in held.values() for stage in by_stage} - {_OPEN, where}:
        rows = _met_by_most(times[:, stage], known)
        times[rows, stage] = _filled(times[rows, stage], known[rows], matrix.durations[rows, stage])
    unstaged = np.minimum(before[:, where], times[:, where])
    return Waiting(times, where, unstaged, bool(known.all()), first, launched, _made(waits, matrix, ends))


def _met_by_most(waited: Floats, known: Flags) -> Flags:
    """In which steps most ranks of which that is known waited in a stage: then the others may have done so too."""
    return np.asarray(2 * ((waited > 0) & known).sum(axis=1) > known.sum(axis=1))


def _made(waits: Waits, matrix: StageMatrix, ends: Ints) -> Made:
    """The calls of each stage of which a recorder noted when the host made them."""
    made = Made(*(np.full(matrix.durations.shape, np.nan) for _ in range(3)))
    for row, column in np.ndindex(matrix.walls.shape):
        for wait in waits.get((matrix.ranks[column], int(matrix.steps[row])), ()):
            place = int(np.searchsorted(ends[row, :, column], wait.called, side="right"))
            if wait.of_host and place < len(matrix.columns):
                at, begun = (row, place, column), ends[row, place, column] - matrix.durations[row, place, column]
                made.launched[at] = np.fmax(made.launched[at], wait.called - begun)
                made.waited[at] = np.fmax(made.waited[at], wait.length)
                made.first[at] = wait.length if np.isnan(made.first[at]) else made.first[at]
    return made


def _of_meeting(by_stage: Mapping[int, Sequence[Wait]], where: int) -> list[Wait]:
    """The waits of a step that the host may have met in the stage in which ranks meet, in the order of their calls."""
    return sorted((*by_stage.get(_OPEN, ()), *by_stage.get(where, ())), key=lambda wait: wait.called)


def _stage_of(wait: Wait, ends: Ints) -> int:
    """The stage that the host was in until the wait can have been over; `_OPEN` where it went on before.

    A host that goes on meets the wait where it is itself held up next, which is not stated.
    """
    place = int(np.searchsorted(ends, wait.called, side="right"))
    return place if place < len(ends) and wait.called + wait.end - wait.begin <= ends[place] else _OPEN


def _filled(found: Floats, known: Flags, durations: Floats) -> Floats:
    """Waits with those that no call tells: as if these ranks had worked as long as others there; none stands out.

    Who was there for less than the others seem to have worked came last: they waited for that as well. Where no call tells
    anything, whoever is there for the shortest time waits for nobody.
    """
    waited = np.where(known, found, np.nan)
    stated: Flags = np.asarray(known.any(axis=1))
    usual = durations.min(axis=1)
    usual[stated] = np.nanmedian((durations - waited)[stated], axis=1)
    shortest = np.where(known, np.inf, durations).min(axis=1)
    beyond = np.maximum(usual - shortest, 0.0)
    unstated: Floats = np.maximum(durations - np.minimum(usual, shortest)[:, None], 0.0)
    filled: Floats = np.where(known, found + beyond[:, None], unstated)
    return filled
