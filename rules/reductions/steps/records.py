"""The calls of each rank as columns, in the order in which its host made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.case.database import few_calls, has_rows, kinds_of, rows_of
from forensics.rules.reductions.calls.group_times import joined_group_times
from forensics.rules.reductions.calls.issued import communicators_of
from forensics.rules.reductions.calls.order import begins_of_runs, order_by_rank, taken
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.steps.tokens import alike, numbered

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_Columns = dict[str, npt.NDArray[Any]]

UNKNOWN = np.iinfo(np.int64).min
"""What stands where the source stated nothing."""
# Activations keep their width and differ in the tokens that a microbatch has, or that an expert gets; flat ones are parameters.
_FORM = "regexp_replace(o.input_sizes, '[0-9]+,', '*,', 'g')"
# What only profilers tell, one value for all calls of a recorder.
_MARKS = {"step": UNKNOWN, "step_begin_ns": UNKNOWN, "step_end_ns": UNKNOWN, "stated": 0}

# Where a rank left a dump, its calls are those of the dump: numbers and order of a shim log cannot be compared with them.
# Of calls that one group call issued, the entry that closes it has the times: the first of them stands for all.
# Hosts wait in calls of gloo: on one clock, a member is in it from its own arrival to the last one at least. It is a table, for
# else DuckDB takes no such calls for many, and puts all calls of the job into a hash table to look them up.
_MET = """
CREATE TEMP TABLE met_calls AS
WITH one_host AS (
    SELECT communicator FROM members LEFT JOIN (SELECT rank, min(host) AS host FROM ranks GROUP BY rank) USING (rank)
    GROUP BY communicator HAVING count(DISTINCT host) = 1 AND count(host) = count(*) AND count(*) > 1
)
SELECT source_id, locator, max(enqueued_ns) OVER meeting - enqueued_ns AS waited_ns, count(*) OVER meeting AS came
FROM latest_call JOIN one_host USING (communicator)
WHERE communicator IN (SELECT communicator FROM members JOIN wanted_ranks USING (rank))
  AND backend = 'gloo' AND NOT coalesce(is_p2p, false) AND duration_ns IS NULL
WINDOW meeting AS (PARTITION BY communicator, sequence)
"""
_GLOO = "SELECT 1 FROM operations WHERE backend = 'gloo' LIMIT 1"
_MET_NOBODY = "CREATE TEMP TABLE met_calls (source_id BIGINT, locator BIGINT, waited_ns BIGINT, came BIGINT)"
_CALLS = f"""
WITH size AS (SELECT communicator, count(*) AS members FROM members GROUP BY communicator), timed AS (
    SELECT o.*, CASE WHEN o.group_call IS NULL THEN o.duration_ns WHEN coalesce(o.record_id, o.locator) > o.call_order THEN 0
                ELSE g.took_ns END AS took_ns,
           CASE WHEN o.group_call IS NULL THEN o.device_end_ns ELSE g.over_ns END AS over_ns
    FROM ordered_call o {joined_group_times("o", "rank IN (SELECT rank FROM wanted_ranks)")}
    WHERE o.rank IN (SELECT rank FROM wanted_ranks) AND (o.family = 'recorder' OR o.rank NOT IN (SELECT rank FROM capture))
)
SELECT o.rank, c.code AS communicator, k.code AS kind, CAST(coalesce(z.members, 0) AS INTEGER) AS members,
       coalesce(o.is_p2p, false) OR o.kind IN ('send', 'recv') AS is_message, o.kind LIKE '%send%' AS is_send,
       coalesce(p.rank, -1) AS peer, coalesce(o.sequence, {UNKNOWN}) AS sequence, coalesce(o.count, {UNKNOWN}) AS elements,
       coalesce(o.call_path, {UNKNOWN}) AS call_path, o.call_order, o.record_id,
       o.source_id::INTEGER AS source_id, o.locator, hash(c.code, k.code, o.input_sizes, o.count, p.rank)::UBIGINT AS token,
       CASE WHEN contains(o.input_sizes, ',') THEN hash(c.code, k.code, {_FORM}, p.rank)
            ELSE token END::UBIGINT AS form,
       coalesce(o.enqueued_ns, o.entered_ns, o.device_start_ns, {UNKNOWN}) AS enqueued_ns,
       coalesce(o.over_ns, {UNKNOWN}) AS end_ns,
       coalesce(o.took_ns, CASE WHEN w.came = z.members THEN w.waited_ns END, {UNKNOWN}) AS duration_ns,
       o.took_ns IS NULL AND w.came IS NOT NULL AS by_arrivals, o.state = 'done' AS done
