"""Windows cut where the ranks meet: what each rank did between two synchronisations, without the waiting.

The identity of the frontier takes each rank's own step mark as its origin. A stage after the last synchronisation of a step
then shows as a peer's wait in the next one. Between two moments at which all ranks meet, only the work before counts: who
arrives last is who the others wait for, and the stage in which it took longer than its peers is where.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.frontier.accounting import Floats, Ints
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import RESIDUAL, Column, StageMatrix
from forensics.rules.reductions.frontier.roles import waiting_follows
from forensics.rules.reductions.frontier.waits import Waiting

ASSUMED = "backward"
LEAST_OF_ALL = "the least of all ranks"
"""How waiting is taken out where nothing tells it: what a rank works longer than others there is lost with it."""
# Of a step: the last to arrive waits for nobody, and where it does for longer, the notes are of launches only.
_LONGEST_WAIT = 0.3
# Rows of which arrivals must be known before they stand for all.
_ARRIVALS_KNOWN = 0.9
_LEAST_STEPS = 2
# Steps up to which the first one is used, although it may pay for start-up.
_SHORT = 5


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Rows from one synchronisation to the next, in ns: `work[row, stage, rank]` in the order of `columns`.

    `segments` are the stages between meetings, each ending with the stage in which ranks meet. `sync` is the stage at whose
    end the windows are cut. `method` says how it was found: collectives or arrivals are seen in it, aligned (ranks of one
    clock leave it together), regular (their intervals agree there best), or assumed. `waits` says how its waiting was taken
    out: collectives, arrivals, or the least of all ranks. `steps` are the steps in which the rows end, `lengths` the time
    between meetings.
    """

    sync: str
    method: str
    waits: str
    columns: tuple[Column, ...]
    segments: tuple[slice, ...]
    work: Floats
    steps: Ints
    lengths: Floats
    ranks: tuple[int, ...]
    waiting_seen: bool

    @property
    def excess(self) -> Floats:
        """What each rank worked longer than the middle one, as `work`."""
        return np.asarray(np.maximum(self.work - np.median(self.work, axis=2, keepdims=True), 0.0))


def cut(matrix: StageMatrix, gates: Gates, waits: Waiting | None = None) -> Cut | str:
    """Cut a window, or say why it cannot be."""
    ends = matrix.ends
    if matrix.unrecognised:
        return f"no communication was recognised among the kernels, so that waiting is counted as work: {matrix.unrecognised}"
    if matrix.messages:
        return "hosts wait for messages of other ranks inside these stages, and these waits cannot be distinguished from work"
    if ends is None or len(matrix.ranks) < 2 or len(matrix.steps) < _LEAST_STEPS or not matrix.columns:
        return "fewer than two ranks or two steps, or no times"
    where, method, aligned = _by_waits(matrix, waits) or _meeting(matrix, ends, gates)
    if where is None:
        return "no boundary is seen at which the ranks meet: a stage can be named, a rank cannot"
    following = np.nonzero(np.diff(matrix.steps) == 1)[0] + 1
    if len(following) < min(2, len(matrix.steps) - 1):
        return "no two consecutive steps"
    columns, work, lengths = _rows(matrix, ends, where, following)
    following = following if len(work) == len(following) else np.r_[0, following]
    last = len(columns)
    inner = sorted(columns.index(matrix.columns[index]) + 1 for index in aligned if index != where)
    bounds = [0, *inner, last]
    segments = tuple(slice(a, b) for a, b in itertools.pairwise(bounds) if b > a)
    how = _without_waiting(matrix, work, columns, segments, following, waits)
    return Cut(
        sync=matrix.columns[where].stage,
        method=method,
        waits=how,
        columns=columns,
        segments=segments,
        work=work,
        steps=matrix.steps[following],
        lengths=lengths,
        ranks=matrix.ranks,
        waiting_seen=waiting_follows(matrix, where, gates),
    )


def _by_waits(matrix: StageMatrix, waits: Waiting | None) -> tuple[int, str, list[int]] | None:
    """The stage in which collectives are seen, or of which arrivals were recorded."""
    if waits is not None:
        return waits.where, "collectives", [waits.where]
    known = [index for index, column in enumerate(matrix.columns) if column.stage in _arrivals(matrix)]
    return (known[-1], "arrivals", [known[-1]]) if known else None


def _arrivals(matrix: StageMatrix) -> Mapping[str, Floats]:
    """How long each rank worked in a stage before it only waited, where that is what the notes say.

    In a job on devices the notes are of the host, which has launched its last gradients long before they are there: then even
    the last one to arrive waits for a long part of the step, or the device is timed beside.
    """
    if matrix.device or matrix.asked or not matrix.arrived:
        return {}
    usable = {}
    for stage, own in matrix.arrived.items():
        columns = matrix.members(stage)
        rest = matrix.durations[:, columns].sum(axis=1) - own
        known = np.isfinite(rest).all(axis=1)
        if known.any() and np.median(rest[known].min(axis=1)) <= _LONGEST_WAIT * np.median(matrix.walls):
            usable[stage] = own
    return usable


