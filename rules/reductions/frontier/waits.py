"""Time that each rank spent waiting inside collectives, by step: from how long one call took on each of its members.

The member that comes last is in the call for the shortest time; what the others are in it beyond that, they wait. Calls may run
side by side, so that their waits are united and never added up. Calls of one stream run one after the other while the rank
works on: once the others wait in the first call of a step, the later ones begin late on them, and last as long as the late rank
works between its calls, which they would have worked as well. Then only the first wait shows how late it is.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.frontier.accounting import Flags, Floats, Ints
from forensics.rules.reductions.frontier.matrix import StageMatrix

# A recorder finds begin and end of a call at one moment, up to 100 ms after its end: it began its duration before that.
# Calls of one group are matched by their number, else by their place among its calls of the same kind in one step.
_CALLS = """
WITH marks AS (
    SELECT rank, step, begin_ns FROM steps WHERE begin_ns IS NOT NULL
), calls AS (
    SELECT o.rank, coalesce(o.pg_name, '') AS pg, o.kind, least(o.device_start_ns, o.device_end_ns - o.duration_ns) AS begun,
        o.duration_ns AS lasted,
        coalesce(o.enqueued_ns, o.entered_ns, o.device_start_ns) AS called, o.sequence
    FROM operations o WHERE o.rank IS NOT NULL AND o.device_start_ns IS NOT NULL AND o.duration_ns IS NOT NULL
        AND NOT coalesce(o.is_p2p, false)
    UNION ALL
    SELECT rank, '', name, begin_ns, end_ns - begin_ns, begin_ns, NULL FROM spans
    WHERE category = 'collective' AND rank IS NOT NULL AND end_ns IS NOT NULL
), placed AS (
    SELECT c.*, m.step FROM calls c ASOF JOIN marks m ON c.rank = m.rank AND c.called >= m.begin_ns
), numbered AS (
    SELECT *, row_number() OVER (PARTITION BY rank, step, pg, kind, sequence ORDER BY called, begun) AS place,
        count(*) OVER (PARTITION BY rank, step, pg, kind, sequence) AS many FROM placed
)
SELECT rank, step, begun, lasted - min(lasted) OVER same AS waited, called FROM numbered
WINDOW same AS (PARTITION BY if(sequence IS NULL, step, NULL), pg, kind, sequence, many, place)
QUALIFY count(*) OVER same > 1 ORDER BY rank, step, called, begun
"""
# Of all waiting of a step: a rank that is this late to the first call is late for what it did before.
_FIRST = 0.2
_OPEN = -1


class Wait(NamedTuple):
    """One wait in ns, realtime: when it began and ended on the device, as far as that is known, and when the host called."""

    begin: int
    end: int
    called: int


Waits = dict[tuple[int, int], list[Wait]]
"""What each rank waited in each step, in the order of its calls, calls without waiting included."""


def collective_waits(connection: DuckDBPyConnection) -> Waits:
    """The waits of a case; empty when no collective was timed on its members."""
    waits: Waits = defaultdict(list)
    for rank, step, begun, waited, called in rows_of(connection, "steps", _CALLS):
        waits[rank, step].append(Wait(begun, begun + waited, called))
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


def _united_after_first(found: Sequence[Wait]) -> float:
    """The first wait alone where it is a good part of all, else every wait."""
    if not found:
        return 0.0
    first, total = float(found[0].end - found[0].begin), united(found)
    return first if first >= _FIRST * total else total


def united(waits: Iterable[Wait]) -> float:
    """Length of the union of waits."""
    total, reached = 0, None
    for begin, end, _ in sorted(waits):
        start = begin if reached is None else max(begin, reached)
        total += max(end - start, 0)
        reached = end if reached is None else max(reached, end)
    return float(total)


class Waiting(NamedTuple):
    """Time spent waiting in ns by stage, `[step, column, rank]`, and the stage in which most of it begins.

    `unstaged`: what of that in stage `where` lies before it in no stage. `of_all`: it is known of every rank in every step.
    """

    times: Floats
    where: int
    unstaged: Floats | float = 0.0
    of_all: bool = True


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
            place = int(np.searchsorted(ends[row, :, column], wait.begin, side="right"))
            if place < len(matrix.columns):
                inside[row, place, column] += wait.end - wait.begin
                begun = ends[row, place, column] - matrix.durations[row, place, column]
                before[row, place, column] += max(min(wait.end, begun) - wait.begin, 0)
    if not inside.any():
        return None
    where = int(inside.sum(axis=(0, 2)).argmax())
    times = np.zeros(matrix.durations.shape)
    for (row, column), by_stage in held.items():
        here = sorted(itertools.chain(by_stage.pop(_OPEN, ()), by_stage.pop(where, ())), key=lambda wait: wait.called)
        times[row, where, column] = _united_after_first(here)
        for stage, found in by_stage.items():
            times[row, stage, column] = united(found)
    times[:, where] = _filled(times[:, where], known, matrix.durations[:, where])
    return Waiting(times, where, np.minimum(before[:, where], times[:, where]), bool(known.all()))


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
