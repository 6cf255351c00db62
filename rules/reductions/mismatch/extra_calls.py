"""Is the odd rank's call another form of its peers' call, or a call that they do not make here at all?

Both look alike in the recorder: another kind or size under one number, and the odd rank is stuck in it. Payload, direction of
the data and place in the program tell: what replaces an exchange moves the same data the same way, out of the same function.
"""

from __future__ import annotations

import json
from math import prod

from forensics.rules.reductions.job import Job
from forensics.rules.reductions.mismatch.disagreements import Call, Disagreement
from forensics.rules.reductions.mismatch.histories import own_code
from forensics.rules.reductions.stacks.call_paths import CallPath

# From one rank to all, from all to one, no data; everything else goes from all to all.
_DIRECTIONS = {"broadcast": "out", "scatter": "out", "reduce": "in", "gather": "in", "barrier": "none"}


def made_alone(job: Job, dispute: Disagreement) -> bool:
    """Whether the odd ranks' call, never made in this communicator before, is one that their peers do not make here."""
    if dispute.tied or not dispute.novel or not dispute.odd:
        return False
    usual = dispute.calls[dispute.majority[0]]
    path = call_place(job, dispute, dispute.majority[0])
    return all(_alone(dispute.calls[rank], call_place(job, dispute, rank), usual, path) for rank in dispute.odd)


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


def call_place(job: Job, dispute: Disagreement, rank: int) -> CallPath:
    """The job's own frames on the way to a disputed call: the recorder's, else those of the stack of a rank stuck in it."""
    call = dispute.calls[rank]
    recorded = own_code(job.paths.get(call.call_path or 0, ()))
    seen = job.activity(rank)
    stuck = call.state != "done" and seen is not None and (seen.communicating or seen.below_autograd)
    return recorded or (own_code(seen.path) if seen and stuck else ())
