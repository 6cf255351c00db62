"""Rounds of stacks: who waits in communication and who is at work, of all ranks at about one moment."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from forensics.model import WaitKind
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.samples import Sample, Stacks

# Calls in which one rank gives, takes or releases.
_ONE_SIDED = re.compile(r"barrier|broadcast|send|recv|(?<!reduce_)scatter|(?<!all_)gather|^reduce(_object)?$")
_NEARLY_ALL = 0.75
LEAST_ROUNDS = 5
"""Who is waited for at most of so many moments takes half of the time of all others, but for chance."""
LEAST_RANKS = 3
"""Of two ranks the one that works at a moment is late by any small imbalance."""
LEAST_ODDS = 16
"""Ranks to the power of rounds but one: against one rank being it each time by chance."""


@dataclass(frozen=True, slots=True)
class Round:
    """Who was in communication and who was not in the sample of this number."""

    number: int
    inside: frozenset[int]
    outside: frozenset[int]


@dataclass(frozen=True, slots=True)
class WaitsBeside:
    """How all ranks but one wait, over all rounds.

    `at_work` are the rounds in which that one is at work, `waiting` those of the others that wait in some round, `equal` how
    many of their `waits` are calls in which all do the same.
    """

    at_work: frozenset[int]
    waiting: frozenset[int]
    equal: int
    waits: int
    samples: int

    @property
    def are_equal(self) -> bool:
        """Whether nearly all of them are."""
        return self.equal >= _NEARLY_ALL * self.waits

    @property
    def of_waits(self) -> str:
        """The fact, for a sentence."""
        return f"the other ranks wait in communication in {self.waits} of {self.samples} stacks"


@dataclass(frozen=True, slots=True)
class AloneAtWork:
    """The one rank that is at work while all others wait, and the rounds in which it is, in their order.

    `sampled` is the number of all rounds, `shared` of those in which several ranks are at work, or another one alone. `came`:
    it was seen in communication with all others between two of its rounds, and what these waited in has ended by then.
    """

    rank: int
    rounds: tuple[Round, ...]
    sampled: int
    shared: int
    came: bool = False

    def samples(self, found: Stacks) -> list[Sample]:
        """Those of the main thread of a rank in these rounds, in their order."""
        numbers = {each.number for each in self.rounds}
        return [sample for sample in found.main if sample.number in numbers]


def alone_at_work(
    stacks: Mapping[int, Stacks], least_ranks: float = LEAST_RANKS, least_odds: float = LEAST_ODDS
) -> AloneAtWork | None:
    """The rank that its peers wait for in most rounds; None where several take turns, or all meet at barriers.

    A round in which all wait speaks of nobody. Who comes late to barriers saves, evaluates or sets up something for all.
    A round in which another rank is alone counts against it, one for one.
    """
    whole = rounds(stacks)
    turns = Counter(rank for each in whole for rank in each.outside if len(each.outside) == 1)
    if len(stacks) < least_ranks or not turns:
        return None
    ((rank, count),) = turns.most_common(1)
    alone = tuple(each for each in whole if each.outside == {rank})
    others = turns.total() - count
    if len(stacks) ** (count - others - 1) < least_odds or all(_meet_at_barrier(each, stacks) for each in alone):
        return None
    shared = sum(bool(each.outside - {rank}) for each in whole)
    came = any(alone[0].number < each.number < alone[-1].number for each in whole if not each.outside)
    return AloneAtWork(rank, alone, len(whole), shared, came)


def usual_sample(samples: Sequence[Sample], kind: Callable[[Sample], Hashable]) -> Sample:
    """The newest one of the kind that most are."""
    counts = Counter(map(kind, samples))
    return max(samples, key=lambda sample: (counts[kind(sample)], sample.number))


def waits_beside(rank: int, stacks: Mapping[int, Stacks]) -> WaitsBeside:
    """How the others wait, and when this rank is at work."""
    whole = rounds(stacks)
    others = {other: each for other, each in stacks.items() if other != rank}
    waits = [sample for each in whole for sample in _waiting(replace(each, inside=each.inside - {rank}), others)]
    return WaitsBeside(
        at_work=frozenset(each.number for each in whole if rank in each.outside),
        waiting=frozenset(other for each in whole for other in each.inside - {rank}),
        equal=sum(not _is_one_sided(sample.activity) for sample in waits),
        waits=len(waits),
        samples=len(whole) * len(others),
    )


def meet_as_equals(found: AloneAtWork, stacks: Mapping[int, Stacks]) -> bool:
    """Whether most of the others wait, in each round, in calls in which all do the same.

    Who sends to them, or serves them, works while they wait. A broadcast in between, of which another rank is the root that
    waits itself, is nothing of the kind.
    """
    return all(_equals(each, stacks) * 2 > len(each.inside) for each in found.rounds)


def _equals(one: Round, stacks: Mapping[int, Stacks]) -> int:
    """How many of those who wait in a round do so in a call in which all do the same."""
    return sum(not _is_one_sided(each.activity) for each in _waiting(one, stacks))


def _waiting(one: Round, stacks: Mapping[int, Stacks]) -> list[Sample]:
    """The samples of those who wait in a round."""
    return [each for rank in one.inside for each in stacks[rank].main if each.number == one.number]


def _is_one_sided(activity: Activity) -> bool:
    if activity.below_autograd:
        return False
    frame = activity.call_frame
    return activity.wait is not WaitKind.COLLECTIVE or (frame is not None and _ONE_SIDED.search(frame.function) is not None)


def rounds(stacks: Mapping[int, Stacks]) -> Sequence[Round]:
    """Those in which every rank that has stacks was sampled, once each.

    A thread below the autograd engine waits there or computes: where everybody else waits, one that is on a CPU computes.
    """
    found = defaultdict[int, dict[int, list[Sample]]](lambda: defaultdict(list))
    for rank, each in stacks.items():
        for sample in each.main:
            found[sample.number][rank].append(sample)
    whole = {number: seen for number, seen in sorted(found.items()) if seen.keys() == stacks.keys()}
    return [_round(number, {rank: one for rank, (one,) in seen.items()}) for number, seen in whole.items() if _is_single(seen)]


def _is_single(seen: Mapping[int, Sequence[Sample]]) -> bool:
    return all(len(samples) == 1 for samples in seen.values())


def _round(number: int, seen: Mapping[int, Sample]) -> Round:
    at_work = {rank for rank, sample in seen.items() if not sample.activity.waits_for_others}
    computes = {rank for rank, each in seen.items() if each.active and each.activity.below_autograd}
    outside = frozenset(at_work or computes)
    return Round(number, frozenset(seen) - outside, outside)


def _meet_at_barrier(one: Round, stacks: Mapping[int, Stacks]) -> bool:
    """Whether all who wait in a round are in a barrier."""
    frames = (each.activity.call_frame for each in _waiting(one, stacks))
    return all(frame is not None and "barrier" in frame.function for frame in frames)
