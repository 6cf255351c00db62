"""Where in a training step a call is: direction, microbatch, chunk of the model, stage of the pipeline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.call_place import WORDS, CallPlace, of_either
from forensics.rules.reductions.pipeline.chunks import seems_interleaved, shape_by_first, sharers
from forensics.rules.reductions.pipeline.deviations import first_difference
from forensics.rules.reductions.pipeline.first_step import next_pass
from forensics.rules.reductions.pipeline.own_steps import OwnSteps, directions_in, have_paths, steps_of, with_stage_before
from forensics.rules.reductions.pipeline.passes import BACKWARD, NEITHER, ends_two_passes, in_turns, message_before
from forensics.rules.reductions.steps.records import Record, Recorded

# More stages than any pipeline has: a chain that is longer goes in a circle.
_MOST_STAGES = 512


@dataclass(slots=True)
class CallPlaces:
    """Places of the calls of ranks in their records; worked out for a rank when it is asked for first."""

    connection: DuckDBPyConnection
    records: Recorded
    known: dict[int, OwnSteps | None] = field(default_factory=dict)
    stages: dict[int, int | None] = field(default_factory=dict)
    shapes: dict[int, tuple[int, int]] = field(default_factory=dict)
    completed: set[int] = field(default_factory=set)

    def steps(self, rank: int) -> OwnSteps | None:
        """What the record of a rank tells; None without one."""
        if rank not in self.known:
            self.read((rank,))
        own = self.known[rank]
        if own is not None and rank not in self.completed:
            self.completed.add(rank)
            self.known[rank] = self._with_stage_before(own)
        return self.known[rank]

    def _with_stage_before(self, own: OwnSteps) -> OwnSteps:
        """The steps of a last stage, with the directions of its work that the stage before it shows."""
        before = own.ends.before if own.ends and own.ends.after is None else None
        return own if before is None else with_stage_before(own, self.steps(before))

    def read(self, ranks: Iterable[int]) -> None:
        """Read the records of ranks that were not asked for before, all at once."""
        wanted = [rank for rank in ranks if rank not in self.known]
        self.learn(self.records.of(wanted) if wanted else {})
        self.known |= dict.fromkeys(set(wanted) - self.known.keys())

    def learn(self, found: Mapping[int, Record]) -> None:
        """Take records of ranks that were read already."""
        paths = directions_in(self.connection, (each for rank, each in found.items() if rank not in self.known))
        self.known |= {rank: steps_of(record, paths) for rank, record in found.items() if rank not in self.known}

    def pass_at(self, rank: int, at: int) -> CallPlace | None:
        """The pass that a call of a rank is of, by its place in the record; None without a record.

        A message is of the pass that sends it, though its rank may have been in another one when it did not.
        """
        return self._of_pass(own, at) if (own := self.steps(rank)) else None

    def has(self, rank: int, communicator: str) -> bool:
        """Whether the record of a rank holds calls of a communicator."""
        return (own := self.steps(rank)) is not None and bool(own.record.of(communicator).any())

    def of_call(self, rank: int, communicator: str, sequence: int) -> CallPlace | None:
        """The place of a call that a rank issued; None where its record does not hold it."""
        own = self.steps(rank)
        at = own.record.issued(communicator, sequence) if own else None
        return None if own is None or at is None else self._place(own, at)

    def is_amid(self, rank: int, communicator: str, sequence: int) -> bool:
        """Whether calls of its kind come before and after a call in its step: work between steps is at neither side of it."""
        own = self.steps(rank)
        at = own.record.issued(communicator, sequence) if own else None
        if own is None or at is None or not len(own.begins) or at < own.begins[0]:
            return False
        bounds = np.append(own.begins, len(own.record))
        step = int(np.searchsorted(own.begins, at, side="right"))
        alike = own.record.form == own.record.form[at]
        return bool(alike[bounds[step - 1] : at].any() and alike[at + 1 : bounds[step]].any())

    def of_message(self, rank: int, peers: Collection[int], way: str | None = None) -> CallPlace | None:
        """The place of the first message of a rank to some others (none: anybody) that has not ended, of a pass `way` first."""
        own = self.steps(rank)
        if own is None:
            return None
        waits = own.record.is_message & ~own.record.done & (np.isin(own.record.peer, list(peers)) | (not peers))
        found = [self._place(own, at) for at in np.flatnonzero(waits).tolist()]
        return next((place for place in found if way and place.direction == way), found[0] if found else None)

    def of_next(self, rank: int) -> CallPlace | None:
        """The place of the call that a rank would make after its last one, as it did in the steps before."""
        own = self.steps(rank)
        if own is None or own.passes is None or not len(own.begins):
            return None
        if own.usual is None:
            return self._next_of_opening(own)
        at = self._expected(own)
        if at == own.usual[0] and own.record.is_message[own.begins[-1] - 1]:
            # No call ended the step before: its last pass may go on, of which nothing is sent.
            return CallPlace(stage=self.stage_of(rank), opens=True)
        receives = at is not None and bool(own.record.is_message[at] and not own.record.is_send[at])
        return None if at is None else replace(self._place(own, at), opens=at == own.usual[0], receives=receives)

    def of_stop(self, rank: int, direction: str | None) -> CallPlace | None:
        """The place at which a rank stopped between two calls, its host being in a pass of a `direction` (None: not known).

        It is that of its next call, or of its last one where only that is of the pass; between two of one direction, or where
        no direction is known, either.
        """
        own, following = self.steps(rank), self.of_next(rank)
        if own is None or following is None or (following.direction == direction and not following.receives):
            return following
        last = len(own.record) - 1
        if following.receives and own.record.is_message[last] and not own.record.is_send[last]:
            # It works on what it received, and sends nothing of that.
            came = self._of_pass(own, last)
            return came if direction in (None, came.direction) else replace(came, direction=None, microbatch=None, chunk=None)
        before = self._of_pass(own, last) if last >= own.begins[-1] and not own.record.is_message[last] else None
        if before and following.receives and (before.direction is None or own.inferred):
            # Where no call path shows what the last call was for, the pass may still be the one that it is of.
            return replace(following, direction=None, microbatch=None, chunk=None)
        if before is not None and direction is None and following.in_pass:
            return of_either(before, following)
        if before is None or before.direction is None or before.direction != direction:
            return following
        is_either = following.direction == direction and following.microbatch != before.microbatch and not own.is_opening
        return replace(before, microbatch=None, chunk=None) if is_either else before

    def of_deviation(self, rank: int) -> CallPlace | None:
        """The place in the usual step from which on one of the last two steps of a rank went another way, or None.

        A step that is another one from its first call on tells of what came between two steps: of no pass. Where a step is one
        call, nothing but that call can have been left out of it.
        """
        own = self.steps(rank)
        if own is None or own.usual is None or not len(own.begins):
            return None
        bounds = [*own.begins[-2:].tolist(), len(own.record)]
        for begin, end in reversed(list(pairwise(bounds))):
            at = first_difference(own.record, own.usual, (begin, end))
            if at is not None:
                first, end_of_usual = own.usual
                return self._place(own, first + at) if at or end_of_usual - first == 1 else None
        return None

    def _expected(self, own: OwnSteps) -> int | None:
        """The place in the usual step of the call that follows on the last one, where the steps agree up to there.

        What comes before their first pass may differ: what ended the step before, or a checkpoint.
        """
        begin, end = own.usual or (0, 0)
        last = int(own.begins[-1])
        found = _followed(own.record, begin, end, last)
        first = _first_pass(own, last, len(own.record))
        if found is not None or first == len(own.record):
            return found
        return _followed(own.record, _first_pass(own, begin, end), end, first)

    def _place(self, own: OwnSteps, at: int) -> CallPlace:
        place = self._of_pass(own, at)
        before = message_before(own.record, own.begins, at)
        if not place.in_pass or not own.ends or not own.passes or not ends_two_passes(own.record, own.passes, at, before):
            return place
        # The last stage goes back with the microbatch that came; the first one with another than it sends on.
        number, came = (int(own.passes.ordinal[each]) for each in (at, before))
        same = own.ends.after is None and own.passes.per_step > 1 and number == came >= 0
        return replace(place, direction=None, microbatch=number if same else None, chunk=None)

    def _of_pass(self, own: OwnSteps, at: int) -> CallPlace:
        """The pass that a call is of: of a message the one that it was sent by, or is received for."""
        rank, stage = own.record.rank, self.stage_of(own.record.rank)
        if own.passes is None or (stage is None and not self._is_in_line(own)):
            return CallPlace(stage=stage)
        direction, number = int(own.passes.direction[at]), int(own.passes.ordinal[at])
        place = CallPlace(WORDS.get(direction), stage=stage, in_pass=direction != NEITHER)
        if direction == NEITHER or number < 0 or (own.passes.per_step < 2 and not own.is_opening):
            return place
        if own.is_opening:
            return self._of_opening(own, place, number)
        stages, chunks = self._shape(rank)
        if not chunks:
            return place
        if chunks == 1:
            return place if own.passes.sparse[at] else replace(place, microbatch=number)
        turns = [in_turns(each, direction, stages, chunks) for each in range(own.passes.per_step)]
        if own.passes.sparse[at]:
            # The first stage gets nothing for its first chunk, the last one passes nothing on from its last.
            absent = 0 if bool(own.record.is_send[at]) is (direction == BACKWARD) else chunks - 1
            turns = [turn for turn in turns if turn[1] != absent]
        return replace(place, microbatch=turns[number][0], chunk=turns[number][1]) if number < len(turns) else place

    def _next_of_opening(self, own: OwnSteps) -> CallPlace | None:
        """The place of the call that a rank would make next in a step of which no whole one is known."""
        found = next_pass(own.record, own.passes, own.ends) if own.passes and own.ends else None
        if found is None or (self.stage_of(own.record.rank) is None and not self._is_in_line(own)):
            return None
        way, number, receives = found
        place = CallPlace(WORDS.get(way), stage=self.stage_of(own.record.rank), in_pass=True, receives=receives)
        return self._of_opening(own, place, number)

    def _of_opening(self, own: OwnSteps, place: CallPlace, number: int) -> CallPlace:
        """A pass by the number of messages: with several chunks it is a microbatch until the first comes round."""
        chain = self._chain(self._placed(own.record.rank))
        first = self.steps(chain[-1]) if chain else None
        if first is None or first.passes is None or first.ends is None or first.ends.after is None:
            return replace(place, direction=None, microbatch=None)
        if first.usual is not None and first.passes.per_step:
            number %= first.passes.per_step  # where messages are answered one by one, they tell no step from the next
        second = self.steps(first.ends.after)
        is_last = second is not None and second.ends is not None and second.ends.after is None
        if second is not None and is_last and second.record.is_send.any() and not have_paths(first, second):
            return replace(place, direction=None)
        last = self.stage_of(first.ends.before) if first.ends.before is not None else None
        rounds = first.ends.before is not None and (last is None or number > last)
        return place if rounds else replace(place, microbatch=number)

    def stage_of(self, rank: int) -> int | None:
        """The stage of the pipeline that a rank is in, from 0; None where messages do not lead to the first one."""
        if rank not in self.stages:
            self.stages[rank] = len(chain) - 1 if (chain := self._chain(self._placed(rank))) else None
        return self.stages[rank]

    def _placed(self, rank: int) -> int:
        """The rank, or one that shares its passes, whose pipeline is known from its first stage on."""
        if self._chain(rank):
            return rank
        beside = sharers(self.connection, own) if (own := self.steps(rank)) else []
        self.read(beside)
        return next((peer for peer in beside if self._chain(peer)), rank)

    def _chain(self, rank: int) -> list[int]:
        """Ranks from this one back to the first stage of its pipeline; empty where it is not found."""
        chain = [rank]
        while len(chain) <= _MOST_STAGES:
            own = self.steps(chain[-1])
            if own is None or own.ends is None or not self._is_in_line(own):
                return []
            if own.ends.is_first:
                return chain
            if own.ends.before is None or own.ends.before in chain:
                return []
            chain.append(own.ends.before)
        return []

    def _is_in_line(self, own: OwnSteps) -> bool:
        """Whether the neighbours of a rank agree that they are its neighbours, as far as they left records.

        In a ring every member would be the first one.
        """
        if own.ends is None:
            return True
        rank, before, after = own.record.rank, own.ends.before, own.ends.after
        one = self.steps(before) if before is not None and not own.ends.is_first else None
        other = self.steps(after) if after is not None else None
        ends = (one.ends if one else None), (other.ends if other else None)
        agrees = ends[0] is None or ends[0].after == rank
        return agrees and (ends[1] is None or (ends[1].before == rank and not (own.ends.is_first and ends[1].is_first)))

    def _shape(self, rank: int) -> tuple[int, int]:
        if rank not in self.shapes:
            self.shapes[rank] = self._found_shape(rank)
        return self.shapes[rank]

    def _found_shape(self, rank: int) -> tuple[int, int]:
        """Stages of the pipeline of a rank, and chunks that each holds (0, 1: not known, or one; 0, 0: several, not known)."""
        chain = self._chain(self._placed(rank))
        first = self.steps(chain[-1]) if chain else None
        if first is None or first.ends is None:
            return 0, 0 if (own := self.steps(rank)) and own.ends and seems_interleaved(own) else 1
        last = self.stage_of(first.ends.before) if first.ends.before is not None else 1
        return shape_by_first(first, last)


def _followed(record: Record, begin: int, end: int, last: int) -> int | None:
    """The call of a usual step that follows on those made since `last`, where they are alike; None where they are not."""
    made = len(record) - last
    is_alike = 0 <= made < end - begin and not (record.form[last:] != record.form[begin : begin + made]).any()
    return begin + made if is_alike else None


def _first_pass(own: OwnSteps, begin: int, end: int) -> int:
    """The first call of a pass in a step; its end without one."""
    found = np.flatnonzero(own.passes.direction[begin:end] != NEITHER) if own.passes else np.zeros(0, np.int64)
    return begin + int(found[0]) if len(found) else end


@reduction
def places(connection: DuckDBPyConnection, records: Recorded) -> CallPlaces:
    """Places of the calls of a case."""
    return CallPlaces(connection, records)
