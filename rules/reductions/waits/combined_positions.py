"""One relation of positions: what recorders, shim logs, watchdogs and NCCL say of one communicator is put together.

Communicators of two sources are one where something proves it, and stay two otherwise; both are in the one wait-for graph. Of
one rank the tightest bounds that agree hold. Where two sources cannot both be right the recorder decides, and the contradiction
is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forensics.rules.reductions.calls.positions import (
    Communicator,
    Communicators,
    CountedPositions,
    LoggedPositions,
    Position,
    RecordedCommunicators,
)
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.waits.same_communicator import unified


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two sources of one communicator that cannot both be right of `ranks`: the first statements, each with its place."""

    communicator: str
    ranks: tuple[int, ...]
    statements: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Positions:
    """Where every rank stands: `recorded` are communicators of dumps and shim logs, `reported` those of logs and counters."""

    recorded: tuple[Communicator, ...] = ()
    reported: tuple[Communicator, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    labels: Mapping[str, Communicator] = field(default_factory=dict)

    def of(self, label: str) -> Communicator:
        """The communicator of a wait."""
        return self.labels[label]

    def contradicts(self, ranks: Collection[int], label: str | None) -> bool:
        """Whether sources contradict each other on the place of these ranks, in this communicator where one is given."""
        found = (item for item in self.contradictions if label in (None, item.communicator))
        return any(not set(item.ranks).isdisjoint(ranks) for item in found)


@reduction
def positions(calls: Calls, recorded: RecordedCommunicators, logged: LoggedPositions, counted: CountedPositions) -> Positions:
    """Where every rank stands, by all that tells it."""
    known = unified(calls.connection, recorded) if calls.logged and calls.dumped else recorded
    return combined(known, (*logged, *counted))


@reduction
def communicators(placed: Positions) -> Communicators:
    """Communicators whose calls were recorded."""
    return Communicators(placed.recorded)


def combined(recorded: Sequence[Communicator], reported: Iterable[Communicator]) -> Positions:
    """Put the reported positions into the recorded communicators that they are of."""
    groups = {group.label: group for group in recorded}
    apart: list[Communicator] = []
    contradictions: list[Contradiction] = []
    for report in reported:
        same = _same(recorded, report) if report.unit == "work" else None
        group = groups[same.label] if same else None
        found = tuple(_contradictions(group, report)) if group else ()
        if found:
            ranks = {rank for each in found for rank in each.ranks}
            contradictions.append(replace(found[0], ranks=tuple(sorted(ranks))))
        if group is None or found:
            apart.append(_relabelled(report, groups))
        else:
            groups[group.label] = _merged(group, report)
    labels = {group.label: group for group in (*groups.values(), *apart)}
    return Positions(tuple(groups.values()), tuple(apart), tuple(contradictions), labels)


def _same(recorded: Iterable[Communicator], report: Communicator) -> Communicator | None:
    """The one communicator that has a name in common with the report, and has its ranks as members."""
    found = [group for group in recorded if group.names & report.names and group.backend in ("nccl", "unknown")]
    fitting = [group for group in found if group.confidence == "assumed" or report.positions.keys() <= set(group.members)]
    return fitting[0] if len(fitting) == 1 else None


def _relabelled(report: Communicator, groups: Mapping[str, Communicator]) -> Communicator:
    """A report that is not the recorded communicator of its name must not pass for it."""
    return replace(report, label=f"{report.label} (log)") if report.label in groups else report


def _merged(group: Communicator, report: Communicator) -> Communicator:
    """The recorded communicator with the ranks that only the report places, and with what it adds to the others."""
    positions = dict(group.positions)
    cut = set(group.cut)
    for rank, other in report.positions.items():
        own = positions.get(rank)
        if own is None or (_later(group, own, other) and other.entered > own.entered):
            positions[rank] = other
            cut.discard(rank)
        else:
            positions[rank] = _tightest(own, other)
    members = tuple(sorted({*group.members, *report.positions})) if group.confidence == "assumed" else group.members
    return replace(group, positions=positions, cut=frozenset(cut), members=members)


def _tightest(own: Position, other: Position) -> Position:
    done = max(own.done, other.done)
    kept = [place for place in (own, other) if place.pending is not None and place.pending > done]
    first = kept[0] if kept else None
    return replace(
        own,
        entered=max(own.entered, other.entered),
        done=done,
        pending=first.pending if first else None,
        operation=first.operation if first else None,
        also=(*own.also, other.source) if other.source else own.also,
    )


def _later(group: Communicator, own: Position, other: Position) -> bool:
    """Whether the report is known to be of a later time than what was recorded."""
    taken = group.captured.get(own.rank) if own.time_ns is None else own.time_ns
    return taken is not None and other.time_ns is not None and other.time_ns > taken


def _contradictions(group: Communicator, report: Communicator) -> Iterator[Contradiction]:
    """Numbers of one rank, or of two, that no order of the two captures explains."""
    for rank, other in sorted(report.positions.items()):
        own = group.positions.get(rank)
        if own is None or rank in group.cut:
            continue
        later = _later(group, own, other)
        if (other.entered > own.entered and not later) or (other.entered < own.done and later):
            yield _contradiction(group, (rank, own), (rank, other))
    yield from _of_two(group, group.positions, report.positions)
    yield from _of_two(group, report.positions, group.positions)


def _of_two(group: Communicator, ahead: Mapping[int, Position], behind: Mapping[int, Position]) -> Iterator[Contradiction]:
    """Nobody finishes what a member has not entered: then the member was looked at much earlier, or in another run."""
    others = {rank: place for rank, place in behind.items() if rank not in ahead and rank not in group.cut}
    if not others or not ahead:
        return
    first = max(ahead.values(), key=lambda place: (place.done, -place.rank))
    last = min(others.values(), key=lambda place: (place.entered, place.rank))
    if first.done > last.entered:
        yield _contradiction(group, (last.rank, last), (first.rank, first))


def _contradiction(group: Communicator, one: tuple[int, Position], two: tuple[int, Position]) -> Contradiction:
    said = tuple((_said(group, rank, place), place.source) for rank, place in (one, two))
    return Contradiction(group.label, tuple(sorted({one[0], two[0]})), said)


def _said(group: Communicator, rank: int, place: Position) -> str:
    finished = f", finished {place.done}" if place.done else ""
    return f"by its {place.family}, rank {rank} entered {place.entered} of {group.label}{finished}"
