"""Ranks that work longer in their steps than those that have the same work, by what is left of a step outside calls.

Ranks of a step take the same time for it, so that who is inside calls for less works for longer. Each time inside a call is on
the rank's own clock, and messages count as well: who waits for a slow rank in a message is inside it for longer. So a rank
without tensor-parallel peers is compared with the ranks of its stage in other replicas, from the first step of the record on.
A rank alone with its data (no pipeline, no tensor-parallel group) is not: more data, or a duty of its own, looks alike. That it
does not work longest in the newest steps is known all the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.steps.records import Flags, Ints
from forensics.rules.reductions.steps.times import Floats, Steps, StepTimes

LEAST_PART = 0.1
"""Of a step: boards differ by less, and what a rank works longer than its equals shows from there on."""
LEAST_NS = 1e6
# Of what it works longer, the part that others wait for it at the end of the step; less is absorbed by bubbles.
_LEAST_FELT = 0.3
# Of what it works longer, the part that the ranks in step with it wait for it in the calls that these make together.
_LEAST_AWAITED = 0.5
_LEAST_STEPS, _LEAST_LATE = 5, 3
# Of the steps between the first and the last late one.
_STEADY = 0.75
_MOST_CHANCE = 0.01
# Of the ranks with the same work; if more are slow, it is how the job is.
_MOST_SLOW = 0.25
_NEWEST = 10


@dataclass(frozen=True, slots=True)
class Excess:
    """A rank that worked longer in `late` of the `steps` from its first to its last late one, than its `peers` did.

    `excess_ns` is the median of what it worked longer in a step of `step_ns`, `lost_ns` what the others waited for it in all.
    """

    rank: int
    peers: tuple[int, ...]
    steps: int
    late: int
    excess_ns: float
    step_ns: float
    lost_ns: float
    since_ns: int | None
    source: str

    @property
    def share(self) -> float:
        """Which part of the time of its late steps the others waited for it."""
        return min(1.0, self.lost_ns / (self.late * self.step_ns)) if self.step_ns else 0.0


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Ranks that worked longer than those with the same work, most lost first, of those that were `compared`.

    Of a job without messages `seldom_longest` are those that worked longest in less than half of the newest steps.
    """

    found: tuple[Excess, ...] = ()
    compared: frozenset[int] = frozenset()
    seldom_longest: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Part:
    """Ranks with the same work, their common steps, and by how many ns each worked longer than the usual one (ranks x steps).

    `late` are the steps in which that is more than boards differ by, `length` is that of each step (ns). `felt` is by how many
    ns the usual one waited longer in what replicas do together, `within` are the ns of each rank in what ranks in step do
    together (ranks x steps).
    """

    ranks: tuple[int, ...]
    numbers: Ints
    length: Floats
    more: Floats
    late: Flags
    felt: Floats
    within: Floats


@dataclass(frozen=True, slots=True)
class _Compared:
    """Everybody who was compared: parts by rank, ranks that work on the same data, and those of them that work in step.

    `paths` are those of the artefacts.
    """

    times: StepTimes
    parts: Mapping[int, _Part]
    mates: Mapping[int, tuple[int, ...]]
    in_step: Mapping[int, tuple[int, ...]]
    paths: Mapping[int, str]

    def is_late(self, rank: int, numbers: Ints) -> Flags:
        """In which of some steps a rank worked longer."""
        part = self.parts.get(rank)
        if part is None:
            return np.zeros(len(numbers), np.bool_)
        found: Flags = np.isin(numbers, part.numbers[part.late[part.ranks.index(rank)]])
        return found


@reduction
def own_work(connection: DuckDBPyConnection, times: StepTimes, layout: Layout) -> OwnWork:
    """Compare ranks of a stage, or all of a tensor-parallel job without stages; not where experts or a ring have other work."""
    mates = _mates(layout)
    if not times.ranks or _has_other_work(times, layout):
        return OwnWork()
    inner = frozenset((*layout.along(Axis.TENSOR), *layout.along(Axis.CONTEXT)))
    parts = [part for ranks in _alike(times, layout, mates) if (part := _part(times, ranks, inner)) is not None]
    paths = dict(rows_of(connection, "sources", "SELECT source_id, path FROM sources"))
    in_step = _others_of(layout.members[label] for label in layout.along(Axis.TENSOR))
    compared = _Compared(times, {rank: part for part in parts for rank in part.ranks}, mates, in_step, paths)
    found = [item for rank in sorted(compared.parts) if (item := _excess(rank, compared)) is not None]
    return OwnWork(tuple(sorted(found, key=lambda item: -item.lost_ns)), frozenset(compared.parts), _seldom_longest(times))


