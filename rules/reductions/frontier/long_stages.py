"""What windows of stages tell of one rank: the stage that it is long in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from forensics.model import StageName
from forensics.rules.reductions.frontier.accounting import Floats
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.losses import Culprit
from forensics.rules.reductions.frontier.roles import roles_differ
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, WindowVerdict, judge
from forensics.rules.reductions.frontier.waits import Made

# Of what a rank is late by: a host that launched its work later by less leaves nearly all of it to its device.
_OF_HOST = 0.2
# Of what a rank is late by: so long others wait in calls that it made in time.
_AWAITED = 0.5
# Of what a rank is late by, at the first collective of a step: jitter of equal ranks is less.
_EARLY = 0.3
# As much is jitter: a device that is slower in all that it does loses more in forward alone.
_IN_TIME = 0.1
# Of the steps in which it should have noted when it had launched its work: of lost notes nothing tells which they were.
_NOTED = 0.9
# Of the steps whose calls a recorder still holds, the newest ones.
_RECORDED = 0.5
# Of the wall time: stages that overlap by more were nested or counted twice, and tell no loss.
_MOST_OVERLAP = 0.1


@dataclass(frozen=True, slots=True)
class LongStage:
    """A stage that is long on one rank: what it costs, its name as far as that is known, and whether its device is late."""

    culprit: Culprit
    name: StageName
    on_device: bool


def long_stage_of(rank: int, windows: Iterable[FrontierWindow]) -> LongStage | None:
    """The stage that the job loses most time to by this rank alone; None where its stages are as long as those of its peers.

    The stage in which all wait for each other, and for their devices, shows nothing.
    """
    gates = Gates()
    stated = [judged for window in windows if not is_limited(judged := judge(window, gates), gates)]
    found = [
        (each, judged)
        for judged in stated
        for each in judged.attribution.culprits
        if each.ranks == (rank,) and each.stage in set(StageName) and each.stage != judged.attribution.sync
    ]
    if not found:
        return None
    culprit, _ = max(found, key=lambda each: each[0].share)
    same = [(each, judged, is_of_device(judged, each)) for each, judged in found if each.stage == culprit.stage]
    names = [stage_of(judged, each, launched=launched) for each, judged, launched in same]
    # A window that shows that it may be another pass goes before those that show less.
    name = StageName.UNKNOWN if StageName.UNKNOWN in names else names[0]
    return LongStage(culprit, name, any(each.device or launched for each, _, launched in same))


def stage_of(judged: WindowVerdict, culprit: Culprit, *, launched: bool) -> StageName:
    """Its stage; unknown where a device that comes late to the first collective may have computed longer before this stage.

    `launched`: hosts had launched the work of the stage with the others, so that it is the device that is late.
    """
    if launched and is_late_before(judged, culprit):
        return StageName.UNKNOWN
    return StageName(culprit.stage) if culprit.stage in set(StageName) else StageName.OTHER


def is_limited(judged: WindowVerdict, gates: Gates) -> bool:
    """Whether the window cannot bear an accusation: ranks of different parts, stages out of order or counted twice."""
    mixed = judged.attribution.sync is None or roles_differ(judged.matrix, gates, judged.attribution.sync)
    return bool(mixed) or not judged.matrix.is_ordered or judged.examined.overlap > _MOST_OVERLAP


def is_of_device(judged: WindowVerdict, culprit: Culprit) -> bool:
    """Whether its ranks are late in their collectives, while their hosts had launched the work before them with the others.

    Notes of arrivals, or of calls, are those of a host; on a device, collectives begin when what was launched before is done.
    """
    noted, waits = (judged.matrix.arrived or {}).get(culprit.stage), judged.waits
    if noted is None and waits is not None and culprit.stage == judged.attribution.sync:
        later = _beside_others(judged, culprit, waits.launched, _RECORDED)
    elif noted is None and waits is not None and waits.made is not None:
        later = _launched_and_awaited(judged, culprit, waits.made)
    else:
        later = _beside_others(judged, culprit, noted, _NOTED)
    return later is not None and float(later.max()) <= _OF_HOST * culprit.typical_ns


def _launched_and_awaited(judged: WindowVerdict, culprit: Culprit, made: Made) -> Floats | None:
    """By how much later hosts made the calls of a stage behind which ranks meet; None unless the others wait in these calls.

    A host that stays in the stage although it made them in time waits there for its own device.
    """
    place = _place_of_calls(judged, culprit, made)
    less = None if place is None else _beside_others(judged, culprit, -made.waited[:, place], _RECORDED)
    if less is None or float(less.min()) < _AWAITED * culprit.typical_ns:
        return None
    return _beside_others(judged, culprit, made.launched[:, place], _RECORDED)


def _place_of_calls(judged: WindowVerdict, culprit: Culprit, made: Made) -> int | None:
    """The last column of a stage in which hosts make calls."""
    places = [place for place, column in enumerate(judged.matrix.columns) if column.stage == culprit.stage]
    known = [place for place in places if place < made.waited.shape[1] and np.isfinite(made.waited[:, place]).any()]
    return known[-1] if known else None


def is_late_before(judged: WindowVerdict, culprit: Culprit) -> bool:
    """Whether its ranks come late to the first collective of a step already, by a good part of what they are late by.

    What a device does for forward shows there as well as the first part of backward.
    """
    later = _later_to_first(judged, culprit)
    return later is not None and float(later.max()) >= _EARLY * culprit.typical_ns


def is_early_in_time(judged: WindowVerdict, culprit: Culprit) -> bool:
    """Whether its ranks are seen to come in time to the first collective of a step: what slows a whole device shows there."""
    later = _later_to_first(judged, culprit)
    return later is not None and float(later.max()) <= _IN_TIME * culprit.typical_ns


def _later_to_first(judged: WindowVerdict, culprit: Culprit) -> Floats | None:
    waits = judged.waits
    first = waits.first if waits is not None and culprit.stage == judged.attribution.sync else None
    if waits is not None and waits.made is not None and culprit.stage != judged.attribution.sync:
        place = _place_of_calls(judged, culprit, waits.made)
        first = None if place is None else waits.made.first[:, place]
    return _beside_others(judged, culprit, None if first is None else -first, _RECORDED)


def _beside_others(judged: WindowVerdict, culprit: Culprit, own: Floats | None, least: float) -> Floats | None:
    """By how much a time of its ranks is usually longer than that of the others; None where less than that share is known."""
    if own is None or judged.attribution.waits != "collectives" or not culprit.ranks:
        return None
    rows = judged.matrix.steps >= (judged.matrix.steps[0] if culprit.onset is None else culprit.onset)
    named = np.isin(judged.matrix.ranks, culprit.ranks)
    if not rows.any() or named.all() or float(np.isfinite(own[rows]).mean()) < least:
        return None
    rows = rows & np.isfinite(own[:, named]).all(axis=1) & np.isfinite(own[:, ~named]).any(axis=1)
    beyond = own[rows][:, named] - np.nanmedian(own[rows][:, ~named], axis=1, keepdims=True)
    return np.asarray(np.median(beyond, axis=0)) if len(beyond) else None
