"""The step that a job stands in when no whole one is in its record: microbatches are counted by its messages.

Many jobs that never train hang in their first step, and a ring may hold less than one. What a pass consists of is not known
there, and messages still count: a pass begins with one that is received and ends with one that is sent (VenusTrace 3.3). What
a rank did behind an earlier message of the same kind shows what it would do next.
"""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.pipeline.passes import BACKWARD, FORWARD, NEITHER, Neighbours, Passes, Signs
from forensics.rules.reductions.steps.records import Flags, Ints, Record

# Messages of one microbatch in the stage that has most of them: in and out, both ways.
_MOST_PASSES = 4
# Messages with a neighbour for one microbatch.
_THERE_AND_BACK = 2
# One in so many spaces between messages has a pass in it, at least: the others are between a message and the next.
_PARTS_OF_PASSES = 3


def first_begin(record: Record, begins: Ints) -> Ints:
    """The begins of steps, with that of the first step of the job where its record is complete and shows one end at most."""
    later = _second_begin(record, begins - 1)
    parts = len(later) > 0 or (len(begins) > 1 and are_parts(record, begins))
    if record.is_marked or not len(record) or record.call_order.min() > 0 or (len(begins) > 1 and not parts):
        return begins
    messages = _behind_setup(record, np.flatnonzero(record.is_message))
    later = later if parts else begins if len(begins) else _drained(record, messages)
    if not len(messages) or (len(later) and messages[0] >= later[0]):
        return begins
    # The first stage works before its first message: back to what is not made again, as the set-up of the job.
    outside = np.flatnonzero(~np.isin(record.form[: messages[0]], record.form[messages[0] + 1 :]))
    return np.append(np.int64(outside[-1] + 1 if len(outside) else 0), later)


def _behind_setup(record: Record, messages: Ints) -> Ints:
    """The messages from the first one of a pass on: before that, stages exchange shapes and settings, like no later message.

    What opens a step is sent or received for each microbatch, as often as anything.
    """
    if not len(messages):
        return messages
    forms, form = np.unique(record.form[messages], return_inverse=True)
    last = np.zeros(len(forms), np.int64)
    last[form] = np.arange(len(messages))
    most = int(np.bincount(form)[form].argmax())
    is_apart = np.append(True, np.maximum.accumulate(last[form[:most]]) < np.arange(1, most + 1))
    return messages[int(np.flatnonzero(is_apart).max()) :]


def _drained(record: Record, messages: Ints) -> Ints:
    """Where steps begin that no call of all ranks ends: behind each message with which all that was passed on has come back.

    Empty where each message is answered before the next one, as in the last stage: that is so within a step too.
    """
    opening = messages[record.peer[messages] == record.peer[messages[0]]] if len(messages) else messages
    under_way = np.cumsum(np.where(record.is_send[opening] == record.is_send[opening[:1]], 1, -1))
    ends = np.flatnonzero(under_way == 0)
    in_turn = (np.diff(ends, prepend=-1) <= _THERE_AND_BACK).any() or under_way.min(initial=0) < 0
    return messages[:0] if in_turn else np.asarray(opening[ends] + 1, np.int64)


def are_parts(record: Record, begins: Ints) -> bool:
    """Whether what seems to end steps is part of one: in a small group, with no message between or made by passes.

    Layers reduce what their rank sends on, in whatever group. Where each has a call of a larger group, they are steps.
    """
    marks, messages = begins - 1, np.flatnonzero(record.is_message)
    if not len(messages) or _are_closed(record, begins):
        return False
    called = np.flatnonzero(np.isin(record.communicator, record.communicator[marks]) & ~record.is_message)
    recurs = _recurs(messages, called) and len(marks) * _MOST_PASSES >= len(messages)
    if record.members[marks].max() >= record.members.max():
        return recurs and _is_work_on(record, called, messages)
    return recurs or not record.is_message[begins[0] : begins[-1]].any()


def _are_closed(record: Record, begins: Ints) -> bool:
    """Whether between all begins there is a call of the largest group, which is larger than those of the marks."""
    everybody = np.flatnonzero((record.members == record.members.max()) & ~record.is_message)
    closed = np.diff(np.searchsorted(everybody, begins)) > 0
    return bool(closed.all()) and bool(record.members[begins - 1].max() < record.members.max())


def _recurs(messages: Ints, called: Ints) -> bool:
    """Whether calls are made in so many spaces between messages that passes make them."""
    return _PARTS_OF_PASSES * len(np.unique(np.searchsorted(messages, called))) >= len(messages)


def _is_work_on(record: Record, called: Ints, messages: Ints) -> bool:
    """Whether calls of the first pass have as many elements as a message, or each member its part of them: no gradients."""
    sent = np.unique(record.elements[messages])
    elements, members = record.elements[called], np.maximum(record.members[called], 1)
    alike = called[(elements > 0) & (np.isin(elements, sent) | np.isin(elements * members, sent))]
    return bool(len(alike)) and bool(np.searchsorted(messages, alike[0]) <= (not record.is_send[messages[0]]))


def _second_begin(record: Record, marks: Ints) -> Ints:
    """Where the second step of a job begins as the first one does, if all marks are of its end: empty without one.

    A step of a pipeline has messages, there and back: between the reductions of its buckets there are none.
    """
    messages = np.flatnonzero(record.is_message)
    if len(marks) < 2 or not len(messages) or _recurs(messages, marks):
        return marks[:0]
    opening = int(messages[0])
    there_and_back = record.is_send[messages[(record.peer[messages] == record.peer[opening]) & (messages < marks[0])]]
    again = messages[(record.form[messages] == record.form[opening]) & (messages > marks[-1])]
    if len(np.unique(there_and_back)) < 2 or record.is_message[marks[0] : marks[-1]].any():
        return marks[:0]
    if not len(again):
        return _behind_single(record, int(marks[-1]))
    back = min(opening, int(again[0] - marks[-1]) - 1)
    alike = (record.form[opening - back : opening] == record.form[again[0] - back : again[0]])[::-1]
    return np.asarray(again[:1] - int(np.cumprod(alike).sum()), np.int64)


