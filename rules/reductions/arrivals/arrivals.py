"""When the members came to the collectives that all of them finished: by the clock of their host, or each by its own.

Clocks of one host are the same, and arrivals on it can be compared. Elsewhere nothing but lengths on a rank's own clock counts
(Mycroft section 7.1): members leave a collective together, and the one that came last is in it for the shortest time. Where no
length is recorded (gloo), the calls bound how far the clocks are apart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.arrivals.aligned import on_one_clock
from forensics.rules.reductions.calls.semantics import SEPARATE, stem_of

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# Hosts of devices run ahead: only what the device did shows who was awaited, and the watchdog sees it when it next looks.
WATCHDOG_INTERVAL_NS = 250_000_000
# Nobody comes out of these before all members went in.
JOINT = (
    "('all_reduce', 'all_gather', 'all_gather_base', 'all_gather_single', 'all_gather_into_tensor', 'reduce_scatter', "
    "'reduce_scatter_base', 'reduce_scatter_single', 'reduce_scatter_tensor', 'all_to_all', 'all_to_all_single', 'barrier')"
)
# Of a call that only its issuing dates, the last member must have been in it for less than half of what it came after.
_PROMPT = 0.5
_TOKENS = re.compile("[0-9]+,")
_MOST_NUMBERS = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Calls of one kind and form of one communicator, in the order of their numbers, as all members came to them.

    A row is a call, a column a member, in the order of `ranks`. `behind` is how many ns after the first each came; `at_ns` a
    moment of the call for each: its arrival on one clock, or its end on its own. `is_bound` marks a call of which only the
    issuing by the host is known: who came last is sure, by how much is at most the difference. `coarse_ns` is the least
    difference that counts. `is_aligned`: clocks are known from the calls alone, and who was late in all of them is not seen.
    `last` is the column that came last, `by_ns` by how much after all others, 0 if that does not count. `issued_after` is how
    many ns after the first on its host the host of a member made the call, NaN where it is alone there; None where hosts wait
    in calls themselves.
    """

    communicator: str
    signature: str
    ranks: tuple[int, ...]
    behind: Ints
    at_ns: Ints
    entries: tuple[Ints, Ints]
    paths: Mapping[int, str]
    coarse_ns: Ints
    is_bound: Flags
    on_own_clocks: bool = False
    is_aligned: bool = False
    issued_after: Floats | None = None
    last: Ints = field(init=False)
    by_ns: Ints = field(init=False)

    def __post_init__(self) -> None:
        before, highest = np.partition(self.behind, -2, axis=1)[:, -2:].T
        by = highest - before
        object.__setattr__(self, "last", self.behind.argmax(axis=1))
        object.__setattr__(self, "by_ns", np.where(by >= np.maximum(self.coarse_ns, 1), by, 0))

    def __len__(self) -> int:
        return len(self.behind)

    @property
    def kind(self) -> str:
        """The kind of call, without its sizes."""
        return self.signature.partition(" ")[0]

    def lateness(self, column: int) -> Ints:
        """ns by which a member came after the last of the others to each call; 0 when one came after it."""
        return np.where(self.last == column, self.by_ns, 0)

    def met_ns(self, column: int) -> Ints:
        """When all members had come to each call, ns on the clock of a member: an end on its own clock is that already."""
        after = 0 if self.on_own_clocks else self.behind.max(axis=1) - self.behind[:, column]
        return self.at_ns[:, column] + after

    def source(self, call: int, column: int) -> str:
        """Artefact and entry of a call of a member."""
        source_id, locator = (each[call, column] for each in self.entries)
        return f"{self.paths[int(source_id)]}#entry={locator}"


