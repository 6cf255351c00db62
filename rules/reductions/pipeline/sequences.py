"""Calls in the order in which ranks made them, as columns: of a few ranks all, of all ranks their messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows, kinds_of, rows_of
from forensics.rules.reductions.calls.semantics import stem_of

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
KINDS = ("other", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv")
"""Kinds that tell one axis from another; all others are `other`."""
OTHER, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, RECV = range(len(KINDS))
SCALARS = 16
"""Elements up to which a collective says something, rather than moving what is trained."""
_CODE = "list_extract($codes, list_position($kinds, o.kind))"
# The entry that closes a group call is no call of its own.
_CLOSES = "(o.kind = 'coalesced' OR (o.group_call IS NOT NULL AND o.kind LIKE '%coalesced'))"
# A rank that left a dump and a log shows the same calls twice, and a trace is looked at where it left neither.
_RECORDED = "SELECT * FROM latest_call WHERE family = 'recorder' OR rank NOT IN (SELECT rank FROM capture)"
_CALLS = "known_calls o WHERE o.communicator IS NOT NULL"
_WITH_RECORDED = f"WITH known_calls AS ({_RECORDED})"
_WITH_TRACED = f"""
WITH known_calls AS (
    {_RECORDED} UNION ALL BY NAME
    SELECT * EXCLUDE (call_order, call_size, closes) REPLACE (call_order AS record_id) FROM traced_call
    WHERE rank NOT IN (SELECT rank FROM latest_call WHERE rank IS NOT NULL)
)
"""
_NUMBERED = """JOIN (SELECT unnest($labels) AS label, generate_subscripts($labels, 1) - 1 AS number) l
    ON l.label = o.communicator"""
_COUNTS = f"""
SELECT communicator, rank, count(*) FROM {_CALLS} AND NOT {_CLOSES} AND o.kind NOT IN ('send', 'recv')
GROUP BY ALL ORDER BY communicator, count(*) DESC, rank
"""
_ORDER = "coalesce(o.record_id, o.locator)"
_OF_RANKS = f"""
SELECT o.rank AS rank, l.number AS communicator, {_CODE} AS kind,
       coalesce(o.count, {SCALARS + 1}) AS elements, coalesce(o.group_call, -1 - {_ORDER}) AS batch
FROM (SELECT * FROM {_CALLS} AND NOT {_CLOSES}) o {_NUMBERED} JOIN (SELECT unnest($ranks) AS rank) w ON w.rank = o.rank
ORDER BY o.rank, {_ORDER}, o.locator
"""
_MESSAGES = f"""
SELECT o.rank AS rank, l.number AS communicator, m.rank AS peer, o.kind = 'send' AS is_send,
       coalesce(o.group_call, -1 - {_ORDER}) AS batch
