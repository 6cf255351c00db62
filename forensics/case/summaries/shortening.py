"""Cuts the reading of an artefact to what a verdict on the end of a job rests on (docs/decisions/0020-summary-of-a-rank.md).

What is kept of a history is its end, without gaps: that is what a recorder with a smaller memory leaves, and rules know such
records. The cut lies before everything unfinished and before the pauses that the rank is used to, for a silence is judged by
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.case.reading import Reading
from forensics.ingest._shared.packed import Packed, PackedBatch, Types, constant, missing, pack
from forensics.ingest.rank_summary.columns import Rows
from forensics.ingest.rank_summary.layout import KINDS, TABLES

LEAST_CALLS = 128
"""Calls that are kept of a rank at least; with what is pending and the usual pauses it may be more, up to all of them."""
LEAST_STEPS = 10
"""Recorded steps of a rank by which its speed is stated; with fewer its calls tell it, and all of them are kept."""
MOST_SAMPLES = 512
"""Newest rows of flows, chunks and work requests; states, which end a history, are kept whole."""
ALIKE = 0.8
"""A pause of this share of the second longest one counts as one like it."""
_NEWEST = {"flows": "start_ns", "chunk_states": "time_ns", "wr_samples": "time_ns", "communicator_events": "entered_ns"}
_OVERWRITTEN = re.compile(r"kept=(\d+) overwritten=(\d+)")

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Short:
    """What is left of a reading, and how many rows of each table were left out."""

    tables: Sequence[Rows]
    left_out: Mapping[str, int]


def shortened(reading: Reading, types: Mapping[str, Types], is_timed: bool) -> Short | None:
    """The newest rows of a reading; None for what no summary stands for, and what was not read to an end.

    Calls are cut where steps of the rank are recorded: else nothing but a long record of calls shows whether it became slower.
    """
    tables = KINDS.get(reading.kind or "")
    if tables is None or any(problem.fatal for problem in reading.problems):
        return None
    whole = {table: _joined(table, reading.batches, types[table]) for table in tables}
    rows = {table: each for table, each in whole.items() if each is not None}
    before = {table: each.count for table, each in rows.items()}
    if not rows or not {"operations", "group_views", "steps", "stacks", "communicator_states"} & rows.keys():
        return None
    if is_timed:
        rows = {"flight_recorder": _of_recorder, "shim_log": _of_log}.get(reading.kind or "", dict)(rows)
    rows = _with_paths(rows)
    left_out = {table: count - rows[table].count for table, count in before.items() if rows[table].count < count}
    # Rows of tables that a summary never has.
    for batch in reading.batches:
        if batch.table not in tables and len(next(iter(batch.columns.values()), ())):
            left_out[batch.table] = left_out.get(batch.table, 0) + len(next(iter(batch.columns.values())))
    if reading.kind == "shim_log":
        rows = _counted(rows, left_out)
    return Short([rows[table] for table in sorted(rows)], left_out)


def _joined(table: str, batches: Sequence[Any], types: Types) -> Rows | None:
    """All rows of one table, in the columns that a summary has."""
    own: list[PackedBatch] = [batch for batch in batches if batch.table == table]
    counts = [len(next(iter(batch.columns.values()), ())) for batch in own]
    if not sum(counts):
        return None
    columns = {}
    for name in TABLES[table]:
        if any(name in batch.columns for batch in own):
            parts = [
                pack(b.columns[name], types[name]) if name in b.columns else missing(types[name], n)
                for b, n in zip(own, counts, strict=True)
            ]
            columns[name] = parts[0] if len(parts) == 1 else pack([value for part in parts for value in part], types[name])
    return Rows(table, sum(counts), columns)


def taken(rows: Rows, kept: Flags) -> Rows:
    """The rows that are kept."""
    if kept.all():
        return rows
    places = np.flatnonzero(kept)
    return Rows(rows.table, len(places), {name: column.taken(places.tolist()) for name, column in rows.columns.items()})


def numbers(rows: Rows, name: str) -> tuple[Ints, Flags]:
    """A column of numbers with 0 where null, and where it is null."""
    column = rows.columns.get(name)
    if column is None:
        return np.zeros(rows.count, np.int64), np.ones(rows.count, np.bool_)
    data = np.ma.masked_array(column.expanded())
    return np.asarray(data.filled(0), dtype=np.int64), np.ma.getmaskarray(data)


def _of_recorder(rows: dict[str, Rows]) -> dict[str, Rows]:
    calls = rows.get("operations")
    if calls is None:
        return rows
    times, unknown = numbers(calls, "enqueued_ns")
    states = list(calls.columns["state"])
    unfinished = next((place for place, state in enumerate(states) if state != "done"), calls.count)
    begin = min(_begin(times, unknown), unfinished)
    begin = _whole_call(calls, begin)
    kept = np.arange(calls.count) >= begin
    short = taken(calls, kept)
    return {**rows, "operations": short, **_with_positions(rows.get("group_views"), taken(calls, ~kept), short)}


def _begin(times: Ints, unknown: Flags) -> int:
    """First of the newest calls that have the pauses in them that the rank makes again and again."""
    begin = max(0, len(times) - LEAST_CALLS)
    if unknown.any() or len(times) < 3:
        return begin
    pauses = np.diff(np.maximum.accumulate(times))
    usual = np.partition(pauses, -2)[-2]
    like = np.flatnonzero(pauses >= ALIKE * usual)
    return min(begin, int(like[-2])) if usual > 0 else begin


def _whole_call(calls: Rows, begin: int) -> int:
    """The begin moved to that of the group call that it lies in."""
    if "group_call" not in calls.columns or not 0 < begin < calls.count:
        return begin
    group, alone = numbers(calls, "group_call")
    owner, _ = numbers(calls, "pg_id")
    while (
        begin
        and not alone[begin]
        and not alone[begin - 1]
        and (group[begin], owner[begin]) == (group[begin - 1], owner[begin - 1])
    ):
        begin -= 1
    return begin


def _with_positions(views: Rows | None, dropped: Rows, kept: Rows) -> dict[str, Rows]:
    """How far the rank had come in groups of whose calls none is left, where the recorder's own counters do not say it."""
    if views is None or not dropped.count or "pg_name" not in views.columns:
        return {} if views is None else {"group_views": views}
    last, done = _positions(dropped, frozenset(kept.columns["pg_name"]) if "pg_name" in kept.columns else frozenset())
    columns = dict(views.columns)
    names = list(views.columns["pg_name"])
    for name, found in (("last_enqueued", last), ("last_completed", done)):
        stated = list(views.columns.get(name) or [None] * views.count)
        columns[name] = pack(
            [found.get(group) if value is None else value for value, group in zip(stated, names, strict=True)], "BIGINT"
        )
    return {"group_views": Rows(views.table, views.count, columns)}