_BY_ARRIVAL = """
WITH placed AS (
    SELECT communicator, count(DISTINCT host) = 1 AND count(host) = count(*) AS together
    FROM members LEFT JOIN (SELECT rank, min(host) AS host FROM ranks GROUP BY rank) h USING (rank)
    GROUP BY communicator HAVING count(*) > 1
), calls AS (
    SELECT o.communicator, o.kind, o.input_sizes, o.sequence, o.rank, o.enqueued_ns AS came_ns, o.enqueued_ns AS at_ns,
           false AS coarse, false AS bound, -1 AS issued_ns, o.source_id, o.locator
    FROM latest_call o JOIN placed USING (communicator)
    WHERE o.backend = 'gloo' AND NOT coalesce(o.is_p2p, false) AND o.enqueued_ns IS NOT NULL AND o.sequence IS NOT NULL
      AND {of_these}
)
"""
_ON_ONE_HOST = _BY_ARRIVAL.format(of_these="together")
_ON_CLOCKS_APART = _BY_ARRIVAL.format(of_these=f"NOT together AND ltrim(kind, '_') IN {JOINT}")
_ON_OWN_CLOCKS = """
WITH calls AS (
    SELECT o.communicator, o.kind, o.input_sizes, o.sequence, o.rank,
           -coalesce(o.duration_ns, o.device_end_ns - coalesce(o.device_start_ns, o.enqueued_ns)) AS came_ns,
           coalesce(o.device_end_ns, o.enqueued_ns) AS at_ns, o.duration_ns IS NULL AS coarse,
           o.duration_ns IS NULL AND o.device_start_ns IS NULL AS bound, coalesce(o.enqueued_ns, -1) AS issued_ns,
           o.source_id, o.locator
    FROM latest_call o
    WHERE o.backend <> 'gloo' AND NOT coalesce(o.is_p2p, false) AND o.state = 'done' AND o.sequence IS NOT NULL
)
"""
_KINDS = "SELECT DISTINCT communicator, kind, input_sizes FROM calls WHERE communicator IS NOT NULL"
# Stages of a pipeline have different work: members that send to each other, through others too, are not compared. What is asked
# of kinds is not asked of each of millions of calls, and members are not paired with all other members of a large world.
_KINDS_ON_OWN_CLOCKS = f"""
WITH RECURSIVE linked AS (
    SELECT DISTINCT o.rank AS a, m.rank AS b FROM operations o
    JOIN members m ON m.communicator = o.communicator AND m.position = o.peer WHERE o.is_p2p
), reached AS (
    SELECT a, b FROM linked UNION SELECT r.a, l.b FROM reached r JOIN linked l ON l.a = r.b
), staged AS (
    SELECT DISTINCT x.communicator FROM reached r JOIN members x ON x.rank = r.a
    WHERE r.a <> r.b AND (x.communicator, r.b) IN (SELECT communicator, rank FROM members)
), kinds AS MATERIALIZED (
    SELECT DISTINCT communicator, kind, input_sizes FROM latest_call WHERE communicator IS NOT NULL
)
SELECT communicator, kind, input_sizes FROM kinds
WHERE ltrim(kind, '_') IN {JOINT} AND communicator NOT IN (SELECT communicator FROM staged)
"""


class Clocks(Enum):
    """How arrivals of several members are compared."""

    SHARED = "of one host"
    OWN = "lengths, each on its own clock"
    ALIGNED = "brought together by the calls"


_SOURCES = (
    (_ON_ONE_HOST, f"{_ON_ONE_HOST} {_KINDS}", Clocks.SHARED),
    (_ON_CLOCKS_APART, f"{_ON_CLOCKS_APART} {_KINDS}", Clocks.ALIGNED),
    (_ON_OWN_CLOCKS, _KINDS_ON_OWN_CLOCKS, Clocks.OWN),
)
_ROWS = """
SELECT k.number, c.sequence, c.rank, c.came_ns, c.at_ns, c.coarse, c.bound, c.issued_ns, c.source_id, c.locator
FROM calls c JOIN series_kinds k
    ON k.communicator = c.communicator AND k.kind = c.kind AND k.input_sizes IS NOT DISTINCT FROM c.input_sizes
WHERE c.came_ns IS NOT NULL AND c.at_ns IS NOT NULL AND c.rank IS NOT NULL
"""
_HOSTS = "SELECT rank, min(host) FROM ranks WHERE host IS NOT NULL GROUP BY rank"
_SIZES = "SELECT communicator, count(*) FROM members GROUP BY communicator HAVING count(*) > 1"


def arrivals(connection: DuckDBPyConnection) -> Iterator[Series]:
    """Arrivals at every kind of call of every communicator."""
    sizes = dict(rows_of(connection, "members", _SIZES))
    for calls, wanted, clocks in _SOURCES:
        kinds = rows_of(connection, "operations", wanted)
        known = [(label, _form(kind, shapes or "", clocks), kind, shapes) for label, kind, shapes in kinds if label in sizes]
        if known:
            yield from _of_kinds(connection, calls, sorted(known, key=lambda row: row[:2]), sizes, clocks)


def _form(kind: str, shapes: str, clocks: Clocks) -> str:
    """Kind and sizes of a call: activations keep their width, and differ in the tokens that a microbatch or an expert has.

    Of an exchange made of messages the time inside goes with its size; when hosts came to it does not.
    """
    own = clocks is Clocks.OWN and stem_of(kind) in SEPARATE
    return f"{kind} {shapes if own else _TOKENS.sub('*,', shapes)}"