FROM timed o JOIN communicator_codes c ON c.name = o.communicator JOIN kind_codes k ON k.name = o.kind
LEFT JOIN size z USING (communicator)
LEFT JOIN members p ON p.communicator = o.communicator AND p.position = o.peer
LEFT JOIN met_calls w ON w.source_id = o.source_id AND w.locator = o.locator
WHERE NOT o.closes
"""


@dataclass(frozen=True, slots=True)
class Names:
    """What the numbers in the columns `communicator` and `kind` of a record stand for."""

    communicators: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Calls of one rank in the order of its host: one value a call in each column.

    `token` is the same for calls of one kind, size and peer in one communicator, whose members `members` counts; sizes that
    data decides do not count. `form` is the same also for activations that differ in their number of tokens only, as where
    microbatches are of different lengths. Both are numbers from 0 on, of this record alone. `peer` is a global rank (-1: none,
    or not known). Times are ns on the clock of the rank's host; they and the `elements` of a call are `UNKNOWN` where the
    source has none. Where `by_arrivals`, the time inside a call is shown by when its members came to it. Profilers mark steps
    (`step` is the number, `UNKNOWN` outside of them) and what the host did: `stated` is 1 in a forward pass, -1 in a backward
    one, else 0.
    """

    rank: int
    names: Names
    communicator: Ints
    kind: Ints
    members: Ints
    is_message: Flags
    is_send: Flags
    peer: Ints
    sequence: Ints
    elements: Ints
    call_path: Ints
    call_order: Ints
    source_id: Ints
    locator: Ints
    token: Ints
    form: Ints
    enqueued_ns: Ints
    end_ns: Ints
    duration_ns: Ints
    by_arrivals: Flags
    done: Flags
    step: Ints
    step_begin_ns: Ints
    step_end_ns: Ints
    stated: Ints

    def __len__(self) -> int:
        return len(self.token)

    @property
    def is_barrier(self) -> Flags:
        """Which calls move no data: barriers, also those that NCCL makes by reducing a byte."""
        found: Flags = np.array(["barrier" in kind for kind in self.names.kinds] or [False])[self.kind]
        return found

    @property
    def is_marked(self) -> bool:
        """Whether marks tell its steps."""
        return bool((self.step != UNKNOWN).any())

    def label(self, at: int) -> str:
        """The communicator of a call."""
        return self.names.communicators[int(self.communicator[at])]

    def of(self, communicator: str) -> Flags:
        """Which calls are of a communicator."""
        labels = self.names.communicators
        found: Flags = self.communicator == (labels.index(communicator) if communicator in labels else -1)
        return found

    def meetings(self, places: Ints) -> list[tuple[int, ...]]:
        """What names each of the calls of one step alike on all of its members: its number, or the message among its like."""
        ends = np.where(self.is_send, self.rank, self.peer), np.where(self.is_send, self.peer, self.rank)
        columns = (self.communicator, self.sequence, self.is_message, *ends)
        count: Counter[tuple[int, ...]] = Counter()
        keys: list[tuple[int, ...]] = []
        for communicator, sequence, is_message, *pair in zip(*(column[places].tolist() for column in columns), strict=True):
            key = (communicator, *pair) if is_message else (communicator,)
            count[key] += is_message
            keys.append((*key, count[key] if is_message else sequence))
        return keys

    def issued(self, communicator: str, sequence: int) -> int | None:
        """Place of the call with a number in a communicator; None where the record does not hold it."""
        found = np.flatnonzero(self.of(communicator) & (self.sequence == sequence))
        return int(found[-1]) if len(found) else None


