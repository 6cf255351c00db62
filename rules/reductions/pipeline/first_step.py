"""The step that a job stands in when no whole one is in its record: microbatches are counted by its messages.

Many jobs that never train hang in their first step, and a ring may hold less than one. What a pass consists of is not known
there, and messages still count: a pass begins with one that is received and ends with one that is sent (VenusTrace 3.3). What
a rank did behind an earlier message of the same kind tells what it would do next.
"""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.pipeline.passes import BACKWARD, FORWARD, NEITHER, Neighbours, Passes, Signs
from forensics.rules.reductions.steps.records import Flags, Ints, Record

# Messages of one microbatch in the stage that has most of them: in and out, both ways.
_MOST_PASSES = 4
# One in so many spaces between messages has a pass in it, at least: the others are between a message and the next.
_PARTS_OF_PASSES = 3


def first_begin(record: Record, begins: Ints) -> Ints:
    """The begins of steps, with that of the first step of the job where no whole one follows and its record is complete."""
    parts = len(begins) > 1 and _are_parts(record, begins)
    if record.is_marked or not len(record) or record.call_order.min() > 0 or (len(begins) > 1 and not parts):
        return begins
    messages = np.flatnonzero(record.is_message)
    later = begins[:0] if parts else begins
    if not len(messages) or (len(later) and messages[0] >= later[0]):
        return begins
    # The first stage works before its first message: back to what is not made again, as the set-up of the job.
    outside = np.flatnonzero(~np.isin(record.form[: messages[0]], record.form[messages[0] + 1 :]))
    return np.append(np.int64(outside[-1] + 1 if len(outside) else 0), later)


def _are_parts(record: Record, begins: Ints) -> bool:
    """Whether what seems to end steps is part of one: calls of a small group, with no message between or made by passes."""
    marks, messages = begins - 1, np.flatnonzero(record.is_message)
    if not len(messages) or record.members[marks].max() >= record.members.max():
        return False
    if not record.is_message[begins[0] : begins[-1]].any():
        return True
    called = np.flatnonzero(np.isin(record.communicator, record.communicator[marks]) & ~record.is_message)
    is_inside = _PARTS_OF_PASSES * len(np.unique(np.searchsorted(messages, called))) >= len(messages)
    return is_inside and len(marks) * _MOST_PASSES >= len(messages)


def opening_passes(record: Record, begin: int, ends: Neighbours, directions: Signs, by_path: Signs) -> Passes:
    """The pass of each call since `begin`: messages have `directions`, collectives that of call paths."""
    since = np.arange(len(record)) >= begin
    direction = np.where(since, np.where(record.is_message, directions, by_path), NEITHER).astype(np.int8)
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


def _is_sent_on(ends: Neighbours, way: int) -> bool:
    """Whether passes of a direction end with a message: not forward ones of the last stage, nor backward ones of the first."""
    return ends.after is not None if way == FORWARD else not ends.is_first


def _before(wanted: Flags) -> Ints:
    return np.asarray(np.cumsum(wanted) - wanted, dtype=np.int64)


def next_pass(record: Record, passes: Passes, ends: Neighbours) -> tuple[int, int, bool] | None:
    """Direction and number of the pass of the call that would follow, and whether it receives; None where nothing tells it.

    It is the call that followed when the rank did the same since an earlier message, else one of the pass that it works on.
    """
    messages = np.flatnonzero(record.is_message & (passes.direction != NEITHER))
    if not len(messages):
        return None
    at, last = _like_before(record, passes, messages), len(record) - 1
    way = int(passes.direction[last if at is None else at])
    if way == NEITHER or (at is None and record.is_send[last]):
        return None
    own = (passes.direction == way) & record.is_message
    counts = {sends: int((own & (record.is_send == sends)).sum()) for sends in (True, False)}
    if at is not None and record.is_message[at]:
        return way, counts[bool(record.is_send[at])], not record.is_send[at]
    return way, counts[True] if _is_sent_on(ends, way) else counts[False] - 1, False


def _like_before(record: Record, passes: Passes, messages: Ints) -> int | None:
    made = slice(int(messages[-1]), len(record))
    for at in reversed(messages[:-1].tolist()):
        same = slice(at, at + made.stop - made.start)
        columns = (record.form, passes.direction, record.is_send)
        if same.stop <= made.start and all((column[same] == column[made]).all() for column in columns):
            return int(same.stop)
    return None
