"""Where to begin in a job that moves and of which too few ranks were recorded to name one: what its steps go to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from forensics.model import StageName
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.in_calls import InCalls
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import judge, longest
from forensics.rules.reductions.text.evidence_text import ranks_text

# Of a step: no sound job spends so much in a stage beside its passes, or in its own transfers.
_MOST, _MOST_IN_CALLS = 0.5, 0.75
# Passes compute in every job, and what lies in no stage may be the wait for a device.
_NO_PASSES = (StageName.DATA, StageName.CALLBACKS, StageName.CHECKPOINT, StageName.EVAL)
_MS = 1e6


def frontier_pointers(windows: FrontierWindows, in_calls: InCalls) -> Iterator[str]:
    """Ranks of which nothing is recorded while all that are wait, or a stage beside the passes that takes most of each step."""
    for window in longest(windows):
        if not judge(window, Gates()).attribution.culprits:
            yield from _others_wait(window.matrix, in_calls)
            yield from _takes_long(window.matrix)


def _others_wait(matrix: StageMatrix, in_calls: InCalls) -> Iterator[str]:
    """Whoever comes last of those recorded waits as well: for one of the others, or for its messages."""
    least = min(in_calls.get(rank, 0.0) for rank in matrix.ranks)
    if matrix.missing and least >= _MOST_IN_CALLS:
        here = ranks_text(matrix.ranks)
        who = f"{here} is" if len(matrix.ranks) == 1 else f"{here} are each"
        spent = f"{100 * least:.0f} % {'' if len(matrix.ranks) == 1 else 'or more '}of the recorded steps"
        it = "it" if len(matrix.missing) == 1 else "one of these"
        yield (
            f"a trace or the stages of {ranks_text(matrix.missing)}: {who} in collectives for {spent}, waiting for {it} or for "
            "the network"
        )


def _takes_long(matrix: StageMatrix) -> Iterator[str]:
    """A stage that takes most of the step on every rank that is here."""
    for name in _NO_PASSES:
        columns = [index for index, column in enumerate(matrix.columns) if column.stage == name]
        spent = np.median(matrix.durations[:, columns].sum(axis=1), axis=0)
        step = np.median(matrix.walls, axis=0)
        if columns and (spent >= _MOST * step).all():
            took = f"{float(np.median(spent)) / _MS:.0f} ms of each step of {float(np.median(step)) / _MS:.0f} ms"
            yield f"{name} on {ranks_text(matrix.ranks)}: it takes {took}, and nothing shows whether other ranks wait for it"
