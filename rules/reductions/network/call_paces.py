"""How long messages and collectives take once all members are there, by what recorders alone tell, beside the same of others.

Who comes last to a call is in it only for as long as it takes: its time inside, on its own clock, is that of the transfer
(Mycroft section 7.1). So messages of one size, and collectives of one kind, size and number of members, can be compared between
communicators without any log of the network, and from the first step of the record on. Only those that cross as many hosts
with as many ranks on each are alike: inside a host other links are in use.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.arrivals.arrivals import JOINT
from forensics.rules.reductions.calls.group_times import has_durations, joined_group_times
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.rails import may_send_on
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.steps.records import UNKNOWN, Ints
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.reductions.steps.traced import TracedRecords

# Of calls that became slow: so many of a group, two of a kind, over this part of a usual step at least.
_LEAST_SINCE, _PART_OF_STEP = 3, 0.8
# Calls before they have a pace, and communicators or links beside it that must tell what is usual.
_LEAST_CALLS, LEAST_OTHERS = 8, 3
# Of the calls alike: the usual ones keep this close together, and no more than a part of all are slower.
CLOSE, _MOST_SLOW = 1.25, 0.25
LEAST_FACTOR, LEAST_SHARE = 1.8, 0.05
"""Times as long as alike calls, and of the time, from which on calls are slow."""
_LEAST_PACE_NS = 1e6
"""A slow call of less than a millisecond is latency and turns of the scheduler."""

# Only the newer half: a network that became slow is slow there. Of a message either end is last in half of the calls, or more:
# the shorter quarter of its times are those of the transfer. What one group call issued ends together: of several messages in
# it none has a time of its own, of a single one the entry that closes the group has it. A record that was cut may end before
# the newer half of those beside it on its host, on one clock: it says nothing of that time. A group that is compared with
# nothing for it is held against calls of others that bear the same numbers, and against what its other members are in later.
_OF_RECORDERS = "family = 'recorder' AND backend <> 'gloo' AND rank IS NOT NULL AND communicator IS NOT NULL"
_OF_TRACES = f"""
UNION ALL BY NAME SELECT t.* REPLACE (coalesce(t.sequence, nullif(n.number, {UNKNOWN})) AS sequence)
    FROM traced_call t LEFT JOIN traced_number n USING (rank, call_order)
    WHERE backend <> 'gloo' AND rank IS NOT NULL AND communicator IS NOT NULL
    AND rank NOT IN (SELECT rank FROM ordered_call WHERE {_OF_RECORDERS})
"""
_CALLS = f"""
CREATE OR REPLACE TEMP TABLE paced_calls AS WITH timed AS (
    SELECT o.* REPLACE (CASE WHEN o.group_call IS NULL THEN o.duration_ns ELSE g.took_ns END AS duration_ns)
    FROM (SELECT * FROM ordered_call WHERE {_OF_RECORDERS} {{traced}}) o {joined_group_times("o", _OF_RECORDERS)}
), calls_alone AS (
    SELECT rank, communicator, kind, coalesce(input_sizes, output_sizes, CAST(count AS VARCHAR), '') AS sizes,
           coalesce(is_p2p, false) AS is_message, peer, sequence, bytes, duration_ns, enqueued_ns, source_id, locator,
           percent_rank() OVER (PARTITION BY rank, communicator, kind, sizes, peer ORDER BY call_order) AS part
    FROM timed WHERE NOT closes AND call_size = 1 AND duration_ns IS NOT NULL AND enqueued_ns IS NOT NULL AND state = 'done'
), records AS (
    SELECT c.rank, coalesce(min(s.host), CAST(c.rank AS VARCHAR)) AS place, min(enqueued_ns) AS first_ns,
           max(enqueued_ns) AS last_ns
    FROM calls_alone c JOIN sources s USING (source_id) GROUP BY c.rank
), until_now AS (
    SELECT rank FROM records QUALIFY last_ns >= median((first_ns + last_ns) / 2) OVER (PARTITION BY place)
)
SELECT c.*, c.part >= 0.5 AND u.rank IS NOT NULL AS is_newer FROM calls_alone c LEFT JOIN until_now u USING (rank)
"""
_MESSAGES = """
WITH ends AS (
    SELECT n.communicator, n.sizes, n.kind = 'send' AS is_send, n.rank, p.rank AS peer, count(*) AS calls,
           quantile_cont(n.duration_ns, 0.25) AS took, max(n.enqueued_ns) - min(n.enqueued_ns) AS span,
           any_value(n.bytes) AS bytes, arg_max(n.source_id, n.locator) AS source_id, max(n.locator) AS locator
    FROM paced_calls n JOIN members p ON p.communicator = n.communicator AND p.position = n.peer
    WHERE n.is_newer AND n.is_message AND n.kind IN ('send', 'recv') GROUP BY ALL
)
SELECT s.communicator, 'send', s.sizes, [s.rank, r.rank], least(s.took, r.took), least(s.calls, r.calls),
       greatest(s.span, r.span), s.bytes, c.path || '#entry=' || s.locator, 0
