"""Which calls are forward work and which backward, in the first and the last stage of a pipeline, where no call path shows it.

A stage between others ends each pass with a message of its direction. The first stage receives a gradient, works back, works
forward on the next microbatch, and sends; the last stage receives, works forward and back, and sends: between two messages lie
passes of both directions. Where a schedule also has one of them alone (while the pipeline fills or drains), its calls are
counted there. A last stage that answers each microbatch at once never does: then the stage before it shows what a pass calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.pipeline.passes import BACKWARD, FORWARD, NEITHER, Neighbours, Passes, Signs
from forensics.rules.reductions.steps.records import Flags, Ints, Record

Call = tuple[str, int, float]
"""What a call of one rank is alike with one of another: kind, members, and its elements as a share of those of a message."""


@dataclass(frozen=True, slots=True)
class PassCalls:
    """The collectives of a forward pass and those of a backward one, in order."""

    forward: tuple[Call, ...]
    backward: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class _Spaces:
    """For each call the space between two messages of a step that it is in, and its place among the work there.

    `number` is -1 outside of steps and of work. `comes`: a message was received at its begin; `goes`: one is sent at its end.
    `whole`: the space is one to learn from, and a message is known to follow.
    """

    number: Ints
    place: Ints
    comes: Flags
    goes: Flags
    whole: Flags

    def size(self, chosen: Flags) -> int:
        """How many calls of work the chosen whole spaces have, 0 where there is none or they differ."""
        numbers = self.number[chosen & self.whole & (self.number >= 0)]
        sizes = np.unique(np.unique(numbers, return_counts=True)[1])
        return int(sizes[0]) if len(sizes) == 1 else 0


def pass_calls(record: Record, step: tuple[int, int], passes: Passes) -> PassCalls | None:
    """What the first passes of a step call; None where one of the directions calls nothing, or is not over yet."""
    last = int(np.flatnonzero(record.is_message).max(initial=-1))
    found: list[tuple[Call, ...]] = []
    for direction in (FORWARD, BACKWARD):
        own = _in(step, record) & (passes.direction == direction) & (passes.ordinal == 0) & ~record.is_message
        places = np.flatnonzero(own)
        found.append(_calls(record, places) if len(places) and places[-1] < last else ())
    return PassCalls(*found) if all(found) else None


def is_open(ends: Neighbours, work: Flags, direction: Signs) -> bool:
    """Whether it is a stage at one end of a pipeline, and the direction of some of its work is not known."""
    is_end = (ends.before is None) != (ends.after is None)
    return is_end and bool((work & (direction == NEITHER)).any())


def end_directions(
    record: Record, begins: Ints, step: tuple[int, int], ends: Neighbours, work: Flags, before: PassCalls | None = None
) -> Signs:
    """The direction of the work of a stage at an end, `NEITHER` where nothing shows it; `step` is the one to learn from.

    With the passes of the stage `before` a last one, the turn lies where both agree: more or fewer layers than that stage has,
    or the calls of a loss, leave some calls open.
    """
    spaces = _spaces(record, begins, step, work)
    opens, closes = (BACKWARD, FORWARD) if ends.is_first else (FORWARD, BACKWARD)
    known = spaces.number >= 0
    only_opens, only_closes = known & spaces.comes & ~spaces.goes, known & spaces.goes & ~spaces.comes
    found = np.where(only_opens, opens, np.where(only_closes, closes, NEITHER)).astype(np.int8)
    bounds = _turn(_calls_alike(record, spaces), before) if before and not ends.is_first else _own_turn(spaces)
    if bounds is None:
        return found
    mixed = known & spaces.comes & spaces.goes
    first, second = mixed & (spaces.place < bounds[0]), mixed & (spaces.place >= bounds[1])
    return np.where(first, opens, np.where(second, closes, found)).astype(np.int8)


def _own_turn(spaces: _Spaces) -> tuple[int, int] | None:
    """After how many calls work turns, by spaces that hold one direction alone; None without any, or where they differ."""
    opened, closed = spaces.size(spaces.comes & ~spaces.goes), spaces.size(spaces.goes & ~spaces.comes)
    both = spaces.size(spaces.comes & spaces.goes)
    front = opened or (both - closed if closed else 0)
    if front <= 0 or (closed and both and front + closed != both):
        return None
    return front, front


def _turn(calls: tuple[Call, ...], before: PassCalls) -> tuple[int, int] | None:
    """Up to which call all is forward, and from which on backward; None where the calls are others than those of `before`."""
    low, high = sorted((len(before.forward), len(calls) - len(before.backward)))
    if low < 0 or high > len(calls):
        return None
    tail = len(before.backward) - (len(calls) - high)
    is_like = calls[:low] == before.forward[:low] and calls[high:] == before.backward[tail:]
    return (low, high) if is_like else None


def _calls(record: Record, places: Ints) -> tuple[Call, ...]:
    """Calls of one pass in terms that another rank's calls can be compared with."""
    messages = np.flatnonzero(record.is_message)
    if not len(places) or not len(messages):
        return ()
    nearest = messages[np.minimum(np.searchsorted(messages, places), len(messages) - 1)]
    share = np.round(record.elements[places] / np.maximum(record.elements[nearest], 1), 6)
    kinds = (record.names.kinds[each] for each in record.kind[places].tolist())
    return tuple(zip(kinds, record.members[places].tolist(), share.tolist(), strict=True))


def _calls_alike(record: Record, spaces: _Spaces) -> tuple[Call, ...]:
    """The calls of whole spaces with work of both directions, where all of them have the same."""
    chosen = spaces.whole & spaces.comes & spaces.goes & (spaces.number >= 0)
    found = {_calls(record, np.flatnonzero(spaces.number == number)) for number in np.unique(spaces.number[chosen]).tolist()}
    return found.pop() if len(found) == 1 else ()


def _spaces(record: Record, begins: Ints, learnt: tuple[int, int], work: Flags) -> _Spaces:
    """The spaces between messages of one step; where the record breaks off, a message is taken to follow."""
    messages = np.flatnonzero(record.is_message)
    step = np.searchsorted(begins, np.arange(len(record)), side="right") - 1
    order = record.call_order[messages]
    before, behind = (np.searchsorted(order, record.call_order, side) for side in ("left", "right"))
    led, followed = before > 0, behind < len(messages)
    led[led] = step[messages[before[led] - 1]] == step[led]
    # Behind a message that ends a step, its last pass may go on.
    is_known = (step >= 0) & (led | ~record.is_message[begins[step] - 1] | (begins[step] == 0))
    number = np.where(work & is_known, step * (len(record) + 1) + before, -1)
    # Of messages of one group call, none comes before another.
    received, sent = (np.isin(order, order[record.is_send[messages] == sends]) for sends in (False, True))
    comes, goes = (np.zeros(len(record), np.bool_) for _ in range(2))
    comes[led] = received[before[led] - 1]
    goes[followed] = sent[behind[followed]] & (step[messages[behind[followed]]] == step[followed])
    return _Spaces(number, _places(number), comes, goes | ~followed, _in(learnt, record) & followed)


def _places(number: Ints) -> Ints:
    """The place of each call among those of its number."""
    order = np.argsort(number, kind="stable")
    ranked = number[order]
    found = np.empty(len(number), np.int64)
    found[order] = np.arange(len(number)) - np.searchsorted(ranked, ranked, side="left")
    return found


def _in(bounds: tuple[int, int], record: Record) -> Flags:
    places = np.arange(len(record))
    return np.asarray((places >= bounds[0]) & (places < bounds[1]))