def records(connection: DuckDBPyConnection, ranks: Iterable[int] | None = None) -> Mapping[int, Record]:
    """The newest record of each of some ranks, or of all; ranks without one are left out."""
    if not has_rows(connection, "operations"):
        return {}
    chosen = _all_ranks(connection) if ranks is None else sorted(set(ranks))
    connection.register("wanted_ranks", {"rank": np.array(chosen, dtype=np.int64)})
    connection.execute(_MET if connection.execute(_GLOO).fetchall() else _MET_NOBODY)
    found = records_of(connection, _CALLS, Names(communicators_of(connection), kinds_of(connection, "operations")))
    connection.execute("DROP TABLE met_calls")
    connection.unregister("wanted_ranks")
    return found


@dataclass(slots=True)
class Recorded:
    """Records of a case, by rank: all are read at once and kept where there are few calls or somebody asks for all of them."""

    connection: DuckDBPyConnection
    all: Mapping[int, Record] | None = None

    def of(self, ranks: Iterable[int] | None = None) -> Mapping[int, Record]:
        """The newest record of each of some ranks, or of all; ranks without one are left out."""
        if self.all is None and ranks is not None and not few_calls(self.connection):
            return records(self.connection, ranks)
        if self.all is None:
            self.all = records(self.connection)
        return self.all if ranks is None else {rank: self.all[rank] for rank in sorted(set(ranks)) if rank in self.all}


@reduction
def recorded(connection: DuckDBPyConnection) -> Recorded:
    """The records of the case, none of them read yet."""
    return Recorded(connection)


def records_of(connection: DuckDBPyConnection, query: str, names: Names) -> Mapping[int, Record]:
    """Records from a query that gives `rank`, `record_id` and the columns of a record, by rank and in the order of the host.

    It sees the numbers of names as `communicator_codes` and `kind_codes` (name, code). Where there is no communicator there is
    no call either, and DuckDB would take milliseconds to plan what comes to nothing.
    """
    if not names.communicators:
        return {}
    return _split(_in_order(_fetched(connection, query, names)), names)


def _fetched(connection: DuckDBPyConnection, query: str, names: Names) -> _Columns:
    for table, known in (("communicator_codes", names.communicators), ("kind_codes", names.kinds)):
        connection.register(table, {"name": np.array(known, dtype=object), "code": np.arange(len(known), dtype=np.int32)})
    columns = connection.execute(query).fetchnumpy()
    for table in ("communicator_codes", "kind_codes"):
        connection.unregister(table)
    return columns


def _in_order(columns: _Columns) -> _Columns:
    """Columns by rank, in the order of the host. Here and not in the query, which would copy all of them to sort the rows."""
    later = np.ma.filled(columns.pop("record_id"), np.iinfo(np.int64).max)
    order = order_by_rank(np.asarray(columns["rank"]), np.asarray(columns["call_order"]), later, np.asarray(columns["locator"]))
    for name in list(columns):
        columns[name] = taken(np.asarray(columns.pop(name)), order)
    return columns


def _all_ranks(connection: DuckDBPyConnection) -> list[int]:
    found = rows_of(connection, "operations", "SELECT DISTINCT rank FROM operations WHERE rank >= 0 ORDER BY 1")
    return [rank for (rank,) in found]


def _split(columns: _Columns, names: Names) -> Mapping[int, Record]:
    hashes = {name: alike(columns.pop(name), columns, names.kinds) for name in ("token", "form")}
    of = columns.pop("rank")
    columns |= {name: np.broadcast_to(np.int64(value), len(of)) for name, value in _MARKS.items() if name not in columns}
    bounds = begins_of_runs(of)
    parts = zip(of[bounds].tolist(), bounds.tolist(), np.append(bounds, len(of))[1:].tolist(), strict=True)
    return {rank: _record(rank, names, columns, hashes, slice(begin, end)) for rank, begin, end in sorted(parts)}


def _record(rank: int, names: Names, columns: _Columns, hashes: _Columns, at: slice) -> Record:
    own: _Columns = {name: numbered(column[at]) for name, column in hashes.items()}
    return Record(rank, names, **{name: column[at] for name, column in columns.items()}, **own)
