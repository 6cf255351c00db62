"""Is the odd rank's call another form of its peers' call, or a call that they do not make here at all?

Both look alike in the recorder: another kind or size under one number, and the odd rank is stuck in it. Payload, direction of
the data and place in the program tell: what replaces an exchange moves the same data the same way, out of the same function.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import takewhile
from math import prod

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.mismatch.disagreements import Call, Disagreement
from forensics.rules.reductions.mismatch.histories import own_code
from forensics.rules.reductions.stacks.call_paths import CallPath, CallPaths
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of

# From one rank to all, from all to one, no data; everything else goes from all to all.
_DIRECTIONS = {"broadcast": "out", "scatter": "out", "reduce": "in", "gather": "in", "barrier": "none"}


@reduction
@dataclass(frozen=True, slots=True)
class MismatchedPlaces:
    """Where the calls of a mismatch were made, from the recorder's frames or the stacks of ranks that are in them."""

    paths: CallPaths
    stacks: StacksByRank

    def of(self, mismatch: Disagreement, rank: int) -> CallPath:
        """The job's own frames on the way to a mismatched call: the recorder's, else of the stack of a rank stuck in it."""
        call = mismatch.calls[rank]
        recorded = own_code(self.paths.get(call.call_path or 0, ()))
        seen = activity_of(self.stacks, rank)
        stuck = call.state != "done" and seen is not None and (seen.communicating or seen.below_autograd)
        return recorded or (own_code(seen.path) if seen and stuck else ())

    def made_alone(self, mismatch: Disagreement) -> bool:
        """Whether the odd ranks' call, never made in this communicator before, is one that their peers do not make here."""
        if mismatch.tied or not mismatch.novel or not mismatch.odd:
            return False
        usual = mismatch.calls[mismatch.majority[0]]
        path = self.of(mismatch, mismatch.majority[0])
        return all(_alone(mismatch.calls[rank], self.of(mismatch, rank), usual, path) for rank in mismatch.odd)

    def went_elsewhere(self, mismatch: Disagreement) -> bool:
        """Whether the odd ranks left the part of the program their peers are still in: then they made fewer calls.

        Their call was never made before, and either it is a barrier, which carries no data of a step, or the paths part above
        the functions that make the two calls. Paths that part inside one of these are a branch between two kinds of call.
        """
        if not (mismatch.novel and mismatch.kinds_differ and mismatch.majority):
            return False
        barrier = all(mismatch.calls[rank].kind == "barrier" for rank in mismatch.odd)
        usual = self._call_path(mismatch, mismatch.majority[0])
        return barrier or all(_part_above(usual, self._call_path(mismatch, rank)) for rank in mismatch.odd)

    def _call_path(self, mismatch: Disagreement, rank: int) -> tuple[str, ...]:
        """Functions of the job on the way to the call, outermost first; of the recorder, or of a stack in communication."""
        recorded = self.paths.get(mismatch.calls[rank].call_path or 0, ())
        seen = activity_of(self.stacks, rank)
        path = recorded or (seen.path if seen and (seen.communicating or seen.below_autograd) else ())
        return tuple(frame.function for frame in reversed(path) if frame.origin == "app")


def _part_above(usual: tuple[str, ...], place: tuple[str, ...]) -> bool:
    """Whether two paths (outermost first) part above the functions that make the two calls."""
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(usual, place, strict=False)))
    return common < min(len(usual), len(place))


def _alone(call: Call, place: CallPath, usual: Call, path: CallPath) -> bool:
    known = bool(place and path)
    if call.sizes == usual.sizes or (known and place[0] == path[0]):
        return False
    other_function = known and _functions(place) != _functions(path)
    if call.kind == usual.kind:
        return other_function or (known and _dimensions(call) != _dimensions(usual))
    return _directions_differ(call, usual) or (_is_scalar(call) and not _is_scalar(usual))


def _functions(place: CallPath) -> list[tuple[str, str]]:
    return [entry.plain[:2] for entry in place]


def _directions_differ(call: Call, usual: Call) -> bool:
    return _DIRECTIONS.get(call.kind, "exchange") != _DIRECTIONS.get(usual.kind, "exchange")


def _shape(call: Call) -> list[int]:
    """Shape of the first tensor; empty when it was not recorded."""
    try:
        shapes = json.loads(call.sizes.rpartition(" ")[0] or call.sizes)
    except (ValueError, RecursionError):
        return []
    first = shapes[0] if isinstance(shapes, list) and shapes else []
    return [n for n in first if isinstance(n, int)] if isinstance(first, list) else []


def _dimensions(call: Call) -> tuple[int, bool]:
    return len(_shape(call)), _is_scalar(call)


def _is_scalar(call: Call) -> bool:
    shape = _shape(call)
    return bool(shape) and prod(shape) == 1
