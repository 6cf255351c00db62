"""When ranks made their calls, as columns that are read once for all questions of pauses between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.case.database import kinds_of, rows_of
from forensics.rules.reductions.calls.order import begins_of_runs, order_by_rank, taken
from forensics.rules.reductions.calls.shim_calls import Calls

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

NO_RANK, NOWHERE = np.iinfo(np.int32).min, np.iinfo(np.int64).min
"""Stand for a rank and a call path that are not known."""
_CALLS = f"""
SELECT o.source_id::INTEGER AS source_id, coalesce(o.rank, {NO_RANK})::INTEGER AS rank,
       coalesce(c.code, -1)::INTEGER AS communicator, coalesce(k.code, -1)::INTEGER AS kind,
       coalesce(o.call_path, {NOWHERE}) AS call_path, o.enqueued_ns, coalesce(o.is_p2p, false) AS is_message,
       coalesce(o.locator, -1) AS locator
FROM latest_call o LEFT JOIN issued_communicator c ON c.name = o.communicator LEFT JOIN issued_kind k ON k.name = o.kind
WHERE o.enqueued_ns IS NOT NULL
"""


@dataclass(frozen=True, slots=True, eq=False)
class Issued:
    """Calls whose time is known, of those that count: one value a call in each column, those of a rank together, by time (ns).

    `communicator` and `kind` are places in the names, -1 where there is none. `places` are those of the calls of each rank.
    """

    communicators: tuple[str, ...]
    kinds: tuple[str, ...]
    source_id: Codes
    rank: Codes
    communicator: Codes
    kind: Codes
    call_path: Ints
    enqueued_ns: Ints
    is_message: Flags
    places: Mapping[int, slice] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bounds = pairwise([*begins_of_runs(self.rank).tolist(), len(self)])
        object.__setattr__(self, "places", {int(self.rank[begin]): slice(begin, end) for begin, end in bounds})

    def __len__(self) -> int:
        return len(self.rank)

    def newest(self) -> Mapping[int, int]:
        """When each rank made its newest call."""
        return _newest(self.rank, self.enqueued_ns)

    def newest_of_sources(self) -> Mapping[int, int]:
        """When the newest call of each artefact was made."""
        return _newest(self.source_id, self.enqueued_ns)

    def recurring_pauses(self) -> Mapping[int, int]:
        """The second longest pause between two calls of each rank; ranks that did not pause twice are left out."""
        begins = begins_of_runs(self.rank)
        second = _second_longest(self.enqueued_ns, begins)
        return {rank: pause for rank, pause in zip(self.rank[begins].tolist(), second.tolist(), strict=True) if pause}

    def recurring_pauses_within(self) -> Mapping[str, int]:
        """The second longest pause of a member between two calls in each communicator, of the member that paused longest."""
        width = len(self.communicators) + 1
        key = np.cumsum(np.diff(self.rank, prepend=self.rank[:1]) != 0) * width + self.communicator
        order = np.argsort(key, kind="stable")
        begins = begins_of_runs(key[order])
        longest = np.zeros(width, np.int64)
        np.maximum.at(longest, self.communicator[order[begins]], _second_longest(self.enqueued_ns[order], begins))
        # The last place is that of calls without a communicator, whose number is -1.
        return {name: pause for name, pause in zip(self.communicators, longest.tolist(), strict=False) if pause}

    def collectives(self) -> Issued:
        """Only the calls in a communicator that are no messages."""
        chosen = (self.communicator >= 0) & ~self.is_message
        return self if chosen.all() else replace(self, **{name: getattr(self, name)[chosen] for name in _COLUMNS})

    def of(self, rank: int) -> slice:
        """Where the calls of a rank stand."""
        return self.places.get(rank, slice(0, 0))


_COLUMNS = tuple(each.name for each in fields(Issued) if each.name not in ("communicators", "kinds", "places"))


def issued(calls: Calls) -> Issued:
    """Read when the calls that count were made.

    They are sorted here: a window of DuckDB over all calls of a large job would copy all of them to sort them, once for each
    question.
    """
    connection = calls.connection
    names = {"communicator": communicators_of(connection), "kind": kinds_of(connection, "operations")}
    if not names["kind"]:
        return _of_columns(names, {name: np.empty(0, np.int64) for name in _COLUMNS})
    for column, known in names.items():
        codes = {"name": np.array(known or ("",), dtype=object), "code": np.arange(max(len(known), 1), dtype=np.int64)}
        connection.register(f"issued_{column}", codes)
    found = {name: np.asarray(column) for name, column in connection.execute(_CALLS).fetchnumpy().items()}
    for column in names:
        connection.unregister(f"issued_{column}")
    return _of_columns(names, _by_time(found))


def _of_columns(names: Mapping[str, tuple[str, ...]], columns: Mapping[str, npt.NDArray[Any]]) -> Issued:
    return Issued(names["communicator"], names["kind"], **{name: columns[name] for name in _COLUMNS})


def communicators_of(connection: DuckDBPyConnection) -> tuple[str, ...]:
    """The communicators of all calls, in order."""
    query = "SELECT DISTINCT communicator FROM operations WHERE communicator IS NOT NULL ORDER BY 1"
    return tuple(name for (name,) in rows_of(connection, "operations", query))


def _by_time(columns: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Columns by rank and time, as they mostly come; calls of one moment as they stand in the evidence."""
    order = order_by_rank(columns["rank"], columns["enqueued_ns"], columns["source_id"], columns.pop("locator"))
    return {name: taken(column, order) for name, column in columns.items()}


def _newest(of: Codes, at_ns: Ints) -> Mapping[int, int]:
    """The highest time of each of them, which come in runs, most of them in one."""
    begins = begins_of_runs(of)
    found: dict[int, int] = {}
    for each, newest in zip(of[begins].tolist(), _highest(at_ns, begins).tolist(), strict=True):
        found[each] = max(newest, found.get(each, newest))
    return found


def _highest(values: Ints, begins: Ints) -> Ints:
    found: Ints = np.maximum.reduceat(values, begins) if len(begins) else np.empty(0, np.int64)
    return found


def _second_longest(at_ns: Ints, begins: Ints) -> Ints:
    """The second longest of the pauses between the times of each run, 0 where there were not two."""
    pauses = np.diff(at_ns, prepend=at_ns[:1])
    pauses[begins] = 0
    run = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(at_ns)))
    longest = np.flatnonzero(pauses == _highest(pauses, begins)[run])
    pauses[longest[begins_of_runs(run[longest])]] = 0
    return _highest(pauses, begins)
