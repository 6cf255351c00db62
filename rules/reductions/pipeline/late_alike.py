"""Ranks that work on the same data in step (tensor-parallel) and held up the same step, each in a group of its own.

They wait for each other in every layer, so that one of them is late by itself only where the others waited for it there. What
holds up all of them alike lies in what they share: their samples, or their host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from forensics.rules.reductions.pipeline.delay import Delay, Delays

_OWN = 0.5
"""Of what the step was longer: equals that waited so much waited for the rank, and not with it."""


def settled(found: Sequence[Delay], in_step: Sequence[tuple[int, ...]]) -> tuple[Delay, ...]:
    """The delays of one step, without equals of a rank that they waited for; those that are late alike as one delay.

    Where ends alone tell it of several replicas at once, nobody is the first. `in_step` are the members of each
    tensor-parallel group.
    """
    kept = list(found)
    for members in in_step:
        late = [delay for delay in kept if not delay.is_transfer and not delay.one_of and delay.ranks[0] in members]
        roots = [delay for delay in late if _is_own(delay)]
        if len(late) > 1:
            kept = [delay for delay in kept if delay not in late] + (roots or [_as_one(late)])
    return tuple(_without_replicas(kept, in_step))


def without_followers(found: Mapping[int, Sequence[Delay]], in_step: Sequence[tuple[int, ...]]) -> dict[int, tuple[Delay, ...]]:
    """Delays by step, without those of equals of a rank that they waited for in another step (it has no record of this one)."""
    single = {delay.ranks[0] for each in found.values() for delay in each if _is_own(delay)}
    led = [members for members in in_step if single.intersection(members)]
    return {
        step: tuple(delay for delay in each if not (delay.is_alike and _is_within(delay, led))) for step, each in found.items()
    }


def _is_own(delay: Delay) -> bool:
    return not delay.one_of and delay.equals_ns >= _OWN * delay.excess_ns


def _is_within(delay: Delay, groups: Iterable[Collection[int]]) -> bool:
    return any(set(delay.ranks).issubset(members) for members in groups)


def _without_replicas(found: Sequence[Delay], in_step: Sequence[tuple[int, ...]]) -> Iterator[Delay]:
    """Not those shown by ends alone of which several replicas have one each: a root is late in its own replica first."""
    ends = [delay for delay in found if delay.by_ends]
    late = {frozenset(members) for members in in_step if any(_is_within(delay, [members]) for delay in ends)}
    for delay in found:
        if not (delay.by_ends and len(late) > 1 and _is_within(delay, late)):
            yield delay


def _as_one(late: Sequence[Delay]) -> Delay:
    longest = max(late, key=lambda delay: delay.waited_ns)
    return replace(longest, ranks=tuple(sorted(delay.ranks[0] for delay in late)), is_alike=True)


def moves(delays: Delays, delay: Delay) -> bool:
    """Whether other ranks were late alike in other steps: then samples differ in length from group to group."""
    others = (other for other in delays.found if other.is_alike and other.step != delay.step)
    return delay.is_alike and any(not set(other.ranks) & set(delay.ranks) for other in others)
