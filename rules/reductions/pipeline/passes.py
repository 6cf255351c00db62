"""The pass that each call of a rank belongs to: forward or backward, of which microbatch, through which chunk of the model.

Nothing but order is needed. The first message of a step is a forward one: a rank receives it from the stage before, or, in the
first stage, sends it to the next; so it is known who is before and who is after, and the direction of every message.
Collectives inside a pass have the direction of their call path, else that of the message that the pass ends with. Each pass of
a direction has the same number of them, so that their count since the step began shows the microbatch (Narayanan et al., SC
2021, section 2.2, for the order in which chunks take turns). Data-parallel and other calls that a step makes once are of no
microbatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.steps.records import Flags, Ints, Record

Signs = npt.NDArray[np.int8]
FORWARD, BACKWARD, NEITHER = 1, -1, 0
_MOST_PEERS = 2
# Of the messages of a step: that the work around so many shows nothing, and that it contradicts so many.
_MOST_UNKNOWN, _CONTRADICTED = 0.5, 0.1


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The ranks before and after a rank in its pipeline; None where there is none.

    `is_first`: its steps begin with a message that it sends. Where a rank holds several chunks of the model, the last stage is
    before the first one too.
    """

    before: int | None
    after: int | None
    is_first: bool


@dataclass(frozen=True, slots=True)
class Passes:
    """What each call of a record was for.

    `direction` has `FORWARD`, `BACKWARD` or `NEITHER` for each call, `ordinal` the number of its pass among those of this
    direction in the step, from 0 (-1: not known). Where `sparse`, not every pass has such a message, and `ordinal` counts those
    that have one. `per_step` is the number of passes of a direction in a step, 0 where it is not known.
    """

    direction: Signs
    ordinal: Ints
    sparse: Flags
    per_step: int


def neighbours(record: Record, begins: Ints, *, is_alone: bool = False) -> Neighbours | None:
    """Who is before and after a rank in its pipeline, as the first messages of its steps tell; None where they disagree.

    `is_alone`: there is no other step than the one that the rank stands in.
    """
    # Of a group call that the ring has cut, the peers are lost.
    peers = tuple(dict.fromkeys(record.peer[record.is_message & (record.peer >= 0)].tolist()))
    if not 1 <= len(peers) <= _MOST_PEERS:
        return None
    bounds = [(begin, end) for begin, end in _bounds(record, begins) if record.is_message[begin:end].any()]
    # One message in the step that a job stands in, and none in those before, is none of a pipeline.
    whole = is_alone or any(begin < begins[-1] for begin, _ in bounds)
    found = {_first(record, peers, begin, end) for begin, end in bounds} if whole else {None}
    return found.pop() if len(found) == 1 else None


def _bounds(record: Record, begins: Ints) -> zip[tuple[int, int]]:
    return zip(begins.tolist(), np.append(begins, len(record))[1:].tolist(), strict=True)


def _first(record: Record, peers: tuple[int, ...], begin: int, end: int) -> Neighbours | None:
    messages = np.flatnonzero(record.is_message[begin:end]) + begin
    if not len(messages) or (record.peer[messages] < 0).any():
        return None
    opening = messages[record.call_order[messages] == record.call_order[messages[0]]]
    sends = record.is_send[opening]
    if sends.any() and not sends.all():
        return None  # a ring: in a pipeline nobody has both at the begin of a step
    first = int(record.peer[opening[0]])
    other = next((peer for peer in peers if peer != first), None)
    return Neighbours(other, first, True) if sends.any() else Neighbours(first, other, False)


def passes(record: Record, begins: Ints, usual: tuple[int, int], ends: Neighbours | None, paths: Mapping[int, int]) -> Passes:
    """The pass of each call; `usual` is a whole step of the record, `paths` the direction of call paths where they tell it."""
    by_path = path_directions(record, paths)
    direction = message_directions(record, ends, usual, by_path) if ends else np.zeros(len(record), np.int8)
    marks = record.is_message if ends else _turns(record, by_path)
    per_step = _passes_in(record, direction, usual) if ends else _passes_by_turns(record, by_path, usual)
    inside = inside_passes(record, usual, per_step, marks)
    stated = inside if ends else ~record.is_message
    direction[stated] = by_path[stated]
    # A stage at an end of the pipeline has passes that send nothing: there only call paths tell the two directions apart.
    if ends and ends.before is not None and ends.after is not None:
        unknown = inside & (direction == NEITHER)
        direction[unknown] = _by_next_send(record, direction, usual)[unknown]
    ordinal, sparse = _ordinals(record, begins, usual, direction, inside, per_step)
    return Passes(direction, ordinal, sparse, per_step)


