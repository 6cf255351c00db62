"""What several windows of a job say together: each loss once, and nobody held up by most of the ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.frontier.culprits import Attribution
from forensics.rules.reductions.frontier.losses import Culprit
from forensics.rules.reductions.frontier.verdicts import WindowVerdict

_PASSES, _BEFORE_PASSES = frozenset({"forward", "backward"}), frozenset({"data", "callbacks", "optimizer", "other"})
# Of a pair either may be the slow one.
_LEAST_WAITERS = 2
# Of what a rank is late by: who waits for it waits for that long at most, and jitter adds to it.
_AS_LATE = 0.8
_Loss = tuple[str, str, tuple[int, ...]]
"""Group, stage and ranks."""


def is_alone(known: Sequence[WindowVerdict], ranks: Collection[int]) -> bool:
    """Whether all windows together name one rank, and hold every rank of the job."""
    return len(_named(known)) == 1 and {rank for judged in known for rank in judged.matrix.ranks} >= set(ranks)


def named_once(known: Sequence[WindowVerdict]) -> list[WindowVerdict]:
    """Windows that name each loss where most is lost by it, as windows overlap, and ranks where these are half of all at most.

    Who waits where a rank is missing that another window names waits for that rank.
    """
    named, most = _named(known), _most(known)
    if 2 * len(named) > len({rank for judged in known for rank in judged.matrix.ranks}):
        return [replace(judged, attribution=_without_ranks(judged.attribution)) for judged in known]
    return [replace(judged, attribution=_with_most(judged, most, named)) for judged in known]


def _named(known: Sequence[WindowVerdict]) -> frozenset[int]:
    return frozenset(rank for judged in known for culprit in judged.attribution.culprits for rank in culprit.ranks)


def _loss(judged: WindowVerdict, culprit: Culprit) -> _Loss:
    return judged.matrix.group, culprit.stage, culprit.ranks


def _most(known: Sequence[WindowVerdict]) -> dict[_Loss, float]:
    most: dict[_Loss, float] = {}
    for judged in known:
        for each in judged.attribution.culprits:
            most[_loss(judged, each)] = max(most.get(_loss(judged, each), 0.0), each.lost_ns)
    return most


def _with_most(judged: WindowVerdict, most: Mapping[_Loss, float], named: Collection[int]) -> Attribution:
    waits = not set(named).isdisjoint(judged.matrix.missing)
    kept = [each for each in judged.attribution.culprits if each.lost_ns == most[_loss(judged, each)]]
    return replace(judged.attribution, culprits=tuple(each for each in kept if each.ranks or not waits))


def _without_ranks(found: Attribution) -> Attribution:
    culprits = (replace(each, ranks=(), changing=True) if each.ranks else each for each in found.culprits)
    return replace(found, culprits=tuple(culprits))


def wait_for_another(groups: Communicators, ranks: Collection[int]) -> bool:
    """Whether the ranks are all members of a communicator but one: in a stage with collectives such ranks wait for that one."""
    members = [{*group.members} for group in groups if group.confidence == "read" and group.size <= len(group.members)]
    return len(ranks) >= _LEAST_WAITERS and any({*ranks} < all_of and len(all_of) == len(ranks) + 1 for all_of in members)


def wait_for_named(groups: Communicators, culprit: Culprit, known: Sequence[WindowVerdict]) -> tuple[int, ...]:
    """For whom ranks that are long in a pass may wait there: others with which they communicate, as late by what came before.

    A communicator of all ranks of the window holds all of them up alike.
    """
    if not culprit.ranks or culprit.device or culprit.stage not in _PASSES:
        return ()
    for judged in known:
        for late in judged.attribution.culprits:
            as_late = late.stage in _BEFORE_PASSES and late.typical_ns >= _AS_LATE * culprit.typical_ns
            both = {*late.ranks, *culprit.ranks}
            if late.ranks and as_late and set(late.ranks).isdisjoint(culprit.ranks) and _share(groups, both, judged):
                return late.ranks
    return ()


def _share(groups: Communicators, ranks: Collection[int], judged: WindowVerdict) -> bool:
    return any({*ranks} <= {*group.members} and not {*judged.matrix.ranks} <= {*group.members} for group in groups)
