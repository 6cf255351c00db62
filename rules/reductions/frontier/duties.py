"""Losses that a sound job shows too: all ranks save and evaluate now and then, and the first rank does some of that for all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from forensics.rules.reductions.frontier.culprits import Culprit

_PAUSES = frozenset({"checkpoint", "eval"})
"""Stages in which the job does something else than train."""
_OF_FIRST = _PAUSES | {"callbacks", "other"}
"""Stages in which the first rank logs, saves, evaluates; `other` is what no stage holds, and so what nobody annotated."""
_PASSES = frozenset({"forward", "backward"})
_THROUGHOUT = "throughout"
_IS_DUTY = "in a sound job the first rank logs, saves or evaluates for all"
_IS_PAUSE = "a sound job saves or evaluates every so many steps too, and it took no longer than at the begin of the record"

_MAY_WAIT = (
    "hosts wait for messages of other ranks inside the passes, which cannot be told from work; it was so from the begin on"
)


def first_ranks(hosts: Mapping[int, str | None]) -> frozenset[int]:
    """The lowest rank of each host that is known, and the first of the job."""
    lowest: dict[str, int] = {}
    for rank in sorted(hosts):
        host = hosts[rank]
        if host is not None:
            lowest.setdefault(host, rank)
    return frozenset({0, *lowest.values()})


def duty_of(culprit: Culprit, first: Collection[int], share_from_start: float) -> str | None:
    """Why a sound job may lose this time; None where it would not, or became slower.

    `first` are the first ranks of hosts: work that the job gives to rank 0, or to one rank of each host, is rhythmic, or small
    beside the step (below `share_from_start` of the time), and has been there since the record began.
    """
    if culprit.onset is not None or culprit.device:
        return None
    if not culprit.ranks:
        return _IS_PAUSE if culprit.stage in _PAUSES else None
    is_first = culprit.ranks == (0,) or (len(culprit.ranks) > 1 and {*culprit.ranks} == {*first})
    if not is_first or culprit.stage not in _OF_FIRST:
        return None
    is_rhythmic = culprit.pattern.startswith("every")
    return _IS_DUTY if is_rhythmic or (culprit.pattern == _THROUGHOUT and culprit.share < share_from_start) else None


def may_wait(culprit: Culprit, messengers: Set[int]) -> bool:
    """Whether ranks are long in a pass in which they, or those that hold them up, exchange messages.

    A victim's pass grows with that of the rank which it gets its messages from; times of devices tell which it is.
    """
    return culprit.stage in _PASSES and not culprit.device and not messengers.isdisjoint(culprit.ranks)


def wait_of(culprit: Culprit, messengers: Set[int]) -> str | None:
    """Why such ranks may be in time; None where the stage became longer in the record, or has no messages."""
    return _MAY_WAIT if culprit.onset is None and may_wait(culprit, messengers) else None
