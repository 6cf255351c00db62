"""Losses that a sound job shows too: all ranks save and evaluate now and then, and the first rank does some of that for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Set

import numpy as np

from forensics.rules.reductions.frontier.losses import Culprit
from forensics.rules.reductions.frontier.matrix import RESIDUAL, StageMatrix

_PAUSES = frozenset({"checkpoint", "eval"})
"""Stages in which the job does something else than train."""
_OF_FIRST = _PAUSES | {"callbacks", "other"}
"""Stages in which the first rank logs, saves, evaluates; `other` is what no stage holds, and so what nobody annotated."""
_PASSES = frozenset({"forward", "backward"})
_THROUGHOUT = "throughout"
_IS_DUTY = "in a sound job the first rank logs, saves or evaluates for all"
_IS_PAUSE = "a sound job saves or evaluates every so many steps too, and it took no longer than at the begin of the record"
_IS_PART = (
    "in a sound job some ranks, as those of one replica, save or evaluate for more than themselves, and from the begin on"
)
_IN_TURN = "in a sound job one rank or another has more work in each step, and it was so from the begin of the record on"

_IS_SMALL = "a step would need nearly as long without it: hosts of one job differ by so much"
_IS_SLICE = "a host that was ready to go on waits for a core by so much in a sound job: a slice or two of its scheduler"
# Slices of schedulers are 3 ms and less; behind another thread or two a ready one waits as long.
_SLICES_NS = 5_000_000
_MAY_WAIT = "ranks wait for messages inside the passes as well as they work, and it was so from the begin of the record on"


def first_ranks(hosts: Mapping[int, str | None]) -> frozenset[int]:
    """The lowest rank of each host that is known to have several, and the first of the job: being alone is no distinction."""
    together: dict[str, list[int]] = defaultdict(list)
    for rank, host in hosts.items():
        if host is not None:
            together[host].append(rank)
    return frozenset({0, *(min(ranks) for ranks in together.values() if len(ranks) > 1)})


def is_unstaged(matrix: StageMatrix) -> bool:
    """Whether most of the time lies in no stage: then the passes do, as where nobody annotated them."""
    return bool(2 * np.maximum(matrix.residual, 0.0).sum() > matrix.walls.sum())


def duty_of(
    culprit: Culprit, first: Collection[int], most_share: float, *, unstaged: bool = False, sync: str | None = None
) -> str | None:
    """Why a sound job may lose this time; None where it would not, or became slower.

    `first` are the first ranks of hosts: work that the job gives to rank 0, or to one rank of each host, is rhythmic, or small
    beside the step (below `most_share` of the time), and has been there since the record began. Saving and evaluating are due
    in some steps only, however far apart, and several ranks may have a part of it that others have not: one replica saves for
    all, and hosts write to disks of their own. `unstaged`: the passes are in what no stage holds. In `sync` hosts wait
    for their devices: what the passes take longer shows there.
    """
    if culprit.onset is not None or (culprit.device and culprit.stage not in _OF_FIRST):
        return None
    if not culprit.ranks:
        # Lengths of sequences, experts and clocks differ: of many ranks each pass is long on some other one.
        in_pass = culprit.stage in (*_PASSES, sync) or (unstaged and culprit.stage == RESIDUAL)
        is_work = culprit.changing and in_pass and culprit.pattern == _THROUGHOUT
        return _IS_PAUSE if culprit.stage in _PAUSES else _IN_TURN if is_work else None
    # Of what it did in some steps and not in others the share shows how often it was due, and not how long it took.
    is_due = culprit.stage in _PAUSES and culprit.affected < culprit.steps
    is_first = culprit.ranks == (0,) or (len(culprit.ranks) > 1 and {*culprit.ranks} == {*first})
    if not is_first or culprit.stage not in _OF_FIRST:
        return _IS_PART if is_due and len(culprit.ranks) > 1 else None
    is_rhythmic = culprit.pattern.startswith("every") or is_due
    return _IS_DUTY if is_rhythmic or (culprit.pattern == _THROUGHOUT and culprit.share < most_share) else None


def may_wait(culprit: Culprit, messengers: Set[int], sync: str | None, *, alone: bool) -> bool:
    """Whether ranks that are long in a pass, always the same or in turn, may only have waited there for messages.

    A victim's pass grows with what the rank that it gets its messages from is late by, on its device as well, and then both are
    long somewhere. Where every rank was seen and one is long `alone`, and not where all wait for their devices (`sync`), it is
    its own work. `messengers` are ranks of the window that exchange messages.
    """
    others = messengers & set(culprit.ranks) if culprit.ranks else messengers if culprit.changing else frozenset[int]()
    return culprit.stage in _PASSES and bool(others) and (culprit.stage == sync or not alone)


def wait_of(culprit: Culprit) -> str | None:
    """Why the job is sound where ranks `may_wait`, as far as this tells: since the record began, as in any pipeline."""
    return _MAY_WAIT if culprit.onset is None else None


def small_of(culprit: Culprit, least: float) -> str | None:
    """Why a lag makes no step a slow one: that of several ranks is below `least` of the time, and no change of the steps.

    Hosts of one job differ in their models and clocks by as much, and all ranks of one are late alike; boards differ by less.
    What a host spends in no stage for milliseconds is as well the wait for a core, however short the steps are.
    """
    if culprit.stage == RESIDUAL and not culprit.device and culprit.begins is None and culprit.typical_ns < _SLICES_NS:
        return _IS_SLICE
    is_small = len(culprit.ranks) > 1 and culprit.begins is None and culprit.share < least
    return _IS_SMALL if is_small else None