def _of_kinds(
    connection: DuckDBPyConnection,
    calls: str,
    known: Sequence[tuple[str, str, str, str | None]],
    sizes: Mapping[str, int],
    clocks: Clocks,
) -> Iterator[Series]:
    """Series of these communicators and signatures, which come with their kind and sizes as they are recorded."""
    keys = list(dict.fromkeys(row[:2] for row in known))
    columns = {
        name: np.array([row[at] for row in known], object)
        for at, name in ((0, "communicator"), (2, "kind"), (3, "input_sizes"))
    }
    number_of = {key: number for number, key in enumerate(keys)}
    connection.register("series_kinds", {**columns, "number": np.array([number_of[row[:2]] for row in known])})
    found = connection.execute(calls + _ROWS).fetchnumpy()
    connection.unregister("series_kinds")
    paths = dict(connection.execute("SELECT source_id, path FROM sources").fetchall())
    hosts = dict(connection.execute(_HOSTS).fetchall())
    rows = {name: np.asarray(column) for name, column in found.items()}
    order = _by_call(rows["number"], rows["sequence"], rows["rank"])
    bounds = np.searchsorted(rows["number"][order], np.arange(len(keys) + 1))
    for number, (label, signature) in enumerate(keys):
        own = order[bounds[number] : bounds[number + 1]]
        places = own[_complete(rows["sequence"][own], rows["rank"][own], sizes[label])]
        if len(places):
            series = _series(label, signature, {name: column[places] for name, column in rows.items()}, paths, clocks)
            issued = _after_first(rows["issued_ns"][places], series.ranks, hosts) if clocks is Clocks.OWN else None
            if clocks is not Clocks.ALIGNED:
                yield replace(series, issued_after=issued)
            elif (aligned := _aligned(series)) is not None:
                yield aligned


def _by_call(*keys: npt.NDArray[Any]) -> Ints:
    """The order of rows by their keys, the first of which counts most. DuckDB would copy all columns to sort them."""
    spans = [int(key.max(initial=0)) - int(key.min(initial=0)) + 1 for key in keys]
    if prod(spans) > _MOST_NUMBERS:
        return np.lexsort(keys[::-1])
    joined = np.zeros(len(keys[0]), np.int64)
    for key, span in zip(keys, spans, strict=True):
        joined = joined * span + (key.astype(np.int64) - min(int(key.min(initial=0)), 0))
    return np.argsort(joined)


def _after_first(issued_ns: Ints, ranks: Sequence[int], hosts: Mapping[int, str]) -> Floats:
    """ns after the first call on its host of each call of a member; NaN where it is alone there or not dated."""
    issued = np.where(issued_ns < 0, np.nan, issued_ns)
    after = np.full(issued.shape, np.nan)
    columns: dict[str, list[int]] = defaultdict(list)
    for column, rank in enumerate(ranks):
        if rank in hosts:
            columns[hosts[rank]].append(column)
    for beside in columns.values():
        if len(beside) > 1:
            after[:, beside] = issued[:, beside] - issued[:, beside].min(axis=1, keepdims=True)
    return after


def _complete(sequences: Ints, ranks: Ints, size: int) -> Ints:
    """Places of the calls that each of as many members made once: a row for each."""
    begins = np.flatnonzero(np.diff(sequences, prepend=sequences[:1] - 1))
    whole = begins[np.diff(begins, append=len(sequences)) == size]
    places = whole[:, None] + np.arange(size)
    members = ranks[places]
    found: Ints = places[(members == members[:1]).all(axis=1) & (np.diff(members, axis=1) > 0).all(axis=1)]
    return found


def _series(
    label: str, signature: str, rows: Mapping[str, npt.NDArray[np.generic]], paths: Mapping[int, str], clocks: Clocks
) -> Series:
    """A series of matrices."""
    came = rows["came_ns"].astype(np.int64)
    bound: Flags = rows["bound"].astype(np.bool_).max(axis=1)
    behind = came - came.min(axis=1, keepdims=True)
    before, last = np.partition(came, -2, axis=1)[:, -2:].T
    # Of a bound call whose last member was in it for long, nothing is known.
    behind[bound & (-last > _PROMPT * (last - before))] = 0
    return Series(
        label,
        signature,
        tuple(rows["rank"][0].tolist()),
        behind,
        rows["at_ns"].astype(np.int64),
        (rows["source_id"].astype(np.int32), rows["locator"].astype(np.int32)),
        paths,
        np.where(rows["coarse"].astype(np.bool_).any(axis=1), WATCHDOG_INTERVAL_NS, 0),
        bound,
        clocks is Clocks.OWN,
    )


def _aligned(series: Series) -> Series | None:
    """The same arrivals on one clock; None where the calls do not show how far the clocks are apart."""
    found = on_one_clock(series.at_ns)
    if found is None:
        return None
    came, wrong_by = found
    behind = came - came.min(axis=1, keepdims=True)
    return replace(series, behind=behind, coarse_ns=np.full(len(came), wrong_by), is_aligned=True)
