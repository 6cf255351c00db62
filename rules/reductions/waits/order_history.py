"""In which order a rank used its communicators before, and whether its last call broke that order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.waits.graph import RootKind, WaitGraph

_CIRCLES = (RootKind.CYCLE, RootKind.INVERTED)
# The same calls must have come before twice: once is the start of a run, or of an epoch.
_TIMES = 2
# A number of calls in a row is a habit where it was the same as often as this, up to the last time.
_RUNS = 3
# Runs of one communicator, the broken one included, within which a shorter one is near the last call: peers that match what
# comes later with what was left out go on for a while.
_RECENT = 4


@dataclass(frozen=True, slots=True)
class CallOrder:
    """Ranks of circles of waits by the order of their last call: `broke` one that they always had, or `kept` it.

    `passed` are those that kept it with messages of which none is of a size that did not pass before.
    """

    broke: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    passed: frozenset[int] = frozenset()


_ORDER = """
SELECT communicator || ' ' || kind || ' ' || coalesce(input_sizes, ''), communicator, state
FROM latest_call WHERE rank = $rank AND communicator IS NOT NULL AND NOT coalesce(is_p2p, false)
    AND family = (SELECT min(family) FROM latest_call WHERE rank = $rank)
ORDER BY record_id, locator
"""

_MEMBERS = (
    "SELECT DISTINCT rank FROM latest_call WHERE list_contains($communicators, communicator) AND NOT coalesce(is_p2p, false)"
)
# Members of one group call are issued together: nothing orders them.
_EXCHANGES = """
SELECT list_sort(list_distinct(list(kind || ' ' || coalesce(peer, -1) || ' ' || communicator)))::VARCHAR,
       CASE WHEN bool_and(state = 'done') THEN 'done' ELSE 'pending' END
FROM ordered_call WHERE rank = $rank AND communicator IS NOT NULL AND is_p2p AND NOT closes
    AND family = (SELECT min(family) FROM latest_call WHERE rank = $rank)
GROUP BY call_order ORDER BY call_order
"""
# Messages under way that are unlike all that the rank sent to, or had from, that peer before.
_NEW_MESSAGES = """
SELECT count(*) FROM ordered_call p WHERE rank = $rank AND communicator IS NOT NULL AND is_p2p AND state <> 'done'
    AND family = (SELECT min(family) FROM latest_call WHERE rank = $rank)
    AND NOT EXISTS (SELECT 1 FROM ordered_call d WHERE d.rank = p.rank AND d.communicator = p.communicator AND d.state = 'done'
        AND d.kind = p.kind AND d.peer IS NOT DISTINCT FROM p.peer AND d.input_sizes IS NOT DISTINCT FROM p.input_sizes)
