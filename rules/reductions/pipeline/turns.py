"""Where a rank turns from one pass to the next without a message: what made it late may be of either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from forensics.model import Evidence
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.delay import Delay
from forensics.rules.reductions.pipeline.passes import NEITHER
from forensics.rules.reductions.steps.records import UNKNOWN, Record


def of_either(places: CallPlaces, delay: Delay, place: CallPlace, *, in_turn: bool = False) -> CallPlace:
    """The place of a delay, without what two passes differ in where the late call is the first of one and either may be late.

    The last stage goes back with the microbatch whose forward pass it ends: the work before its first call there is of both.
    The first stage ends a backward pass without a message, and receives the next gradient meanwhile, unless receives are called
    `in_turn` with the work: then one would have been late.
    """
    own = places.steps(delay.witness)
    at = own.record.issued(delay.communicator, delay.sequence) if own else None
    if own is None or own.passes is None or not at or own.record.is_message[at]:
        return place
    before = _worked_before(own.record, at)
    is_received = bool(own.record.is_message[at - 1])
    if before is None or (is_received and (in_turn or _waits_between(own.record, before, at))):
        return place
    (first, direction), numbers = (each[[before, at]].tolist() for each in (own.passes.direction, own.passes.ordinal))
    if NEITHER in (first, direction) or (first == direction and numbers[0] == numbers[1]):
        return place
    is_same = numbers[0] == numbers[1]
    return replace(
        place,
        direction=place.direction if first == direction else None,
        microbatch=place.microbatch if is_same else None,
        chunk=None,
    )


def _worked_before(record: Record, at: int) -> int | None:
    """The call before one, messages that were received aside; None where one was sent: its pass had ended."""
    apart = np.flatnonzero(~record.is_message[:at] | record.is_send[:at])
    return int(apart[-1]) if len(apart) and not record.is_message[apart[-1]] else None


def _waits_between(record: Record, before: int, at: int) -> bool:
    """Whether the host itself waited for a message between two calls: it received behind the one, and made the other then."""
    over, received = record.end_ns[[before, at - 1]].tolist()
    called, made = record.enqueued_ns[[at - 1, at]].tolist()
    return UNKNOWN not in (over, received, called, made) and bool(over <= called and received <= made)


def of_two_passes(place: CallPlace, turned: CallPlace) -> Iterator[Evidence]:
    """Why a place is without what its call has."""
    if (place.direction, place.microbatch) == (turned.direction, turned.microbatch) or place.direction is None:
        return
    other = "forward" if place.direction == "backward" else "backward"
    before = f"{other} pass" if turned.direction is None else f"{place.direction} pass before"
    yield Evidence(f"that call is the first of its {place.direction} pass: the end of the {before} counts as well", None)
