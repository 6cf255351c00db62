"""Stage matrices out of the case: by role, and by window."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NewType

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.frontier.accounting import Flags, Floats, Ints
from forensics.rules.reductions.frontier.barriers import with_barriers
from forensics.rules.reductions.frontier.ended import ended
from forensics.rules.reductions.frontier.matrix import Column, StageMatrix, merged_order
from forensics.rules.reductions.frontier.recorded import RecordedSpans, recorded_spans
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, dated
from forensics.rules.reductions.frontier.waits import collective_waits, limited, of_window
from forensics.rules.reductions.frontier.window_cuts import WindowCut, window_cuts
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster

FrontierWindows = NewType("FrontierWindows", tuple[FrontierWindow, ...])
"""Windows of recorded stages."""

MOST_WINDOWS = 8
_ROLES = """
SELECT c.rank, min(p.group_role), (SELECT min(host) FROM sources s WHERE s.source_id = c.source_id),
    (SELECT min(host) FROM ranks r WHERE r.rank = c.rank), min(c.path), min(c.kind)
FROM chosen_stages c LEFT JOIN stage_spans p USING (source_id, rank) GROUP BY c.rank, c.source_id ORDER BY c.rank
"""
# Megatron and torch call the groups that pass activations on after the pipeline; a rank's place in it is its role.
_PIPELINES = """
SELECT m.rank, min(m.position) FROM members m JOIN communicators c USING (communicator)
WHERE c.description ILIKE '%pipeline%' AND c.description NOT ILIKE '%embedding%' AND c.size > 1 AND c.method <> 'peers'
GROUP BY m.rank HAVING count(DISTINCT m.position) = 1
"""


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    role: str | None
    ranks: tuple[int, ...]
    one_clock: bool
    source: str
    paths: tuple[str, ...]


@reduction
def recorded_windows(calls: Calls, roster: Roster) -> FrontierWindows:
    """The windows of the job."""
    return FrontierWindows(frontier_windows(calls.connection, roster.world_size))


def frontier_windows(connection: DuckDBPyConnection, world_size: int | None) -> tuple[FrontierWindow, ...]:
    """The windows of a case, each with the waiting in collectives that is known of it."""
    matrices = with_barriers(connection, limited(connection, stage_matrices(connection, world_size)))
    waits = collective_waits(connection) if matrices else {}
    whole = [ended(matrix, waits) for matrix in matrices]
    pairs = zip(matrices, whole, strict=True)
    return dated([FrontierWindow(matrix, of_window(waits, wide or matrix), wide) for matrix, wide in pairs])


def stage_matrices(connection: DuckDBPyConnection, world_size: int | None) -> tuple[StageMatrix, ...]:
    """The longest windows of every group of ranks that play the same part, in the order of groups and steps."""
    if not has_rows(connection, "steps"):
        return ()
    read = recorded_spans(connection)
    if read is None:
        return ()
    found: list[StageMatrix] = []
    groups = _groups(connection)
    for group in groups:
        expected = range(world_size or 0) if len(groups) == 1 else ()
        found += _windows(read, group, tuple(expected))
    connection.execute("DROP TABLE chosen_stages")
    return tuple(found)


def _groups(connection: DuckDBPyConnection) -> list[_Group]:
    stages = dict(connection.execute(_PIPELINES).fetchall())
    by_role: dict[str | None, list[tuple[Any, ...]]] = defaultdict(list)
    for row in connection.execute(_ROLES).fetchall():
        position = stages.get(row[0])
        by_role[row[1] or (f"pipeline stage {position}" if position is not None else None)].append(row)
    return [
        _Group(
            name=role or "all ranks",
            role=role,
            ranks=tuple(row[0] for row in rows),
            one_clock=len({row[2] or row[3] for row in rows}) == 1,
            source=rows[0][5],
            paths=tuple(row[4] for row in rows),
        )
        for role, rows in sorted(by_role.items(), key=lambda item: item[0] or "")
    ]


def _windows(read: RecordedSpans, group: _Group, expected: tuple[int, ...]) -> list[StageMatrix]:
    """Windows of a group in order of their steps."""
    mine = np.isin(read.steps["rank"], group.ranks)
    rank, step = read.steps["rank"][mine], read.steps["step"][mine]
    numbers, row = np.unique(step, return_inverse=True)
    column = np.searchsorted(np.array(group.ranks), rank)
    shape = (len(numbers), len(group.ranks))
    present = np.zeros(shape, dtype=np.bool_)
    present[row, column] = True
    schema = np.zeros(shape, dtype=np.int64)
    chosen = np.isin(read.spans["rank"], group.ranks) & np.isin(read.spans["step"], numbers)
    spans = read.spans if chosen.all() else {name: values[chosen] for name, values in read.spans.items()}
    at = np.searchsorted(numbers, spans["step"]), np.searchsorted(np.array(group.ranks), spans["rank"])
    schema[at] = spans["schema"].astype(np.int64)
    walls, begins = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    walls[row, column], begins[row, column] = read.steps["wall_ns"][mine], read.steps["begin_ns"][mine]
    cells = _Cells(group, read, spans, at, numbers, walls, begins, expected)
    return [cells.window(each) for each in window_cuts(present, schema, MOST_WINDOWS)]


@dataclass(frozen=True, slots=True)
class _Cells:
    """Everything of one group, from which windows are cut; arrays are `[step, rank]` over all its steps and ranks."""

    group: _Group
    read: RecordedSpans
    spans: Mapping[str, Any]
    at: tuple[Ints, Ints]
    numbers: Ints
    walls: Floats
    begins: Ints
    expected: tuple[int, ...]

    def window(self, chosen: WindowCut) -> StageMatrix:
        """The matrix of some steps and ranks."""
        run, there = chosen.steps, np.flatnonzero(chosen.ranks)
        inside = (self.at[0] >= run.start) & (self.at[0] < run.stop) & chosen.ranks[self.at[1]]
        whole = slice(None) if inside.all() else inside
        spans = {name: np.ma.getdata(values)[whole] for name, values in self.spans.items()}
        row, place = self.at[0][inside] - run.start, (np.cumsum(chosen.ranks) - 1)[self.at[1][inside]]
        columns, codes, is_ordered, collapsed = self._columns(spans, place)
        shape = (run.stop - run.start, len(columns), len(there))
        cell = (row * shape[1] + codes) * shape[2] + place
        ends = np.full(shape, np.iinfo(np.int64).min)
        np.maximum.at(ends.reshape(-1), cell, spans["ended"].astype(np.int64))
        begins = self.begins[run][:, there]
        epoch = int(begins.min()) if begins.size else 0
        ranks = tuple(self.group.ranks[index] for index in there.tolist())
        device, asked, arrived = self._sides(run, ranks)
        device = self._launched(inside, (row, codes, place), columns, shape) | device
        return StageMatrix(
            group=self.group.name,
            role=self.group.role,
            source=self.group.source,
            steps=self.numbers[run],
            ranks=ranks,
            columns=columns,
            durations=_sums(cell, spans["duration"], shape),
            walls=self.walls[run][:, there],
            begins=begins - epoch,
            ends=_filled(ends, begins) - epoch,
            epoch_ns=epoch,
            device=device,
            asked=asked,
            arrived=arrived,
            missing=tuple(sorted(({*self.expected} or {*self.group.ranks}) - set(ranks))),
            one_clock=self.group.one_clock,
            is_ordered=is_ordered,
            collapsed=collapsed,
            paths=tuple(self.group.paths[index] for index in there.tolist()),
        )

    def _columns(self, spans: Mapping[str, Any], place: Ints) -> tuple[tuple[Column, ...], Ints, bool, bool]:
        """Columns, the column of each span, whether all ranks agree on the order, whether parts were collapsed."""
        used: dict[int, dict[int, float]] = defaultdict(dict)
        pair_of = place * len(self.read.keys) + spans["key"]
        mean = np.bincount(pair_of, spans["place"]) / np.maximum(often := np.bincount(pair_of), 1)
        for pair in np.flatnonzero(often).tolist():
            used[pair // len(self.read.keys)][pair % len(self.read.keys)] = float(mean[pair])
        own = [[self.read.keys[key] for key in sorted(keys, key=keys.__getitem__)] for keys in used.values()]
        coarse = _coarse_stages(own)
        lists = [list(dict.fromkeys(_reduced(column, coarse) for column in each)) for each in own]
        columns, is_ordered = merged_order(lists)
        where = {column: number for number, column in enumerate(columns)}
        codes = np.array([where.get(_reduced(column, coarse), 0) for column in self.read.keys] or [0])
        return columns, codes[spans["key"]] if len(columns) else spans["key"], is_ordered, bool(coarse)

    def _launched(
        self, inside: Flags, at: tuple[Ints, Ints, Ints], columns: tuple[Column, ...], shape: tuple[int, int, int]
    ) -> dict[str, Floats]:
        """Time of the device by the broad stage that launched its work, for sources that know it; NaN elsewhere."""
        known = ~np.ma.getmaskarray(self.spans["device"])[inside]
        if not known.any():
            return {}
        times, (row, codes, place) = np.ma.getdata(self.spans["device"])[inside][known], (part[known] for part in at)
        device: dict[str, Floats] = {}
        for stage in dict.fromkeys(column.stage for column in columns):
            mine = np.isin(codes, [number for number, column in enumerate(columns) if column.stage == stage])
            if mine.any():
                total, there = np.zeros((shape[0], shape[2])), np.zeros((shape[0], shape[2]), dtype=np.bool_)
                np.add.at(total, (row[mine], place[mine]), times[mine].astype(np.float64))
                there[row[mine], place[mine]] = True
                device[stage] = np.where(there, total, np.nan)
        return device

    def _sides(self, run: slice, ranks: tuple[int, ...]) -> tuple[dict[str, Floats], dict[str, int], dict[str, Floats]]:
        sides = {name: np.ma.getdata(values) for name, values in self.read.sides.items()}
        known = ~np.ma.getmaskarray(self.read.sides["device"])
        steps = self.numbers[run]
        chosen = np.isin(sides["rank"], ranks) & np.isin(sides["step"], steps)
        device: dict[str, Floats] = {}
        arrived: dict[str, Floats] = {}
        for index in np.nonzero(chosen)[0].tolist():
            is_arrival = bool(sides["arrived"][index])
            if not is_arrival and not known[index]:
                continue
            target = (arrived if is_arrival else device).setdefault(
                str(sides["stage"][index]), np.full((len(steps), len(ranks)), np.nan)
            )
            row, column = np.searchsorted(steps, sides["step"][index]), ranks.index(int(sides["rank"][index]))
            target[row, column] = sides["duration" if is_arrival else "device"][index]
        asked = Counter(sides["stage"][chosen & sides["asked"].astype(np.bool_)].tolist()) if len(chosen) else Counter()
        return device, dict(asked), arrived


def _sums(cell: Ints, values: Floats, shape: tuple[int, int, int]) -> Floats:
    """The sum of the values of each cell of an array of this shape, whose cells are numbered in their order."""
    sums = np.bincount(cell, weights=values, minlength=shape[0] * shape[1] * shape[2])
    return np.asarray(sums, dtype=np.float64).reshape(shape)


def _coarse_stages(lists: list[list[Column]]) -> frozenset[str]:
    """Stages that one rank records as a whole and another in parts: they can only be compared as a whole."""
    forms: dict[str, set[bool]] = defaultdict(set)
    for each in lists:
        refined: dict[str, set[bool]] = defaultdict(set)
        for column in each:
            refined[column.stage].add(bool(column.substage))
        for stage, kinds in refined.items():
            forms[stage].add(True in kinds)
    return frozenset(stage for stage, kinds in forms.items() if len(kinds) > 1)


def _reduced(column: Column, coarse: frozenset[str]) -> Column:
    return Column(column.stage, "", column.substep) if column.stage in coarse else column


def _filled(ends: Ints, begins: Ints) -> Ints:
    """Ends of stages that a step left out become the end of the stage before, or the begin of the step."""
    filled = np.concatenate([begins[:, None, :], ends], axis=1)
    return np.asarray(np.maximum.accumulate(filled, axis=1)[:, 1:])