def _positions(calls: Rows, others: frozenset[str | None]) -> tuple[dict[str, int], dict[str, int]]:
    """Highest number that was issued, and that was finished, of groups that only make collectives."""
    listed = zip(
        *(calls.columns.get(name) or missing("BIGINT", calls.count) for name in ("pg_name", "is_p2p", "sequence", "state")),
        strict=True,
    )
    last: dict[str, int] = {}
    done: dict[str, int] = {}
    paired: set[str] = set()
    for group, is_p2p, number, state in listed:
        if group is None or group in others or number is None:
            continue
        if is_p2p:
            paired.add(group)
        last[group] = max(number, last.get(group, 0))
        if state == "done":
            done[group] = max(number, done.get(group, 0))
    return {g: n for g, n in last.items() if g not in paired}, {g: n for g, n in done.items() if g not in paired}


def _of_log(rows: dict[str, Rows]) -> dict[str, Rows]:
    """A log has a ring for each thread; its calls are cut at one moment."""
    short = dict(rows)
    if calls := rows.get("operations"):
        times, unknown = numbers(calls, "entered_ns")
        order = np.argsort(times, kind="stable")
        begin = _begin(times[order], unknown)
        short["operations"] = taken(calls, unknown | (times >= times[order][begin]))
    for table, name in _NEWEST.items():
        if each := rows.get(table):
            times, unknown = numbers(each, name)
            # What a state page says is the last that is known.
            states = numbers(each, "locator")[0] < 0
            newest = np.zeros(each.count, np.bool_)
            newest[np.argsort(times, kind="stable")[-MOST_SAMPLES:]] = True
            open_ends = numbers(each, "end_ns")[1] if table == "flows" else np.zeros(each.count, np.bool_)
            short[table] = taken(each, newest | states | open_ends | unknown)
    return short