def _behind_single(record: Record, mark: int) -> Ints:
    """After the last call behind a mark that everybody makes and that is like no other; empty without one."""
    forms, counts = np.unique(record.form, return_counts=True)
    is_single = np.isin(record.form, forms[counts == 1]) & ~record.is_message & (record.members == record.members.max())
    single = np.flatnonzero(is_single)
    return np.asarray(single[single > mark][-1:] + 1, np.int64)


def opening_passes(record: Record, begin: int, ends: Neighbours, directions: Signs, by_path: Signs) -> Passes:
    """The pass of each call since `begin`: messages have `directions`, collectives that of call paths."""
    since = np.arange(len(record)) >= begin
    inside = by_path if (by_path[since & ~record.is_message] != NEITHER).any() else _by_received(record, directions, ends)
    direction = np.where(since, np.where(record.is_message, directions, inside), NEITHER).astype(np.int8)
    ordinal = np.full(len(record), -1, np.int64)
    for way in (FORWARD, BACKWARD):
        own = direction == way
        received, sent = (own & record.is_message & (record.is_send == sends) for sends in (False, True))
        for messages in (received, sent):
            ordinal[messages] = np.arange(int(messages.sum()))
        counted = _before(sent) if _is_sent_on(ends, way) else _before(received) - 1
        inside = own & ~record.is_message
        ordinal[inside] = counted[inside]
    return Passes(direction, ordinal, np.zeros(len(record), np.bool_), int(ordinal.max(initial=-1)) + 1)


def _by_received(record: Record, directions: Signs, ends: Neighbours) -> Signs:
    """The direction of the message that came last before each call, in a stage between others: each pass there begins with one.

    What follows a message that was only sent is of no pass that is known. At either end of a pipeline work between two messages
    may be of both directions.
    """
    if ends.before is None or ends.after is None:
        return np.zeros(len(record), np.int8)
    places = np.arange(len(record))
    received = np.maximum.accumulate(np.where(record.is_message & ~record.is_send, places, -1))
    sent = np.maximum.accumulate(np.where(record.is_send, places, -1))
    is_open = (received >= 0) & ((sent < 0) | (record.call_order[received] >= record.call_order[sent]))
    return np.where(is_open, directions[received], NEITHER).astype(np.int8)


def _is_sent_on(ends: Neighbours, way: int) -> bool:
    """Whether passes of a direction end with a message: not forward ones of the last stage, nor backward ones of the first."""
    return ends.after is not None if way == FORWARD else not ends.is_first


def _before(wanted: Flags) -> Ints:
    return np.asarray(np.cumsum(wanted) - wanted, dtype=np.int64)


def next_pass(record: Record, passes: Passes, ends: Neighbours) -> tuple[int, int, bool] | None:
    """Direction and number of the pass of the call that would follow, and whether it receives; None where nothing tells it.

    It is the call that followed when the rank did the same since an earlier message, else one of the pass that it works on. The
    direction may be `NEITHER`: not known. So it is behind a message that came to an end of the pipeline, which works in both
    directions before it sends one; in which pass the first stage is then, nothing tells.
    """
    messages = np.flatnonzero(record.is_message & (passes.direction != NEITHER))
    if not len(messages):
        return None
    at, last = _like_before(record, passes, messages), len(record) - 1
    found = _next(record, passes, ends, messages, at)
    if at is not None and not record.is_message[at] and passes.direction[at] != NEITHER:
        return found
    # A rank that has sent nothing yet may have a stage behind it.
    is_end = ends.is_first or (ends.after is None and record.is_send.any())
    if found is None or found[2] or not is_end or not record.is_message[last] or record.is_send[last]:
        return found
    return None if ends.is_first else (NEITHER, found[1], False)


def _next(record: Record, passes: Passes, ends: Neighbours, messages: Ints, at: int | None) -> tuple[int, int, bool] | None:
    last = len(record) - 1
    way = int(passes.direction[last if at is None else at])
    if way == NEITHER:
        return _in_turn(record, messages, ends)
    if at is None and record.is_send[last]:
        return None
    own = (passes.direction == way) & record.is_message
    counts = {sends: int((own & (record.is_send == sends)).sum()) for sends in (True, False)}
    if at is not None and record.is_message[at]:
        return way, counts[bool(record.is_send[at])], not record.is_send[at]
    return way, counts[True] if _is_sent_on(ends, way) else counts[False] - 1, False


def _in_turn(record: Record, messages: Ints, ends: Neighbours) -> tuple[int, int, bool] | None:
    """The pass in a last stage that sends each microbatch back before it takes the next: of that which came, either way."""
    takes_turns = (record.is_send[messages] == (np.arange(len(messages)) % 2 == 1)).all() and len(messages) % 2 == 1
    return (NEITHER, len(messages) // 2, False) if takes_turns and ends.after is None and not ends.is_first else None


def _like_before(record: Record, passes: Passes, messages: Ints) -> int | None:
    made = slice(int(messages[-1]), len(record))
    for at in reversed(messages[:-1].tolist()):
        same = slice(at, at + made.stop - made.start)
        columns = (record.form, passes.direction, record.is_send)
        if same.stop <= made.start and all((column[same] == column[made]).all() for column in columns):
            return int(same.stop)
    return None
