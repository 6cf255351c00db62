"""The groups of calls that a trace only has by name: those of gloo, whose threads tell them apart.

A process group of gloo runs its calls on two threads, begun one after the other (torch 2.13, ProcessGroupGloo: `threads = 2`).
Which group it is, all of its members together show: nobody leaves a collective before the last one has come, and they leave it
together. So calls of the same place overlap on all members and end close to each other, which the calls of other groups do not.
Only ranks of one host, whose traces have one clock, are looked at, and a group that could be several is left out. Messages have
no peers here, but the time that was waited.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.steps.records import Ints

Found = TypeVar("Found")

_NAMED = re.compile(r"gloo:(\w+)")
_MESSAGES = ("send", "recv")
_THREADS = 2
# A number of more digits is not that of a thread, and may not fit into 64 bits.
_MOST_DIGITS = 18
# Kinds that a member may leave before the others came.
_LOOSE = ("broadcast", "reduce", "gather", "scatter")
# Clocks of two processes of one host are one; the marks of a call are set within this time.
_SLACK_NS = 1_000_000
# Members leave a call within this time; other calls end that many times farther apart.
_CLOSE_NS, _CLEARLY = 500_000, 3.0
_SPANS = """
WITH timed AS (
    SELECT s.source_id, s.rank, s.name, s.track, s.begin_ns, s.end_ns FROM spans s JOIN sources f USING (source_id)
    WHERE s.category = 'collective' AND s.name LIKE 'gloo:%' AND s.rank IS NOT NULL AND s.end_ns IS NOT NULL
      AND f.kind = 'kineto'
), newest AS (
    SELECT rank, arg_max(source_id, (end_ns, source_id)) AS source_id FROM timed GROUP BY rank
), bounds AS (
    SELECT source_id, rank, min(begin_ns) AS first, max(begin_ns + wall_ns) AS last FROM steps GROUP BY ALL
)
SELECT rank, source_id, name, track, begin_ns, end_ns FROM timed JOIN newest USING (rank, source_id)
JOIN bounds b USING (rank, source_id) WHERE begin_ns >= b.first AND begin_ns < b.last ORDER BY rank, begin_ns, end_ns
"""
_HOSTS = """
SELECT count(DISTINCT host), count(DISTINCT source_id) FILTER (host IS NULL) FROM sources
WHERE kind = 'kineto' AND rank IS NOT NULL
"""
_GROUPS = """
SELECT communicator, list(rank ORDER BY position) FROM members GROUP BY communicator
HAVING count(*) > 1 ORDER BY count(*) DESC, communicator
"""


class _Calls(NamedTuple):
    """Collectives of one process group on one rank, in order; times in ns."""

    kinds: tuple[str, ...]
    begins: Ints
    ends: Ints


def named_calls(connection: DuckDBPyConnection) -> Mapping[str, npt.NDArray[Any]]:
    """Columns of `traced_call` for the calls of ranks whose groups are sure: an array each, of as many rows as there are calls.

    `call_order` counts them by rank; `enqueued_ns`, `device_end_ns` and `duration_ns` are those of the host.
    """
    rows: list[tuple[int, int, str, str, int, int]] = []
    if connection.execute(_HOSTS).fetchall() == [(1, 0)]:
        rows = sorted(_rows(connection), key=lambda row: (row[0], row[4], row[5]))
    rank, source, label, kind, begin, end = (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 6
    begins, ends = np.array(begin, np.int64), np.array(end, np.int64)
    return {
        "rank": np.array(rank, np.int32),
        "source_id": np.array(source, np.int64),
        "locator": np.arange(len(rows)),
        "call_order": np.arange(len(rows)),
        "communicator": np.array(label, object),
        "kind": np.array(kind, object),
        "is_p2p": np.isin(np.array(kind, str), _MESSAGES),
        "enqueued_ns": begins,
        "device_end_ns": ends,
        "duration_ns": ends - begins,
    }


def _rows(connection: DuckDBPyConnection) -> Iterator[tuple[int, int, str, str, int, int]]:
    spans, sources = _read(connection)
    groups = [(label, tuple(members)) for label, members in connection.execute(_GROUPS).fetchall()]
    known: dict[int, str] = {}
    for label, found in _assigned(groups, {rank: _threads(own) for rank, own in spans.items()}):
        for rank, calls in found.items():
            known.setdefault(rank, label)
            times = zip(calls.kinds, calls.begins.tolist(), calls.ends.tolist(), strict=True)
            yield from ((rank, sources[rank], label, kind, begin, end) for kind, begin, end in times)
    # Which group sends is not known, and of no matter: without a peer no message is met.
    for rank, label in known.items():
        messages = ((_kind(name), begin, end) for name, _, begin, end in spans[rank] if _kind(name) in _MESSAGES)
        yield from ((rank, sources[rank], label, kind, begin, end) for kind, begin, end in messages)


def _kind(name: str) -> str:
    found = _NAMED.match(name)
    return found[1] if found else name


def _read(connection: DuckDBPyConnection) -> tuple[dict[int, list[tuple[str, str, int, int]]], dict[int, int]]:
    spans: dict[int, list[tuple[str, str, int, int]]] = defaultdict(list)
    sources: dict[int, int] = {}
    for rank, source, *span in connection.execute(_SPANS).fetchall():
        spans[rank].append(tuple(span))
        sources[rank] = source
    return spans, sources


def _threads(spans: Sequence[tuple[str, str, int, int]]) -> list[_Calls]:
    """The collectives of each process group of a rank: of two threads in the order in which these were begun."""
    by_thread: dict[tuple[int, str], list[tuple[int, int, str]]] = defaultdict(list)
    for name, track, begin, end in spans:
        if _kind(name) not in _MESSAGES:
            by_thread[_number(track), track].append((begin, end, _kind(name)))
    ordered = [by_thread[key] for key in sorted(by_thread)]
    merged = [
        sorted(itertools.chain(*pair)) for pair in (ordered[at : at + _THREADS] for at in range(0, len(ordered), _THREADS))
    ]
    return [
        _Calls(tuple(kind for _, _, kind in calls), *(np.array([c[at] for c in calls], np.int64) for at in (0, 1)))
        for calls in merged
    ]


def _number(track: str) -> int:
    last = track.rpartition("/")[2]
    return int(last) if last.isdecimal() and len(last) <= _MOST_DIGITS else 0


def _assigned(
    groups: Sequence[tuple[str, tuple[int, ...]]], threads: Mapping[int, list[_Calls]]
) -> Iterator[tuple[str, dict[int, _Calls]]]:
    """Groups whose calls are known on every member, larger ones first; each pair of threads is of one group."""
    left = {rank: list(own) for rank, own in threads.items()}
    for label, members in groups:
        if not left.keys() >= set(members):
            continue
        fits = [found for calls in left[members[0]] if (found := _of_all(calls, members[1:], left)) is not None]
        chosen = _best(fits)
        if chosen is not None:
            for rank, calls in zip(members, chosen, strict=True):
                left[rank] = [other for other in left[rank] if other is not calls]
            yield label, dict(zip(members, chosen, strict=True))


def _of_all(calls: _Calls, others: Sequence[int], left: Mapping[int, list[_Calls]]) -> tuple[float, list[_Calls]] | None:
    """The same calls on all members, and how far their ends are apart; None where a member has none that are surely so."""
    found, apart = [calls], 0.0
    for rank in others:
        fits = [(_apart(calls, other), other) for other in left[rank] if _met(calls, other)]
        best = _best(fits)
        if best is None:
            return None
        apart = max(apart, _apart(calls, best))
        found.append(best)
    return apart, found


def _best(fits: Sequence[tuple[float, Found]]) -> Found | None:
    """What ends closest together, where nothing else comes near."""
    ordered = sorted(fits, key=lambda fit: fit[0])
    is_sure = len(ordered) == 1 or (len(ordered) > 1 and _CLEARLY * max(ordered[0][0], _CLOSE_NS) <= ordered[1][0])
    return ordered[0][1] if is_sure else None


def _apart(one: _Calls, other: _Calls) -> float:
    """How far the ends of the same calls of two members are apart (ns)."""
    return float(np.median(np.abs(one.ends - other.ends)))


def _met(one: _Calls, other: _Calls) -> bool:
    """Whether nobody left a call before the other had come to it, at any place; two sequences of one kind each tell that."""
    if one.kinds != other.kinds or not set(one.kinds) - set(_LOOSE):
        return False
    joint = np.array([kind not in _LOOSE for kind in one.kinds])
    met = (one.begins <= other.ends + _SLACK_NS) & (other.begins <= one.ends + _SLACK_NS)
    return bool(met[joint].all())