FROM (SELECT * FROM {_CALLS} AND o.kind IN ('send', 'recv') AND o.peer IS NOT NULL) o
{_NUMBERED} JOIN members m ON m.communicator = o.communicator AND m.position = o.peer
WHERE m.rank <> o.rank ORDER BY o.rank, {_ORDER}, o.locator
"""
_SMALL = f"""
SELECT communicator, count(*) // count(DISTINCT rank) FROM {_CALLS} AND NOT {_CLOSES} GROUP BY communicator
HAVING bool_and(o.kind NOT IN ('send', 'recv')) AND max(coalesce(o.count, {SCALARS + 1})) <= {SCALARS} ORDER BY communicator
"""
_COMPLETE = f"SELECT rank FROM {_CALLS} GROUP BY rank HAVING min(o.record_id) = 0"
_ENOUGH = 0.8


@dataclass(frozen=True, slots=True)
class CallSequence:
    """The calls of one rank in order, one element a call; calls of one group call have the same `batch`."""

    communicator: Numbers
    kind: Numbers
    elements: Numbers
    batch: Numbers

    @property
    def is_message(self) -> Flags:
        """Which calls are sends or receives."""
        return self.kind >= SEND


@dataclass(frozen=True, slots=True)
class Messages:
    """All sends and receives, by rank and in its order; `peer` is a global rank.

    `complete` are ranks whose record holds their first call.
    """

    rank: Numbers
    communicator: Numbers
    peer: Numbers
    is_send: Flags
    batch: Numbers
    complete: frozenset[int]

    def of(self, ranks: Iterable[int]) -> Messages:
        """Those of some ranks."""
        wanted = sorted(ranks)
        spans = zip(np.searchsorted(self.rank, wanted), np.searchsorted(self.rank, wanted, "right"), strict=True)
        return self.where(np.concatenate([np.arange(*span) for span in spans] or [np.zeros(0, np.int64)]))

    def by_communicator(self) -> Iterator[tuple[int, Messages]]:
        """Those of each communicator."""
        order = np.argsort(self.communicator, kind="stable")
        numbers, starts = np.unique(self.communicator[order], return_index=True)
        for number, chosen in zip(numbers.tolist(), np.split(order, starts[1:]), strict=False):
            yield number, self.where(chosen)

    def where(self, chosen: Flags | Numbers) -> Messages:
        """Some of them: places in order, or whether each is."""
        return Messages(
            self.rank[chosen],
            self.communicator[chosen],
            self.peer[chosen],
            self.is_send[chosen],
            self.batch[chosen],
            self.complete,
        )


def _known(connection: DuckDBPyConnection) -> str:
    """The calls that count, as the begin of a query: DuckDB takes milliseconds to plan traces where there are none."""
    return _WITH_TRACED if has_rows(connection, "sources", ("kineto", "nsight")) else _WITH_RECORDED


def read_messages(connection: DuckDBPyConnection, labels: Sequence[str]) -> Messages:
    """Read all sends and receives whose peer is known; communicators are places in `labels`."""
    empty = np.zeros(0, np.int64)
    if not has_rows(connection, "operations"):
        return Messages(empty, empty, empty, empty.astype(bool), empty, frozenset())
    found = connection.execute(_known(connection) + _MESSAGES, {"labels": list(labels)}).fetchnumpy()
    rank, communicator, peer, batch = (np.asarray(found[name], np.int64) for name in ("rank", "communicator", "peer", "batch"))
    complete = frozenset(rank for (rank,) in rows_of(connection, "operations", _known(connection) + _COMPLETE))
    return Messages(rank, communicator, peer, np.asarray(found["is_send"], bool), batch, complete)


def read_sequences(connection: DuckDBPyConnection, labels: Sequence[str], ranks: Iterable[int]) -> Mapping[int, CallSequence]:
    """Read all calls of some ranks."""
    wanted = sorted(set(ranks))
    if not wanted or not has_rows(connection, "operations"):
        return {}
    asked = {"labels": list(labels), "ranks": wanted, **_codes(connection)}
    found = connection.execute(_known(connection) + _OF_RANKS, asked).fetchnumpy()
    names = ("rank", "communicator", "kind", "elements", "batch")
    rank, *columns = (np.asarray(found[name], np.int64) for name in names)
    starts = np.searchsorted(rank, [*wanted, wanted[-1] + 1])
    spans = zip(wanted, starts[:-1], starts[1:], strict=True)
    return {each: CallSequence(*(column[begin:end] for column in columns)) for each, begin, end in spans if end > begin}


def read_small(connection: DuckDBPyConnection) -> Mapping[str, int]:
    """The calls of a rank in each communicator in which nothing but small collectives was called."""
    return dict(rows_of(connection, "operations", _known(connection) + _SMALL))


def _codes(connection: DuckDBPyConnection) -> dict[str, list[object]]:
    """Kinds as torch and NCCL spell them, and the place of each in `KINDS`."""
    kinds = [*kinds_of(connection, "operations"), None]
    stems = [stem_of(kind or "") for kind in kinds]
    return {"kinds": [*kinds], "codes": [KINDS.index(stem) if stem in KINDS else OTHER for stem in stems]}


def witnesses(connection: DuckDBPyConnection) -> Mapping[str, int]:
    """For each communicator one rank that made about as many collectives in it as any other: few ranks for all of them."""
    counts: dict[str, dict[int, int]] = {}
    for label, rank, count in rows_of(connection, "operations", _known(connection) + _COUNTS):
        counts.setdefault(label, {})[rank] = count
    chosen: dict[str, int] = {}
    for label, of_ranks in counts.items():
        best = next(iter(of_ranks))
        good = (rank for rank in sorted(set(chosen.values())) if of_ranks.get(rank, 0) >= _ENOUGH * of_ranks[best])
        chosen[label] = next(good, best)
    return chosen
