"""Where a rank turns from one pass to the next without a message: what made it late may be of either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Evidence
from forensics.rules.reductions.pipeline.call_places import CallPlace, CallPlaces
from forensics.rules.reductions.pipeline.delay import Delay
from forensics.rules.reductions.pipeline.passes import NEITHER


def of_either(places: CallPlaces, delay: Delay, place: CallPlace) -> CallPlace:
    """The place of a delay, without its direction where the late call is the first of its pass and no message opened that.

    The last stage goes back with the microbatch whose forward pass it ends: the work before its first call there is of both.
    """
    own = places.steps(delay.witness)
    at = own.record.issued(delay.communicator, delay.sequence) if own else None
    if own is None or own.passes is None or not at or own.record.is_message[at - 1] or own.record.is_message[at]:
        return place
    direction, number = own.passes.direction[at - 1 : at + 1], own.passes.ordinal[at - 1 : at + 1]
    if (direction == NEITHER).any() or direction[0] == direction[1]:
        return place
    return replace(place, direction=None, microbatch=place.microbatch if number[0] == number[1] else None, chunk=None)


def of_two_passes(place: CallPlace, turned: CallPlace) -> Iterator[Evidence]:
    """Why a place is without the direction that its call has."""
    if place.direction is not None and turned.direction is None:
        before = "forward" if place.direction == "backward" else "backward"
        yield Evidence(
            f"that call is the first of its {place.direction} pass: the end of the {before} pass counts as well", None
        )