def _counted(rows: dict[str, Rows], left_out: Mapping[str, int]) -> dict[str, Rows]:
    """The log's own count of calls, with those that were left out as overwritten."""
    config, count = rows.get("job_config"), left_out.get("operations", 0)
    if config is None or not count:
        return rows
    keys, values = list(config.columns["key"]), list(config.columns["value"])
    stated = [
        _more_overwritten(value, count) if key == "shim.records.calls" else value
        for key, value in zip(keys, values, strict=True)
    ]
    return {**rows, "job_config": Rows("job_config", config.count, {**config.columns, "value": pack(stated, "VARCHAR")})}


def _more_overwritten(value: str | None, count: int) -> str | None:
    def stated(match: re.Match[str]) -> str:
        return f"kept={max(0, int(match[1]) - count)} overwritten={int(match[2]) + count}"

    return None if value is None else _OVERWRITTEN.sub(stated, value)


def _with_paths(rows: dict[str, Rows]) -> dict[str, Rows]:
    """Only the call paths that are used, each once: folded, as a stack is under its count."""
    if not {"call_paths", "frames"} <= rows.keys():
        return rows
    used = np.unique(
        np.concatenate(
            [numbers(rows[t], "call_path")[0] for t in ("operations", "stacks") if t in rows] or [np.zeros(0, np.int64)]
        )
    )
    paths = taken(rows["call_paths"], np.isin(numbers(rows["call_paths"], "call_path")[0], used))
    frames = taken(rows["frames"], np.isin(numbers(rows["frames"], "frame")[0], numbers(paths, "frame")[0]))
    return _small_numbers({**rows, "call_paths": paths, "frames": frames})


def _small_numbers(rows: dict[str, Rows]) -> dict[str, Rows]:
    """Call paths and frames counted from 0 instead of hashes, which do not compress."""
    found = dict(rows)
    for name, tables in (("call_path", ("call_paths", "operations", "stacks")), ("frame", ("frames", "call_paths"))):
        known = np.unique(numbers(rows[tables[0]], name)[0])
        for table in tables:
            if table in found and name in found[table].columns:
                values, null = numbers(found[table], name)
                small = np.searchsorted(known, values)
                lost = null | ~np.isin(values, known)
                column = Packed(len(small), np.where(lost, 0, small), lost if lost.any() else None)
                found[table] = Rows(table, found[table].count, {**found[table].columns, name: column})
    return found


def coverage_of(short: Short) -> Rows | None:
    """What was left out, as rows of `coverage`; None where nothing was."""
    stated = {table: count for table, count in short.left_out.items() if table not in ("frames", "call_paths") and count}
    if not stated:
        return None
    reason = "summary: older rows left out: " + ", ".join(f"{count} {table}" for table, count in sorted(stated.items()))
    values = {"scope": "rank", "kind": "summary", "status": "partial", "reason": reason}
    return Rows("coverage", 1, {name: constant(value, "VARCHAR", 1) for name, value in values.items()})