"""


@reduction
def call_order(calls: Calls, graph: WaitGraph) -> CallOrder:
    """Ranks whose pending call never followed the call before it, although something else usually does; and those of which
    it came after that call as it did earlier in the run.
    """
    followed: dict[int, bool | None] = {}
    fell: dict[int, frozenset[str]] = {}
    for root in graph.roots:
        if root.kind in _CIRCLES:
            transfers = all(wait.peers for wait in root.waits)
            used = {wait.communicator for wait in root.waits}
            for rank in root.ranks:
                made = [] if transfers else _made(calls.connection, rank)
                followed[rank] = _exchanged(calls.connection, rank) if transfers else _followed(made, used)
                fell[rank] = _fell(made, used)
            fell |= _of_members(calls.connection, fell, used)
    followed |= {rank: False for rank in _fell_alone(fell) if rank in followed}
    kept = frozenset(rank for rank, usual in followed.items() if usual)
    return CallOrder(
        frozenset(rank for rank, usual in followed.items() if usual is False),
        kept,
        frozenset(rank for rank in kept if not _new_messages(calls.connection, rank)),
    )


def _followed(calls: Sequence[tuple[str, str, str]], used: Collection[str]) -> bool | None:
    """Whether the first pending call has followed the same predecessor before; None when the predecessor is new.

    It has not, where it is one call more in a row than the rank ever made before it went on to another one of the communicators
    `used` in the circle: a step that was left out, or a call.
    """
    pending = next((i for i, (_, _, state) in enumerate(calls) if state != "done"), None)
    if not pending:
        return None
    before, now = calls[pending - 1], calls[pending]
    followers = Counter(calls[i + 1][1] for i in range(pending - 1) if calls[i][0] == before[0])
    in_circle = [communicator for _, communicator, _ in calls[: pending + 1] if communicator in used]
    return now[1] in followers and not _are_more(in_circle) if followers else None


def _are_more(communicators: Sequence[str]) -> bool:
    """Whether more calls than ever came in a row at the last, by the communicators that were called.

    How the record begins is left out: it may be cut, and steps of the begin may differ.
    """
    runs = _rows(communicators)
    if not runs:
        return False
    last, length = runs[-1]
    before = [count for communicator, count in runs[1:-1] if communicator == last][-_RUNS:]
    return len(before) == _RUNS and len(set(before)) == 1 and length > before[0]


def _rows(communicators: Sequence[str]) -> list[tuple[str, int]]:
    """Communicators with how many calls in a row each of them got."""
    return [(communicator, len([*calls])) for communicator, calls in groupby(communicators)]


def _fell(calls: Sequence[tuple[str, str, str]], used: Collection[str]) -> frozenset[str]:
    """Communicators of the circle of which the rank lately made fewer calls in a row than ever before it went on.

    The last row may go on, the first one may be cut, and who comes to the last one early may have come to the end of its data.
    """
    lengths: dict[str, list[int]] = defaultdict(list)
    for communicator, length in _rows([communicator for _, communicator, _ in calls if communicator in used])[1:-2]:
        lengths[communicator].append(length)
    return frozenset(communicator for communicator, counts in lengths.items() if _falls_lately(counts))


def _of_members(
    connection: DuckDBPyConnection, fell: Mapping[int, frozenset[str]], used: Collection[str]
) -> dict[int, frozenset[str]]:
    """The same of members outside of the circle of the communicators of which a rank in it made fewer calls."""
    communicators = [*frozenset[str]().union(*fell.values())]
    members = connection.execute(_MEMBERS, {"communicators": communicators}).fetchall() if communicators else []
    return {rank: _fell(_made(connection, rank), used) for (rank,) in members if rank not in fell}


def _made(connection: DuckDBPyConnection, rank: int) -> list[tuple[str, str, str]]:
    """Collectives of a rank in their order: what was called, communicator and state."""
    return connection.execute(_ORDER, {"rank": rank}).fetchall()


def _fell_alone(fell: Mapping[int, frozenset[str]]) -> Iterator[int]:
    """Ranks that did so while no other member of that communicator did: what members change alike belongs to the program."""
    for rank, communicators in fell.items():
        others = frozenset[str]().union(*(own for other, own in fell.items() if other != rank))
        if communicators - others:
            yield rank


def _falls_lately(counts: Sequence[int]) -> bool:
    changed = next((place for place, count in enumerate(counts) if count != counts[0]), None)
    return changed is not None and changed >= max(_RUNS, len(counts) - _RECENT) and counts[changed] < counts[0]


def _exchanged(connection: DuckDBPyConnection, rank: int) -> bool | None:
    """Whether the first pending transfer came after those before it as it did earlier; None when these are new.

    A pipeline sends several times and then receives several times: what came just before does not tell what is next.
    """
    rows = connection.execute(_EXCHANGES, {"rank": rank}).fetchall()
    pending = next((i for i, (_, state) in enumerate(rows) if state != "done"), None)
    if not pending:
        return None
    calls = [what for what, _ in rows]
    alike = [_alike(calls[: i + 1], calls[:pending]) for i in range(pending - 1)]
    longest = sorted(alike)[-_TIMES] if len(alike) >= _TIMES else 0
    if not longest:
        return None
    return calls[pending] in {calls[i + 1] for i, length in enumerate(alike) if length >= longest}


def _new_messages(connection: DuckDBPyConnection, rank: int) -> int:
    (count,) = connection.execute(_NEW_MESSAGES, {"rank": rank}).fetchall()[0]
    return int(count)


def _alike(one: Sequence[str], two: Sequence[str]) -> int:
    """How many of their last calls are the same."""
    pairs = zip(reversed(one), reversed(two), strict=False)
    return next((length for length, (a, b) in enumerate(pairs) if a != b), min(len(one), len(two)))
