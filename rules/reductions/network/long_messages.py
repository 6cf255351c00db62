"""How long single messages of the steps of a job took once both ends were there, and those that took far longer than usual.

The end that comes last to a message is in it only for as long as it takes, on its own clock. Ends are matched by their order in
the steps that both show: numbers of a record that was cut are not those of the other one. A sound message may wait for the NICs
of its ranks, or of their neighbours, until collectives are over: it is long where it takes far longer than any of these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.steps.records import UNKNOWN, Ints, Record
from forensics.rules.reductions.steps.times import Floats, Steps, StepTimes

Pair = tuple[str, int, int]
"""Communicator, sender and receiver."""


@dataclass(frozen=True, slots=True)
class LongMessage:
    """A message that took `took_ns` with both ends there, `usual_ns` others of its pair; its sender made it at `place`.

    It `lasts` where all later ones of the pair were as long.
    """

    communicator: str
    ranks: tuple[int, int]
    took_ns: float
    usual_ns: float
    record: Record
    place: int
    lasts: bool


@dataclass(frozen=True, slots=True)
class _End:
    """The messages of one end: places by step and order, their times inside (ns), and the numbers of the steps."""

    record: Record
    number: Ints
    places: Ints
    inside: Floats


def long_messages(
    times: StepTimes, factor: float, least_ns: float, least_usual: int, most_part: float
) -> Iterator[LongMessage]:
    """Messages that took `factor` times what is usual between their ends and `least_ns` more, unless so many did."""
    senders, receivers = _ends(times)
    for pair in sorted(senders.keys() & receivers.keys()):
        sent, received = senders[pair], receivers[pair]
        places, took = _met(sent, received)
        if len(took) < least_usual:
            continue
        usual = float(np.median(took))
        long = took >= max(factor * usual, usual + least_ns)
        if long.any():
            long &= took >= usual + factor * max(_longest(sent.record), _longest(received.record))
        if long.sum() <= most_part * len(took):
            lasts = np.logical_and.accumulate(long[::-1])[::-1]
            for place, ns, last in zip(places[long].tolist(), took[long].tolist(), lasts[long].tolist(), strict=True):
                yield LongMessage(pair[0], (pair[1], pair[2]), ns, usual, sent.record, place, last)


def _met(sent: _End, received: _End) -> tuple[Ints, Floats]:
    """Where the sender made the messages that both ends tell of, and for how many ns both were there."""
    if sent.places.shape[1] != received.places.shape[1]:
        return np.empty(0, np.int64), np.empty(0)
    _, here, there = np.intersect1d(sent.number, received.number, return_indices=True)
    took = np.minimum(sent.inside[here], received.inside[there])
    known = np.isfinite(took)
    return sent.places[here][known], took[known]


def _longest(record: Record) -> float:
    """What the longest collective of a rank usually takes (ns)."""
    known = ~record.is_message & (record.duration_ns != UNKNOWN)
    order = np.argsort(record.token[known], kind="stable")
    bounds = np.flatnonzero(np.diff(record.token[known][order])) + 1
    return max(
        (float(np.median(each)) for each in np.split(record.duration_ns[known][order], bounds) if len(each)), default=0.0
    )


def _ends(times: StepTimes) -> tuple[Mapping[Pair, _End], Mapping[Pair, _End]]:
    """Messages by pair: those of senders, and those of receivers."""
    found: tuple[dict[Pair, _End], dict[Pair, _End]] = ({}, {})
    for rank, steps in times.ranks.items():
        record = steps.record
        # Of what one group call issued the first has the time of all, and those behind it none.
        followed = np.append(record.duration_ns[1:] == 0, False)
        alone = (record.duration_ns > 0) & ~followed
        for (label, peer, is_send), chosen in _columns(record, steps).items():
            places = np.sort(steps.order[:, chosen], axis=1).astype(np.int64)
            inside = np.where(alone[places], record.duration_ns[places].astype(np.float64), np.nan)
            pair = (label, rank, peer) if is_send else (label, peer, rank)
            found[not is_send][pair] = _End(record, steps.number, places, inside)
    return found


def _columns(record: Record, steps: Steps) -> Mapping[tuple[str, int, bool], list[int]]:
    """The calls of a step that are messages with one peer in one direction."""
    found: dict[tuple[str, int, bool], list[int]] = defaultdict(list)
    first = steps.order[0] if len(steps.order) else np.empty(0, np.int32)
    messages = np.flatnonzero(record.is_message[first] & (record.peer[first] >= 0))
    for column, place in zip(messages.tolist(), first[messages].tolist(), strict=True):
        found[record.label(place), int(record.peer[place]), bool(record.is_send[place])].append(column)
    return found
