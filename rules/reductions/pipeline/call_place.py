"""A place in a training step: direction, microbatch, chunk of the model, stage of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from forensics.rules.reductions.pipeline.passes import BACKWARD, FORWARD

T = TypeVar("T")
WORDS = {FORWARD: "forward", BACKWARD: "backward"}
"""Directions in words."""
DIRECTIONS = {word: direction for direction, word in WORDS.items()}


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A place in a step: numbers from 0, each None where it is not known; a single microbatch is not numbered.

    `opens`: it is the first call of a step, so that a rank which does not make it may still be fetching its data. `in_pass`:
    it is of a pass, though its direction may not be known. `receives`: it would begin a pass, so that what comes before it is
    of another one.
    """

    direction: str | None = None
    microbatch: int | None = None
    chunk: int | None = None
    stage: int | None = None
    opens: bool = False
    in_pass: bool = False
    receives: bool = False


def of_either(one: CallPlace, other: CallPlace) -> CallPlace:
    """What two passes have in common that follow on each other without a message."""
    if one.direction is None or (one.direction, one.microbatch, one.chunk) == (other.direction, other.microbatch, other.chunk):
        return other
    return replace(
        other,
        direction=_of_both(one.direction, other.direction),
        microbatch=_of_both(one.microbatch, other.microbatch),
        chunk=_of_both(one.chunk, other.chunk),
    )


def _of_both(one: T | None, other: T | None) -> T | None:
    return one if one == other else None