def _meeting(matrix: StageMatrix, ends: Ints, gates: Gates) -> tuple[int | None, str, list[int]]:
    """The stage at whose end the ranks meet best, how that is known, and all such stages."""
    length = float(np.median(np.diff(ends[:, -1], axis=0)))
    if matrix.one_clock:
        # Means, not medians: a delay in one step of ten is a spread in that step.
        spread = np.ptp(ends[1:], axis=2).mean(axis=0) / max(length, 1.0)
        # Ranks stay close for a while after they met: the meeting is where they come together, not where they are closest.
        before = np.roll(spread, 1)
        together = (spread <= gates.aligned_ratio * before) | (spread <= gates.aligned_share)
        if not together.any():
            return None, "aligned", []
        best = int(np.argmax(np.where(together, before - spread, -np.inf)))
        close = max(gates.aligned_share / 2, float(spread[best]))
        met = (spread <= close) & (spread <= gates.aligned_ratio * before)
        # Ranks that come to a barrier at different times leave it together, however close they were when that stage began.
        held = (index for index in matrix.barriers if spread[index] <= gates.aligned_share)
        return best, "aligned", sorted({best, *held, *np.nonzero(met)[0].tolist()})
    centred = ends - ends.mean(axis=2, keepdims=True)
    spread = np.ptp(centred - np.median(centred, axis=0, keepdims=True), axis=2).mean(axis=0)
    best = int(np.argmin(spread))
    if spread[best] <= gates.aligned_ratio * float(np.median(spread)):
        return best, "regular", [best]
    named = [index for index, column in enumerate(matrix.columns) if column.stage == ASSUMED]
    return (named[-1], "assumed", [named[-1]]) if named else (None, "assumed", [])


def _rows(matrix: StageMatrix, ends: Ints, where: int, following: Ints) -> tuple[tuple[Column, ...], Floats, Floats]:
    """Stages after the meeting of one step, what lies in no stage, and stages up to the meeting of the next; lengths of rows.

    In a short window the first step counts from its own mark to its meeting: there are no rows to spare.
    """
    late, early = matrix.columns[where + 1 :], matrix.columns[: where + 1]
    durations = matrix.durations
    after, before = durations[following - 1, where + 1 :], durations[following, : where + 1]
    whole = (ends[following, where] - ends[following - 1, where]).astype(np.float64)
    if len(matrix.steps) <= _SHORT:
        after = np.concatenate([np.zeros_like(durations[:1, where + 1 :]), after])
        before = np.concatenate([durations[:1, : where + 1], before])
        whole = np.concatenate([(ends[:1, where] - matrix.begins[:1]).astype(np.float64), whole])
    rest = np.maximum(whole - after.sum(axis=1) - before.sum(axis=1), 0.0)
    columns = (*late, Column(RESIDUAL, "", -1), *early)
    return columns, np.concatenate([after, rest[:, None, :], before], axis=1), np.median(whole, axis=1)


def _without_waiting(
    matrix: StageMatrix,
    work: Floats,
    columns: tuple[Column, ...],
    segments: tuple[slice, ...],
    following: Ints,
    waits: Waiting | None,
) -> str:
    """Take the waiting out of the stages in which ranks meet, in place."""
    how = LEAST_OF_ALL
    for number, segment in enumerate(segments):
        inside = segment.stop - 1
        own = _arrivals(matrix).get(columns[inside].stage)
        is_last = number == len(segments) - 1
        held = _before_barrier(matrix, columns[inside], following, is_late=not is_last)
        if own is not None and is_last and np.isfinite(own[following]).mean() > _ARRIVALS_KNOWN:
            work[:, inside] = np.fmin(np.where(np.isfinite(own[following]), own[following], np.inf), work[:, inside])
            how = "arrivals"
        elif waits is not None and is_last and np.isfinite(waits.times[following]).all() and waits.times.any():
            _take_out(work, columns, matrix.columns, waits, following)
            how = "collectives"
        elif held is not None:
            known = np.isfinite(held).all(axis=1, keepdims=True)
            work[:, inside] = np.where(known, np.fmin(work[:, inside], held), work[:, inside].min(axis=1, keepdims=True))
        else:
            # Who comes last waits least: its time in the stage is what the stage costs everybody.
            work[:, inside] = work[:, inside].min(axis=1, keepdims=True)
    return how


def _before_barrier(matrix: StageMatrix, column: Column, following: Ints, *, is_late: bool) -> Floats | None:
    """What hosts worked before the barrier of a stage, by row (NaN: not known); None without one.

    Stages behind the meeting are of the step before.
    """
    own = matrix.barriers.get(matrix.columns.index(column)) if column in matrix.columns else None
    return None if own is None else own[np.maximum(following - 1, 0) if is_late else following]


def _take_out(work: Floats, columns: tuple[Column, ...], stages: tuple[Column, ...], waits: Waiting, rows: Ints) -> None:
    """Take waits out of the stages that they are in, and out of what lies in no stage where they begin before the meeting's."""
    rest = columns.index(Column(RESIDUAL, "", -1))
    before = np.broadcast_to(waits.unstaged, waits.times[:, waits.where].shape)
    for number, stage in enumerate(stages):
        # Stages behind the meeting are of the step before.
        own = rows if number <= waits.where else np.maximum(rows - 1, 0)
        found = waits.times[own, number] - (before[own] if number == waits.where else 0.0)
        place = columns.index(stage)
        work[:, place] = np.maximum(work[:, place] - found, 0.0)
    work[:, rest] = np.maximum(work[:, rest] - before[rows], 0.0)
