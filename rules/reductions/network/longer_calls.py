"""Collectives of the whole job that take longer than they did, once all members are there: nobody else makes such calls.

Where one group has all ranks (FSDP, DDP), or two or three have a large part of them, no others are alike that tell what is
usual. What is left is the past of the same record (Mycroft section 4.3: the interval doubles). A NIC, a link or the network
makes all calls of such a group longer; which of them it is, calls do not show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NewType

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.group_times import has_durations
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.joint_calls import JOINT_CALLS
from forensics.rules.reductions.onset import onset_of
from forensics.rules.reductions.ranks.roster import Roster

# Calls before and since, and how many times as long as before they are: as much as counts against others alike.
_SIDES, _FACTOR = (8, 8), 1.8
_LEAST_NS = 1e6
"""Calls that take less are latency."""
# Of the time in collectives of a group: what takes less of it need not show the change.
_LEAST_PART = 0.1
# Of the ranks of the job: of smaller groups there are others to be compared with.
_LEAST_OF_JOB = 1 / 3
# Calls of one group that are looked at.
_MOST = 4096
_SERIES = f"""
WITH {JOINT_CALLS}, newest AS (
    FROM calls QUALIFY row_number() OVER (PARTITION BY communicator, kind, sizes ORDER BY sequence DESC) <= {_MOST}
)
SELECT n.communicator, n.kind, any_value(n.ranks), list(n.took ORDER BY n.sequence), list(n.enqueued_ns ORDER BY n.sequence),
       max(s.path) || '#entry=' || arg_max(n.locator, n.sequence)
FROM newest n JOIN sources s USING (source_id) WHERE n.enqueued_ns IS NOT NULL
GROUP BY n.communicator, n.kind, n.sizes HAVING count(*) >= {sum(_SIDES)} ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class LongerCalls:
    """Calls of one kind and size of one group: `calls` since the change take `took_ns` once all are there, `before_ns` before.

    `lost_ns` is the sum beyond that over the `span_ns` since `since_ns`, on the clock of the first of `ranks`.
    """

    communicator: str
    kind: str
    ranks: tuple[int, ...]
    calls: int
    took_ns: float
    before_ns: float
    lost_ns: float
    span_ns: float
    since_ns: int
    source: str

    @property
    def share(self) -> float:
        """Of the time since, if nothing hides it."""
        return min(1.0, self.lost_ns / self.span_ns) if self.span_ns > 0 else 0.0


LongerOfAll = NewType("LongerOfAll", tuple[LongerCalls, ...])
"""Of every group with a third of the ranks or more on several hosts, the worst first; empty where one is as before."""


@reduction
def longer_of_all(connection: DuckDBPyConnection, roster: Roster) -> LongerOfAll:
    """Hold calls against their own past, in groups of a large part of the job."""
    rows = rows_of(connection, "operations", _SERIES) if has_durations(connection) else []
    groups: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for communicator, kind, ranks, took, enqueued, source in rows:
        hosts = {roster.host_of(rank) for rank in ranks}
        if len(ranks) >= max(2, _LEAST_OF_JOB * len(roster.ranks)) and None not in hosts and len(hosts) > 1:
            groups[communicator].append((kind, tuple(ranks), np.array(took, float), np.array(enqueued, np.int64), source))
    found = [list(_longer(communicator, series)) for communicator, series in groups.items()]
    heavy = [calls for calls in found if calls]
    if any(None in calls for calls in heavy):
        return LongerOfAll(())
    longer = [each for calls in heavy for each in calls if each is not None]
    return LongerOfAll(tuple(sorted(longer, key=lambda each: (-each.lost_ns, each.communicator, each.kind))))


def _longer(communicator: str, series: Sequence[tuple[Any, ...]]) -> Iterator[LongerCalls | None]:
    """What takes a good part of the time in collectives of a group; None for calls that are as before."""
    total = sum(float(took.sum()) for _, _, took, *_ in series)
    for kind, ranks, took, enqueued, source in series:
        if took.sum() < _LEAST_PART * total or np.median(took) < _LEAST_NS:
            continue
        place = onset_of(took.tolist(), _SIDES, _is_longer)
        if place is None:
            yield None
            continue
        before, since = float(np.median(took[:place])), took[place:]
        lost, span = float((since - before).sum()), float(enqueued[-1] - enqueued[place])
        began = int(enqueued[place])
        yield LongerCalls(communicator, kind, ranks, len(since), float(np.median(since)), before, lost, span, began, source)


def _is_longer(before: float, after: float, first: float) -> bool:
    return 0 < _FACTOR * before <= min(after, first)
