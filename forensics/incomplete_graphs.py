"""The passes of the step in which a pipeline stopped as the verdict shows them; import these from forensics.model."""

from __future__ import annotations

from dataclasses import dataclass

COMPLETE, HALTED, WAITS = "complete", "halted", "waits"
"""What became of a pass: it ended; it did not, on ranks of a suspect, although all before it did; it waits for others."""


@dataclass(frozen=True, slots=True)
class GraphPassRow:
    """One pass of a pipeline stage: `ranks` work on it; `state` is `complete`, `halted` or `waits`.

    `turn` is its place in a step whose passes all take equally long, from 0. `waits_for` are the passes directly before it that
    are not complete, as places in the list of all passes.
    """

    ranks: tuple[int, ...]
    stage: int
    model_chunk: int | None
    microbatch: int
    direction: str
    turn: int
    state: str
    waits_for: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IncompleteGraphRow:
    """The graph of the pipeline of a suspect: `complete` `of` all its passes ended, and at the `halted` ones it stopped.

    `passes` are all of them by stage and turn, none where they are too many to be shown.
    """

    complete: int
    of: int
    halted: tuple[GraphPassRow, ...]
    passes: tuple[GraphPassRow, ...]
