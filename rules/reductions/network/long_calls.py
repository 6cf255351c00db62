"""Calls that took far longer than usual although all members were there, and the one rank that all of these share.

A member that comes last is in a call only for as long as it takes, on its own clock: so what all members were in for long was
held up inside (Mycroft section 7.1, delay in NCCL's proxy). One such call accuses nobody. Several of different groups that have
one rank in common, while all other calls take what they usually do, are of that rank: its network, or what drives it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Cause, Component, Evidence, Finding
from forensics.rules.reductions.calls.group_times import has_durations
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.gpu_holds import LEAST_SHARE_HELD, GpuHold
from forensics.rules.reductions.network.joint_calls import JOINT_CALLS
from forensics.rules.reductions.network.long_messages import long_messages
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

# Times what is usual for calls of the communicator of this kind and size, of which there must be so many, and ns more.
_FACTOR, _LEAST_USUAL, _LEAST_NS = 3.0, 8, 100_000_000
# Of all calls alike: what is long more often is another length.
_MOST_PART = 0.25
# Calls, and groups, that must share a rank.
_LEAST_CALLS, _LEAST_GROUPS = 3, 2
# Of what a call takes too long, that a GPU takes its chunks late: what a GPU holds up waits for its sends as well.
_LEAST_HELD = 0.25

_LONG = f"""
WITH {JOINT_CALLS}, usual AS (
    SELECT communicator, kind, sizes, median(took) AS usual, count(*) AS calls FROM calls GROUP BY ALL
), judged AS (
    SELECT *, took >= {_FACTOR} * usual AND took - usual >= {_LEAST_NS} AS is_long
    FROM calls JOIN usual USING (communicator, kind, sizes) WHERE calls >= {_LEAST_USUAL}
), long AS (
    SELECT *, bool_and(is_long) OVER (
        PARTITION BY communicator, kind, sizes ORDER BY sequence ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
    ) AS lasts FROM judged
    QUALIFY is_long AND count(*) FILTER (is_long) OVER (PARTITION BY communicator, kind, sizes) <= {_MOST_PART} * calls
)
SELECT l.communicator, l.ranks, l.took, l.usual, c.path || '#entry=' || l.locator, l.lasts
FROM long l JOIN sources c ON c.source_id = l.source_id ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class LongCall:
    """One collective or message of `ranks` that took `took_ns` once all were there, `usual_ns` others of its communicator.

    It `lasts` where all that are alike and came after it were as long.
    """

    communicator: str
    ranks: tuple[int, ...]
    took_ns: float
    usual_ns: float
    source: str
    lasts: bool = False


@dataclass(frozen=True, slots=True)
class LongCalls:
    """Calls that took far longer than usual; `rank` is the one that all of them share, where they tell it.

    `link` are the two ranks that all of them are of, where no other call is long.
    """

    found: tuple[LongCall, ...] = ()
    rank: int | None = None
    link: tuple[int, int] | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The rank that all of them share, or the two."""
        return self.link or (() if self.rank is None else (self.rank,))

    @property
    def lasting(self) -> bool:
        """Whether all calls of these ranks are long from some moment on: they became slow, and are not so now and then."""
        calls = Counter(each.communicator for each in self.found)
        return all(each.lasts for each in self.found) and max(calls.values(), default=0) >= _LEAST_CALLS

    @property
    def lost_ns(self) -> float:
        """What they took beyond the usual, in all."""
        return sum(each.took_ns - each.usual_ns for each in self.found)


@reduction
def long_calls(connection: DuckDBPyConnection, times: StepTimes) -> LongCalls:
    """Read the calls whose members are all recorded, with the time of each on its own clock."""
    rows = rows_of(connection, "operations", _LONG) if has_durations(connection) else []
    found = [LongCall(name, tuple(ranks), float(took), float(usual), *rest) for name, ranks, took, usual, *rest in rows]
    found += _messages(connection, times)
    return LongCalls(tuple(found), *_shared(found))


def _messages(connection: DuckDBPyConnection, times: StepTimes) -> Iterator[LongCall]:
    if times.is_traced:
        return
    long = list(long_messages(times, _FACTOR, _LEAST_NS, _LEAST_USUAL, _MOST_PART))
    paths = dict(rows_of(connection, "sources", "SELECT source_id, path FROM sources")) if long else {}
    for each in long:
        source = f"{paths.get(int(each.record.source_id[each.place]))}#entry={each.record.locator[each.place]}"
        yield LongCall(each.communicator, tuple(sorted(each.ranks)), each.took_ns, each.usual_ns, source, each.lasts)


def _shared(found: Sequence[LongCall]) -> tuple[int | None, tuple[int, int] | None]:
    """The only rank that is in all of several calls of several groups; the two that all calls are of, where it is these."""
    groups = {each.ranks for each in found}
    if len(found) < _LEAST_CALLS:
        return None, None
    shared = sorted(set[int].intersection(*map(set, groups)))
    if len(groups) < _LEAST_GROUPS:
        return None, (shared[0], shared[1]) if len(shared) == 2 else None
    return (shared[0] if len(shared) == 1 else None), None


def held_inside(finding: Finding, long: LongCalls) -> Finding:
    """A rank late on its device, which was held up inside calls: whether it computed for longer is not known then."""
    if finding.cause is not Cause.COMPUTE_SLOW or long.rank not in finding.ranks:
        return finding
    evidence = Evidence(f"{statement(long)}: its device may have waited in calls", long.found[0].source)
    stage = replace(finding.stage, component=Component.UNKNOWN)
    return replace(finding, cause=Cause.UNKNOWN, stage=stage, evidence=(*finding.evidence, evidence))


def is_held_by_gpu(long: LongCalls, holds: Iterable[GpuHold]) -> bool:
    """Whether chunks show that a GPU of these two ranks takes those calls' data late, by a good part of what is long."""
    same = [hold for hold in holds if hold.members == long.link and hold.share >= LEAST_SHARE_HELD]
    excess = median(call.took_ns - call.usual_ns for call in long.found) if same else 0.0
    return any(hold.typical_ns >= _LEAST_HELD * excess for hold in same)


def statement(long: LongCalls) -> str:
    """How long the calls took, and that one rank has part in all of them."""
    worst = max(long.found, key=lambda call: call.took_ns)
    return (
        f"{len(long.found)} calls of {counted(len({each.ranks for each in long.found}), 'group')} took up to "
        f"{worst.took_ns / 1e6:.0f} ms once all were there, {worst.usual_ns / 1e6:.0f} ms usually; "
        f"{ranks_text(long.ranks)} {'are' if long.link else 'is'} in all of them, and no other call took so long"
    )