FROM ends s JOIN ends r ON r.communicator = s.communicator AND r.sizes = s.sizes AND r.rank = s.peer AND r.peer = s.rank
JOIN sources c ON c.source_id = s.source_id WHERE s.is_send AND NOT r.is_send ORDER BY ALL
"""
_COLLECTIVES = f"""
WITH size AS (
    SELECT communicator, count(*) AS members, list(rank ORDER BY rank) AS ranks FROM members GROUP BY communicator
), joint AS (
    SELECT n.communicator, n.kind, n.sizes, n.sequence, any_value(z.ranks) AS ranks, min(n.duration_ns) AS took,
           any_value(n.bytes) AS bytes, max(n.enqueued_ns) AS enqueued_ns, arg_min(n.source_id, n.rank) AS source_id,
           arg_min(n.locator, n.rank) AS locator
    FROM paced_calls n JOIN size z USING (communicator)
    WHERE {{among}} AND NOT n.is_message AND ltrim(n.kind, '_') IN {JOINT} AND n.sequence IS NOT NULL
    GROUP BY n.communicator, n.kind, n.sizes, n.sequence HAVING count(DISTINCT n.rank) = any_value(z.members)
), {{calls}}, paces AS (
    SELECT communicator, kind, sizes, any_value(ranks) AS ranks, median(took) AS took, count(*) AS calls,
           max(enqueued_ns) - min(enqueued_ns) AS span, any_value(bytes) AS bytes, arg_max(source_id, sequence) AS source_id,
           arg_max(locator, sequence) AS locator
    FROM calls GROUP BY communicator, kind, sizes
)
SELECT p.communicator, p.kind, p.sizes, p.ranks, p.took, p.calls, p.span, p.bytes, c.path || '#entry=' || p.locator, {{later}}
FROM paces p JOIN sources c USING (source_id) {{beside}} WHERE len(p.ranks) > 1 ORDER BY ALL
"""
_NEWER = _COLLECTIVES.format(among="n.is_newer", calls="calls AS (FROM joint)", later="0", beside="")
_UNTIL_CUT = _COLLECTIVES.format(
    among="true",
    calls=f"""met AS (
    SELECT communicator, kind, sizes, max(sequence) AS last FROM joint GROUP BY communicator, kind, sizes
), go_on AS (
    SELECT communicator, kind, sizes, m.last, median(c.duration_ns) AS took
    FROM met m JOIN paced_calls c USING (communicator, kind, sizes) WHERE c.sequence > m.last
    GROUP BY communicator, kind, sizes, m.last, c.rank HAVING count(*) >= {_LEAST_CALLS}
), cut AS (
    SELECT communicator, kind, sizes, last, min(took) AS took FROM go_on GROUP BY communicator, kind, sizes, last
), calls AS (
    SELECT j.* FROM joint j JOIN (SELECT kind, sizes, min(last) AS last FROM cut GROUP BY kind, sizes) u USING (kind, sizes)
    WHERE j.sequence <= u.last
    QUALIFY percent_rank() OVER (PARTITION BY j.communicator, j.kind, j.sizes ORDER BY j.sequence) >= 0.5
)""",
    later="coalesce(l.took, 0)",
    beside="LEFT JOIN cut l ON l.communicator = p.communicator AND l.kind = p.kind AND l.sizes = p.sizes",
)

# Those that are slow to the end of the record, against their own past, however few: the group became slow in the last steps.
_SINCE = _COLLECTIVES.format(
    among="true",
    calls=f"""calls AS (
    SELECT * FROM (
        SELECT *, took > {CLOSE} * median(took) OVER (PARTITION BY communicator, kind, sizes) AS is_long FROM joint
    ) QUALIFY bool_and(is_long) OVER (
        PARTITION BY communicator, kind, sizes ORDER BY sequence ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
    )
)""",
    later="0",
    beside="",
)


_Key = tuple[str, str, int]
"""Communicator, kind, and the bytes of each member."""


@dataclass(frozen=True, slots=True)
class CallPace:
    """Calls of one kind and size of one communicator: each takes `took_ns` once all of `ranks` are there, `usual_ns` elsewhere.

    Of a message `ranks` are sender and receiver, and who may send it on. `share` is the part of the time that `calls` of them
    lose, at most; `others` are as many links or communicators, of other ranks too, that tell what is usual. They cross `hosts`,
    `bytes` is what each member gives, 0 not known. Where the record of a member was cut, the times are those until then, and
    `later_ns` is how long the others are in such calls afterwards, for the least of them; 0 where none was.
    """

    communicator: str
    kind: str
    ranks: tuple[int, ...]
    took_ns: float
    calls: int
    span_ns: float
    source: str
    usual_ns: float = 0.0
    others: int = 0
    hosts: int = 1
    bytes: int = 0
    later_ns: float = 0.0

    @property
    def key(self) -> _Key:
        """Which calls they are."""
        return self.communicator, self.kind, self.bytes

    @property
    def factor(self) -> float:
        """How many times as long as elsewhere."""
        return self.took_ns / self.usual_ns if self.usual_ns else 1.0

    @property
    def share(self) -> float:
        """Of the time, what is lost to it if nothing hides it."""
        return min(1.0, max(0.0, self.took_ns - self.usual_ns) * self.calls / self.span_ns) if self.span_ns else 0.0


@dataclass(frozen=True, slots=True)
class CallPaces:
    """Calls that were compared with alike ones; false where there were none."""

    compared: tuple[CallPace, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.compared)

    def slow(self, least_factor: float, least_share: float) -> list[CallPace]:
        """Calls that take so many times as long as alike ones and may lose so much of the time, the worst first."""
        long = (each for each in self.compared if each.took_ns >= _LEAST_PACE_NS and each.factor >= least_factor)
        found = [each for each in long if each.share >= least_share]
        return sorted(found, key=lambda each: (-each.share, each.ranks, each.communicator, each.kind))


@reduction
def call_paces(connection: DuckDBPyConnection, roster: Roster, traces: TracedRecords, times: StepTimes) -> CallPaces:
    """Compare calls whose members are all recorded and whose hosts are known; groups of several messages are left out.

    Of groups that are known until the record of a member was cut, those alone that were slow, and may be so still. Of groups
    that became slow in the last steps, what they take since.
    """
    if not has_durations(connection):
        return CallPaces()
    connection.register("traced_number", _numbers(traces))
    connection.execute(_CALLS.format(traced=_OF_TRACES if traces else ""))
    connection.unregister("traced_number")
    kinds = ("send", "recv")
    members = dict(rows_of(connection, "members", "SELECT communicator, list(rank) FROM members GROUP BY communicator"))
    found = [
        *_held_against_alike(rows_of(connection, "operations", _MESSAGES, kinds=kinds), members, roster),
        *_held_against_alike(rows_of(connection, "operations", _NEWER), members, roster),
    ]
    stated = {each.key for each in found}
    since = _since(rows_of(connection, "operations", _SINCE), found, times.typical_ns)
    until_cut = [*_held_against_alike(rows_of(connection, "operations", _UNTIL_CUT), members, roster)]
    connection.execute("DROP TABLE temp.main.paced_calls")
    left = [each for each in until_cut if each.later_ns and each.key not in stated]
    still = (replace(each, took_ns=min(each.took_ns, each.later_ns)) for each in left)
    newest = (since.get(each.key, each) for each in found)
    return CallPaces((*newest, *(each for each in still if each.factor >= LEAST_FACTOR)))


def _since(rows: Iterable[tuple[Any, ...]], found: Sequence[CallPace], step_ns: float) -> Mapping[_Key, CallPace]:
    """Paces of groups that became slow over the last steps, by communicator, kind and bytes, unless many did so.

    `rows` are their calls since then. Of two steps at least: all calls of one step may wait for one accident.
    """
    known = {each.key: each for each in found}
    slow: dict[_Key, CallPace] = {}
    for communicator, kind, _, _, took, calls, span, size, source, _ in rows:
        usual = known.get((communicator, kind, int(size or 0)))
        if usual is not None and calls > 1 and float(span) >= _PART_OF_STEP * step_ns > 0:
            # From the first of these calls to the last one there is one time less between them than there are calls.
            whole = span * calls / (calls - 1)
            slow[communicator, kind, usual.bytes] = replace(usual, took_ns=took, calls=calls, span_ns=whole, source=source)
    slow = {key: each for key, each in slow.items() if each.factor >= LEAST_FACTOR > known[key].factor}
    calls_of = Counter[str]()
    for each in slow.values():
        calls_of[each.communicator] += each.calls
    alike, became = (Counter((each.kind, each.usual_ns) for each in paces) for paces in (found, slow.values()))
    many = {use for use, count in became.items() if count > _MOST_SLOW * alike[use]}
    return {
        key: each
        for key, each in slow.items()
        if calls_of[each.communicator] >= _LEAST_SINCE and (each.kind, each.usual_ns) not in many
    }


def _numbers(traces: TracedRecords) -> Mapping[str, Ints]:
    """The numbers of traced calls, also of traces that have none, by rank and place; a row each."""
    found = [record for record in traces.values() if len(record)]
    columns = {
        "rank": [np.full(len(record), record.rank) for record in found],
        "call_order": [record.call_order for record in found],
        "number": [record.sequence for record in found],
    }
    return {name: np.concatenate([np.empty(0, np.int64), *parts]) for name, parts in columns.items()}


def _held_against_alike(
    rows: Iterable[tuple[Any, ...]], members: Mapping[str, Sequence[int]], roster: Roster
) -> Iterator[CallPace]:
    alike: dict[tuple[Any, ...], list[CallPace]] = defaultdict(list)
    for communicator, kind, sizes, ranks, took, calls, span, size, source, later in rows:
        places = _spread(ranks, roster)
        if calls >= _LEAST_CALLS and places is not None:
            beside = may_send_on(ranks[0], ranks[1], members.get(communicator, ()), roster) if kind == "send" else ()
            pace = CallPace(
                communicator, kind, (*ranks, *beside), float(took), int(calls), float(span), source, hosts=len(places),
                bytes=int(size or 0), later_ns=float(later),
            )  # fmt: skip
            alike[kind, sizes, places].append(pace)
    for paces in alike.values():
        yield from _compared(paces)


def _spread(ranks: Sequence[int], roster: Roster) -> tuple[int, ...] | None:
    """How many of the ranks each of their hosts has, most first; None where the host of one is not known."""
    hosts = [roster.host_of(rank) for rank in ranks]
    return None if None in hosts else tuple(sorted(Counter(hosts).values(), reverse=True))


def _compared(paces: Sequence[CallPace]) -> Iterator[CallPace]:
    """Those of a use with what is usual there; nothing where too few, or too different ones, tell it."""
    usual = median(each.took_ns for each in paces)
    close = [each for each in paces if usual / CLOSE <= each.took_ns <= usual * CLOSE]
    slower = [each for each in paces if each.took_ns > usual * CLOSE]
    if len(slower) > _MOST_SLOW * len(paces):
        return
    for each in paces:
        if len(close) - (usual / CLOSE <= each.took_ns <= usual * CLOSE) >= LEAST_OTHERS:
            others = sum(set(other.ranks).isdisjoint(each.ranks) for other in close)
            yield replace(each, usual_ns=usual, others=others)
