"""What the record of one rank tells of its steps: where they begin, a usual one, its neighbours, and the pass of each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.model import StageName
from forensics.rules.reductions.pipeline.emptied import emptied_begins
from forensics.rules.reductions.pipeline.end_stages import PassCalls, end_directions, is_open, pass_calls
from forensics.rules.reductions.pipeline.first_step import are_parts, first_begin, opening_passes
from forensics.rules.reductions.pipeline.passes import (
    BACKWARD,
    FORWARD,
    NEITHER,
    Neighbours,
    Passes,
    comes_round,
    inside_passes,
    message_directions,
    neighbours,
    passes,
    path_directions,
    redirected,
)
from forensics.rules.reductions.stacks.call_paths import call_paths
from forensics.rules.reductions.stacks.recorded_stages import stage_of_path
from forensics.rules.reductions.steps.begins import step_begins, usual_step
from forensics.rules.reductions.steps.records import UNKNOWN, Flags, Ints, Record

_STAGES = {StageName.FORWARD: FORWARD, StageName.BACKWARD: BACKWARD}


@dataclass(frozen=True, slots=True)
class OwnSteps:
    """What the record of a rank tells: its steps, its neighbours, its passes.

    Without a `usual` step the passes are those of the step that the rank stands in, counted by its messages. `inferred`: no
    call path shows the direction of some work at an end of the pipeline, and counts of calls stand for it.
    """

    record: Record
    begins: Ints
    usual: tuple[int, int] | None
    ends: Neighbours | None
    passes: Passes | None
    inferred: bool = False

    @property
    def is_opening(self) -> bool:
        """Whether no whole step is known, and the passes of the one that the rank stands in are counted."""
        return self.usual is None and self.passes is not None


def steps_of(record: Record, paths: Mapping[int, int]) -> OwnSteps:
    """What the calls of a rank tell; `paths` are the directions of call paths."""
    begins = first_begin(record, step_begins(record))
    if not len(begins) or (record.call_order.min() > 0 and are_parts(record, begins)):
        begins = emptied_begins(record)
    usual = usual_step(record, begins)
    begins = _behind_barriers(record, begins, usual)
    is_alone = usual is None and len(begins) == 1
    ends = neighbours(record, begins, is_alone=is_alone)
    if usual is not None:
        return with_ends(OwnSteps(record, begins, usual, ends, passes(record, begins, usual, ends, paths)))
    by_path = path_directions(record, paths)
    if ends is None or not is_alone or comes_round(record, ends, by_path):
        return OwnSteps(record, begins, None, ends, None)
    step = (int(begins[0]), len(record))
    directions = message_directions(record, ends, step, by_path)
    return with_ends(OwnSteps(record, begins, None, ends, opening_passes(record, step[0], ends, directions, by_path)))


def with_ends(own: OwnSteps, before: PassCalls | None = None) -> OwnSteps:
    """The steps with the directions of work at an end of the pipeline, by its messages or the passes of the stage `before`."""
    if own.passes is None or own.ends is None or not len(own.begins):
        return own
    record, known, work = own.record, own.passes, _work(own, own.passes)
    if not is_open(own.ends, work, known.direction):
        return own
    step = own.usual or (int(own.begins[0]), len(record))
    found = end_directions(record, own.begins, step, own.ends, work, before)
    if own.usual:
        return replace(own, passes=redirected(record, own.begins, own.usual, known, found), inferred=True)
    of_work = np.where(known.direction == NEITHER, found, known.direction)
    return replace(own, passes=opening_passes(record, step[0], own.ends, known.direction, of_work), inferred=True)


def _work(own: OwnSteps, known: Passes) -> Flags:
    """The collectives of passes."""
    if own.usual:
        return inside_passes(own.record, own.usual, known.per_step)
    return np.asarray((np.arange(len(own.record)) >= own.begins[0]) & ~own.record.is_message)


def is_turn_open(own: OwnSteps) -> bool:
    """Whether it is not known of all work at an end of the pipeline to which pass of two it belongs."""
    if own.passes is None or own.usual is None or not own.inferred:
        return False
    step = slice(*own.usual)
    return bool((_work(own, own.passes)[step] & (own.passes.direction[step] == NEITHER)).any())


def with_stage_before(own: OwnSteps, before: OwnSteps | None) -> OwnSteps:
    """The steps of a last stage, with the directions of its work that those of the stage before it show."""
    if before is None or before.passes is None or not len(before.begins):
        return own
    step = before.usual or (int(before.begins[0]), len(before.record))
    found = pass_calls(before.record, step, before.passes)
    return with_ends(own, found) if found else own


def _behind_barriers(record: Record, begins: Ints, usual: tuple[int, int] | None) -> Ints:
    """The begins without barriers that the usual step does not open with: checkpoints and evaluations come before a step."""
    if usual is None or record.is_barrier[usual[0]]:
        return begins
    others = np.append(np.flatnonzero(~record.is_barrier), len(record))
    return np.asarray(others[np.searchsorted(others, begins)], np.int64)


def directions_in(connection: DuckDBPyConnection, records: Iterable[Record]) -> Mapping[int, int]:
    """The direction of each call path of some records, read from the case at once: ranks share most of them."""
    paths = call_paths(connection, {path for record in records for path in set(record.call_path.tolist()) if path != UNKNOWN})
    return {number: _STAGES.get(stage_of_path(path), NEITHER) for number, path in paths.items()}


def have_paths(*found: OwnSteps) -> bool:
    """Whether call paths tell directions: between two stages messages alone cannot tell a chunk that comes round."""
    return all(bool((own.passes.direction[~own.record.is_message] != NEITHER).any()) for own in found if own.passes)
