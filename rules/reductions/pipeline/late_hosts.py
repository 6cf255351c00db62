"""Whether a host that waits in calls itself (gloo) was late by its own work: it may want for a core, or wait for a message."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import fsum
from statistics import median

import numpy as np

from forensics.rules.reductions.arrivals.lateness import chance_of_last
from forensics.rules.reductions.frontier.duties import first_ranks
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.delay import Delay, Delays
from forensics.rules.reductions.steps.times import GATE

# Of what it is late by: steps that are longer by less are those of a busy host.
_NEARLY = 0.5
# Of the steps that a rank is late in, if these are most of the long ones: those in which it was so by its own work.
_NEARLY_ALL = 0.9
_MOST_CHANCE = 0.01
# One in so many sets of steps has distances that are multiples of the least one, at most.
_LEAST_ODDS = 4
# Steps in a row: what takes so many lasts, and is no duty of every so many steps.
_LASTING = 5


def stands_out(
    delays: Delays,
    found: Sequence[Delay],
    places: CallPlaces,
    hosts: Mapping[int, str | None],
    least_again: float,
    least_steps: float,
) -> bool:
    """Whether a rank is late inside passes `least_again` times, or by `least_steps` usual steps; `hosts` has all ranks.

    Once, and by less, it may have wanted for a core. To calls between the passes it may come late by a message of its pipeline;
    where the job has no messages, who is late to most steps that are about as long as these, beyond chance, is late by itself.
    The first rank of a host logs and saves between the passes, now and then.
    """
    ranks = set(hosts)
    alone = not delays.may_have_messages and delays.timed >= ranks and not first_ranks(hosts) & set(found[0].ranks)
    if alone and _is_beyond_chance(delays, found, least_again):
        return True
    often = len(found) >= least_again and 2 * len(found) > delays.long
    much = max(delay.excess_ns for delay in found) >= least_steps * delays.typical_ns
    # A step in which another rank wanted for a core as well takes nothing from many in which this one alone was late.
    least = (_NEARLY_ALL if often else 1) * len(found)
    return (often or much) and sum(_is_inside(delays, delay, places, ranks) for delay in found) >= least


def _is_beyond_chance(delays: Delays, found: Sequence[Delay], least_again: float) -> bool:
    least = _NEARLY * median(delay.excess_ns for delay in found)
    mine = {delay.step for delay in found if delay.excess_ns >= least}
    others = {delay.step for delay in delays.found if delay.excess_ns >= least} - mine
    steps = len(mine) + len(others) + sum(excess >= least for excess in delays.unexplained_ns)
    most = len(mine) >= least_again and 2 * len(mine) > steps
    return most and chance_of_last(len(mine), steps, len(delays.ranks)) <= _MOST_CHANCE


def _is_inside(delays: Delays, delay: Delay, places: CallPlaces, ranks: Collection[int]) -> bool:
    """Whether a host was late to a call by its own work: to one of a pass, or amid the step where nobody else was late.

    Who comes late by a message waited for another host, for which the members of its own groups wait in the same step.
    """
    place = places.of_call(delay.witness, delay.communicator, delay.sequence)
    if place is not None and place.in_pass:
        return True
    alone = sum(other.step == delay.step for other in delays.found) == 1 and delays.timed >= set(ranks)
    return alone and is_amid(delay, places)


def is_amid(delay: Delay, places: CallPlaces) -> bool:
    """Whether calls of its kind precede and follow it in the step."""
    return places.is_amid(delay.witness, delay.communicator, delay.sequence)


def is_brief(delays: Delays, found: Sequence[Delay], least_ns: float, most_ns: float) -> bool:
    """Whether steps were longer by less than `least_ns`, or by less than `most_ns` that cost little of all that is recorded."""
    lost = fsum(delay.excess_ns for delay in found)
    is_little = lost < (1 - GATE) * (lost + delays.steps * delays.typical_ns)
    return max(delay.excess_ns for delay in found) < (most_ns if is_little else least_ns)


def has_rhythm(found: Sequence[Delay], is_first: bool) -> bool:
    """Whether the steps lie equally far apart, but for many in a row; two always do. `is_first`: some may be missing, short
    enough for the gate.

    That all distances are multiples of the least one is chance more often where that is small, and they are few.
    """
    apart = np.diff(sorted(delay.step for delay in found))
    least = int(apart.min())
    if len(found) >= _LASTING and (apart == 1).all():
        return False
    with_gaps = is_first and least ** (len(apart) - 1) >= _LEAST_ODDS and (apart % least == 0).all()
    return bool((apart == least).all() or with_gaps)


def nearly_as_long(delays: Delays, found: Sequence[Delay], worst: Delay) -> bool:
    """Whether as many other steps were nearly as long, by nobody that is seen, or, of transfers, by another one each time."""
    others = [each.excess_ns for each in delays.found if worst.is_transfer and each.is_transfer and each not in found]
    return sum(excess >= _NEARLY * worst.excess_ns for excess in (*delays.unexplained_ns, *others)) >= len(found)