def _seldom_longest(times: StepTimes) -> frozenset[int]:
    """Who is inside calls for the shortest time has worked longest; in a message one waits for others than all."""
    numbers = times.shared_by(times.ranks)[-_NEWEST:]
    if len(numbers) < _LEAST_STEPS or any(steps.record.is_message.any() for steps in times.ranks.values()):
        return frozenset()
    inside = np.stack([steps.durations(numbers).sum(axis=1) for steps in times.ranks.values()])
    if np.isnan(inside).any():
        return frozenset()
    longest = (inside == inside.min(axis=0)).mean(axis=1)
    return frozenset(rank for rank, often in zip(times.ranks, longest.tolist(), strict=True) if 2 * often < 1)


def _has_other_work(times: StepTimes, layout: Layout) -> bool:
    """Whether the work of equals differs by design: experts, rings of messages, or hosts whose messages are in no recorder."""
    records = [steps.record for steps in times.ranks.values()]
    sends = any(record.is_message.any() for record in records)
    mixes = bool(layout.along(Axis.EXPERT)) or any("all_to_all" in kind for kind in records[0].names.kinds)
    return mixes or (sends and not layout.pipelines) or any(record.by_arrivals.any() for record in records)


def _mates(layout: Layout) -> Mapping[int, tuple[int, ...]]:
    """Ranks that work on the same data as a rank: its pipeline, or else its tensor-parallel group."""
    return _others_of(layout.pipelines or [layout.members[label] for label in layout.along(Axis.TENSOR)])


def _others_of(groups: Iterable[tuple[int, ...]]) -> Mapping[int, tuple[int, ...]]:
    return {rank: tuple(each for each in group if each != rank) for group in groups for rank in group}