def redirected(record: Record, begins: Ints, usual: tuple[int, int], known: Passes, found: Signs) -> Passes:
    """The passes with the directions that were found for work of which none was known."""
    inside = inside_passes(record, usual, known.per_step)
    direction = np.where(inside & (known.direction == NEITHER), found, known.direction).astype(np.int8)
    ordinal, sparse = _ordinals(record, begins, usual, direction, inside, known.per_step)
    return Passes(direction, ordinal, sparse, known.per_step)


def _turns(record: Record, by_path: Signs) -> Flags:
    """Where forward collectives begin after backward ones: the only sign of passes where messages are not recorded."""
    stated = np.flatnonzero((by_path != NEITHER) & ~record.is_message)
    found = np.zeros(len(record), np.bool_)
    found[stated[1:][(by_path[stated][1:] == FORWARD) & (by_path[stated][:-1] == BACKWARD)]] = True
    return found


def _passes_by_turns(record: Record, by_path: Signs, usual: tuple[int, int]) -> int:
    """Passes of a direction in a step: in the steady part of 1F1B one forward pass stands between backward ones.

    The warm-up has several in a row: one has as many collectives as divide all rows (0: nothing stands alone).
    """
    stated = by_path[slice(*usual)][~record.is_message[slice(*usual)]]
    forward = stated[stated != NEITHER] == FORWARD
    edges = np.flatnonzero(np.diff(forward, prepend=False, append=False))
    rows = np.diff(edges)[::2]
    return int(forward.sum() // np.gcd.reduce(rows)) if len(rows) > 1 else 0


def path_directions(record: Record, paths: Mapping[int, int]) -> Signs:
    """The direction of each call by its call path, else by the marks of a profiler."""
    found = np.array([paths.get(path, NEITHER) for path in record.call_path.tolist()], dtype=np.int8)
    return np.where(found == NEITHER, record.stated, found).astype(np.int8)


def message_directions(record: Record, ends: Neighbours, usual: tuple[int, int], by_path: Signs) -> Signs:
    """The direction of each message, `usual` being a step to judge by: forward ones come from before or go to the next stage.

    Between two stages that hold several chunks each, messages of both directions go both ways: there the work around them
    decides, which the call paths of collectives tell: a message is sent after the work of its pass, and received before it.
    """
    direction = np.zeros(len(record), np.int8)
    for peer, incoming in ((ends.before, FORWARD), (ends.after, BACKWARD)):
        if peer is not None:
            of_peer = record.is_message & (record.peer == peer)
            direction[of_peer] = np.where(record.is_send[of_peer], -incoming, incoming)
    around = _around(record, by_path)
    sends = np.flatnonzero(record.is_send[slice(*usual)]) + usual[0]
    known = sends[around[sends] != NEITHER]
    contradicted = len(known) > _MOST_UNKNOWN * len(sends) and bool((around[known] != direction[known]).mean() > _CONTRADICTED)
    return np.where(record.is_message & (around != NEITHER), around, direction) if contradicted else direction


def comes_round(record: Record, ends: Neighbours, by_path: Signs) -> bool:
    """Whether work of both directions is sent to the only neighbour, or received from it: two stages hold several chunks."""
    if ends.before is not None and ends.after is not None:
        return False
    around = _around(record, by_path)
    expected = np.where(record.is_send == ends.is_first, FORWARD, BACKWARD)
    return bool((record.is_message & (around != NEITHER) & (around != expected)).any())


def _around(record: Record, by_path: Signs) -> Signs:
    """For each message the direction of the collective next to it: before one that is sent, after one that is received."""
    stated = (by_path != NEITHER) & ~record.is_message
    first = np.searchsorted(record.call_order, record.call_order, side="left") - 1
    found = np.zeros(len(record), np.int8)
    backwards = len(record) - np.searchsorted(record.call_order, record.call_order, side="right") - 1
    before, after = _last(stated, record.is_message, first), _last(stated[::-1], record.is_message[::-1], backwards)
    nearest = np.where(record.is_send, before, np.where(after >= 0, len(record) - 1 - after, -1))
    known = record.is_message & (nearest >= 0)
    found[known] = by_path[nearest[known]]
    return found


def _last(wanted: Flags, others: Flags, up_to: Ints) -> Ints:
    """The place of the last wanted call up to each place, where none of the others came after it; -1 where there is none."""
    places = np.arange(len(wanted))
    one, other = (np.maximum.accumulate(np.where(flags, places, -1)) for flags in (wanted, others))
    at = np.maximum(up_to, 0)
    return np.where((up_to >= 0) & (one[at] > other[at]), one[at], -1)


def _passes_in(record: Record, direction: Signs, usual: tuple[int, int]) -> int:
    """Passes of a direction in a step: the most messages of one direction and kind."""
    step = slice(*usual)
    kinds = [
        (direction[step] == turn) & (record.is_send[step] == sends) for turn in (FORWARD, BACKWARD) for sends in (True, False)
    ]
    return max(int((kind & record.is_message[step]).sum()) for kind in kinds)


def inside_passes(record: Record, usual: tuple[int, int], per_step: int, marks: Flags | None = None) -> Flags:
    """Collectives that every pass makes: their kind recurs in a step as often as passes, or a multiple of it.

    `marks` stand between passes: messages, where no other calls are given.
    """
    marks = record.is_message if marks is None else marks
    step = slice(*usual)
    if per_step < 2:
        return np.zeros(len(record), np.bool_)
    counts = np.bincount(record.form[step], minlength=int(record.form.max()) + 1)
    part = np.cumsum(marks[step])
    spread = np.array([len(np.unique(part[record.form[step] == token])) for token in range(len(counts))])
    recurs = (counts % per_step == 0) & (counts > 0) & (2 * spread >= min(per_step, len(np.unique(part))))
    return np.asarray(recurs[record.form] & ~record.is_message, dtype=np.bool_)


def _by_next_send(record: Record, direction: Signs, usual: tuple[int, int]) -> Signs:
    """The direction of the message that follows as the end of a pass; past the last one, as it was at this place of a step."""
    sends = np.flatnonzero(record.is_message & record.is_send)
    following = np.searchsorted(sends, np.arange(len(record)))
    usual_sends = sends[(sends >= usual[0]) & (sends < usual[1])]
    later = direction[usual_sends]
    found = np.zeros(len(record), np.int8)
    known = following < len(sends)
    found[known] = direction[sends[following[known]]]
    if len(later) and not known.all():
        done = int((sends >= usual[1]).sum()) % len(later)
        found[~known] = later[done]
    return found


def _ordinals(
    record: Record, begins: Ints, usual: tuple[int, int], direction: Signs, inside: Flags, per_step: int
) -> tuple[Ints, Flags]:
    ordinal, sparse = np.full(len(record), -1, np.int64), np.zeros(len(record), np.bool_)
    if per_step == 0 or not len(begins):
        return ordinal, sparse
    step = np.searchsorted(begins, np.arange(len(record)), side="right") - 1
    for turn in (FORWARD, BACKWARD):
        for members in (inside & (direction == turn), *_messages(record, direction == turn)):
            found = int(members[slice(*usual)].sum())
            count = np.cumsum(members) - members
            since = count - count[begins[np.maximum(step, 0)]]
            known = members & (step >= 0) & (found > 0)
            sparse |= known & (found < per_step)
            number = since // max(found // per_step, 1)
            # A step with more passes than the usual one has other numbers of them behind that.
            ordinal[known] = np.where(number < per_step, number, -1)[known]
    return ordinal, sparse


def _messages(record: Record, chosen: Flags) -> tuple[Flags, Flags]:
    return (chosen & record.is_message & record.is_send, chosen & record.is_message & ~record.is_send)


def ends_two_passes(record: Record, passes: Passes, at: int, before: int) -> bool:
    """Whether a message that is sent may end a pass of either direction: work of both lies behind one that came `before` it."""
    if not record.is_message[at] or not record.is_send[at] or before < 0 or record.is_send[before]:
        return False
    between = passes.direction[before + 1 : at][~record.is_message[before + 1 : at]]
    return bool(passes.direction[before] != passes.direction[at]) and not (between != NEITHER).any()


def message_before(record: Record, begins: Ints, at: int) -> int:
    """The place of the last message of an earlier call of the same step; -1 without one."""
    begin = int(begins[begins <= at].max(initial=0))
    found = np.flatnonzero(record.is_message[begin:at] & (record.call_order[begin:at] < record.call_order[at]))
    return begin + int(found[-1]) if len(found) else -1


def in_turns(number: int, direction: int, stages: int, chunks: int) -> tuple[int, int]:
    """Microbatch and chunk of a pass where chunks take turns: as many microbatches as there are stages through each chunk.

    The order of Megatron-LM's `forward_backward_pipelining_with_interleaving` (Narayanan et al., SC 2021, section 2.2).
    """
    turn, within = divmod(number, stages * chunks)
    chunk, microbatch = divmod(within, stages)
    return turn * stages + microbatch, chunk if direction == FORWARD else chunks - 1 - chunk