def _alike(times: StepTimes, layout: Layout, mates: Mapping[int, tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Ranks with the same work: those of a stage, or all; as many calls in a step, and others on the same data."""
    groups: dict[tuple[int | None, int], list[int]] = defaultdict(list)
    for rank, steps in sorted(times.ranks.items()):
        place = layout.places.get(rank)
        stage = place.stage if place is not None and layout.pipelines else None
        if mates.get(rank) and (stage is not None or not layout.pipelines):
            groups[stage, steps.order.shape[1]].append(rank)
    alike = (ranks for each in groups.values() for ranks in by_context(each, layout))
    yield from (ranks for ranks in alike if len(ranks) > 1)


def by_context(ranks: Iterable[int], layout: Layout) -> list[tuple[int, ...]]:
    """Ranks apart by their place in a sequence that several share: under a causal mask the later parts are more work.

    Where ranks share sequences, those whose place is not known are left out.
    """
    found: dict[int | None, list[int]] = defaultdict(list)
    for rank in ranks:
        place = layout.places.get(rank)
        found[place.context if place is not None else None].append(rank)
    if layout.along(Axis.CONTEXT):
        found.pop(None, None)
    return [tuple(each) for each in found.values()]


def _part(times: StepTimes, ranks: tuple[int, ...], inner: Collection[str]) -> _Part | None:
    """Compare ranks over their common steps; `inner` are labels of communicators among those who work on the same data."""
    numbers = times.shared_by(ranks)
    if len(numbers) < _LEAST_STEPS:
        return None
    durations = [times.ranks[rank].durations(numbers) for rank in ranks]
    inside = np.stack([each.sum(axis=1) for each in durations])
    if np.isnan(inside).any():
        return None
    in_step = [_is_in_step(times.ranks[rank], inner) for rank in ranks]
    outside = [~calls & ~_is_message(times.ranks[rank]) for calls, rank in zip(in_step, ranks, strict=True)]
    within, waited = _inside(durations, in_step), _inside(durations, outside)
    more = below_others(inside)
    length = times.length[np.isin(times.number, numbers)]
    late = more >= np.maximum(LEAST_NS, LEAST_PART * length)
    late &= late.sum(axis=0) <= max(1, _MOST_SLOW * len(ranks))
    return _Part(ranks, numbers, length, more, late, np.maximum(below_others(waited), 0.0), within)


def _inside(durations: Sequence[Floats], calls: Sequence[Flags]) -> Floats:
    """ns of each rank and step in some of its calls."""
    return np.stack([each[:, mine].sum(axis=1) for each, mine in zip(durations, calls, strict=True)])


def below_others(values: Floats) -> Floats:
    """By how much each rank (row) is below the median of the others, in each step (column)."""
    ranked, place = np.sort(values, axis=0), np.argsort(np.argsort(values, axis=0), axis=0)
    # The middle of the others, in their order and in that of all: what stands behind the rank itself is one place further on.
    low, high = ((len(values) - 2) // 2, (len(values) - 1) // 2)
    middle = [np.take_along_axis(ranked, at + (place <= at), axis=0) for at in (low, high)]
    found: Floats = (middle[0] + middle[1]) / 2 - values
    return found


def _is_message(steps: Steps) -> Flags:
    """Which calls of a step are messages."""
    found: Flags = steps.record.is_message[steps.order[0]]
    return found


def _is_in_step(steps: Steps, inner: Collection[str]) -> Flags:
    """Which calls of a step are those of ranks that work on the same data in step."""
    record, places = steps.record, steps.order[0]
    return np.array([record.names.communicators[code] in inner for code in record.communicator[places].tolist()], np.bool_)


def _excess(rank: int, compared: _Compared) -> Excess | None:
    part, mates = compared.parts[rank], compared.mates[rank]
    at = part.ranks.index(rank)
    # Where those who work on the same data worked longer too, the data was more.
    with_mates = np.sum([compared.is_late(mate, part.numbers) for mate in mates], axis=0)
    late = part.late[at] & (2 * with_mates < len(mates))
    span = _span(late)
    if span is None or _chance(part, late, span) > _MOST_CHANCE:
        return None
    chosen = span[late[span]]
    more = part.more[at, chosen]
    felt = np.max([_felt(each, part.numbers[chosen], compared) for each in (rank, *mates)], axis=0)
    if felt.sum() < _LEAST_FELT * more.sum() or not _is_awaited(rank, chosen, compared):
        return None
    steps = compared.times.ranks[rank]
    first = int(steps.begin[steps.number == part.numbers[span[0]]][0])
    return Excess(
        rank=rank, peers=tuple(each for each in part.ranks if each != rank), steps=len(span), late=len(chosen),
        excess_ns=float(np.median(more)), step_ns=float(np.median(part.length[chosen])),
        lost_ns=float(np.minimum(felt, more).sum()),
        since_ns=int(steps.record.enqueued_ns[first]) if span[0] > 0 else None,
        source=f"{compared.paths[int(steps.record.source_id[first])]}#entry={int(steps.record.locator[first])}",
    )  # fmt: skip


def _is_awaited(rank: int, chosen: Ints, compared: _Compared) -> bool:
    """Whether those in step with a rank wait for it: of collectives beside computation the time inside is no idle time."""
    part = compared.parts[rank]
    mates = [part.ranks.index(mate) for mate in compared.in_step.get(rank, ()) if mate in part.ranks]
    if not mates:
        return True
    at = part.ranks.index(rank)
    awaited = np.median(part.within[mates], axis=0) - part.within[at]
    return bool(awaited[chosen].sum() >= _LEAST_AWAITED * part.more[at, chosen].sum())


def _span(late: Flags) -> Ints | None:
    """From the first late step to the last one, where most between are late, else the longest run of late ones."""
    places = np.flatnonzero(late)
    if len(places) < _LEAST_LATE:
        return None
    if len(places) >= _STEADY * (places[-1] - places[0] + 1):
        return np.arange(places[0], places[-1] + 1)
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    longest = max(runs, key=len)
    return longest if len(longest) >= _LEAST_LATE else None


def _chance(part: _Part, late: Flags, span: Ints) -> float:
    """How probable it is that some rank is late so often in a row, if each is as often as ranks are outside of the span."""
    outside = np.delete(part.late.any(axis=0), span)
    often = (outside.sum() + 1) / (len(outside) + 2) / len(part.ranks)
    return float(part.late.size * often ** late[span].sum())


def _felt(rank: int, numbers: Ints, compared: _Compared) -> Floats:
    """ns that ranks of other replicas wait longer than a rank in what replicas do together, in each of some steps."""
    part = compared.parts.get(rank)
    if part is None or not np.isin(numbers, part.numbers).all():
        return np.zeros(len(numbers))
    felt: Floats = part.felt[part.ranks.index(rank), np.isin(part.numbers, numbers)]
    return felt
