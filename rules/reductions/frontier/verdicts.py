"""The frontier of a case: every window's exact accounting beside our attribution of the group's lost time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from forensics.model import Since
from forensics.rules.reductions.frontier.accounting import Floats
from forensics.rules.reductions.frontier.culprits import Attribution, attribute
from forensics.rules.reductions.frontier.cut import Cut, cut
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.labels import Examined, examine
from forensics.rules.reductions.frontier.losses import Culprit
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.onsets import onset_step
from forensics.rules.reductions.frontier.waits import Waiting

_SURE_STEPS = 10  # that somebody cost time in, where nobody looked at the job meanwhile


@dataclass(frozen=True, slots=True, eq=False)
class FrontierWindow:
    """One window as it was recorded; `waits` is the waiting inside collectives, None when not known.

    `ended` is the window with what follows the last stage as one more, where the ranks meet there; then `waits` are of that.
    `since`: the step from which steps are lastingly longer, where another window of the group shows that.
    """

    matrix: StageMatrix
    waits: Waiting | None = None
    ended: StageMatrix | None = None
    since: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WindowVerdict:
    """Both readings of a window: the identity with its labels, and the attribution; `waits` are those of the window."""

    matrix: StageMatrix
    examined: Examined
    attribution: Attribution
    cut: Cut | None
    waits: Waiting | None = None


def regimes(window: FrontierWindow, gates: Gates) -> tuple[WindowVerdict, ...]:
    """A window as a whole and, where its steps became lastingly longer, the account of the steps since then with it."""
    whole = judge(window, gates)
    onset, matrix = whole.attribution.onset, whole.matrix
    if onset is None:
        return (whole,)
    late = matrix.since(onset)
    examined = examine(late, gates, _waits_in(whole.cut), _before(matrix, onset, gates))
    found = whole.cut
    if found is not None:
        rows = found.steps >= onset
        found = replace(found, work=found.work[rows], steps=found.steps[rows], lengths=found.lengths[rows])
    return whole, WindowVerdict(late, examined, whole.attribution, found)


def longest(windows: Sequence[FrontierWindow]) -> list[FrontierWindow]:
    """The windows without those whose steps are part of another one's of their group."""
    spans = [(each.matrix.group, int(each.matrix.steps[0]), int(each.matrix.steps[-1])) for each in windows]
    return [
        window
        for window, (group, first, last) in zip(windows, spans, strict=True)
        if not any(group == of and begin <= first and last <= end and (begin, end) != (first, last) for of, begin, end in spans)
    ]


def dated(windows: Sequence[FrontierWindow]) -> tuple[FrontierWindow, ...]:
    """The windows, those too short to show since when steps are longer with what longer ones of their group show of that."""
    onsets: dict[str, int] = {}
    for window in sorted(windows, key=lambda each: len(each.matrix.steps)):
        known = judge(window, Gates()).attribution.onset
        if (onset := onset_step(window.matrix) if known is None else known) is not None:
            onsets[window.matrix.group] = onset  # the longest comes last
    # A window that stays the same one is not judged again.
    stated = [(window, onsets.get(window.matrix.group)) for window in windows]
    return tuple(window if since is None else replace(window, since=since) for window, since in stated)


def _waits_in(found: Cut | None) -> str | None:
    return found.sync if found is not None and found.waiting_seen else None


def _before(matrix: StageMatrix, onset: int, gates: Gates) -> Floats | None:
    """The usual step before the change, None when too few steps were seen."""
    early = matrix.steps < onset
    return np.median(matrix.closed()[early], axis=0) if early.sum() >= gates.least_steps else None


@lru_cache(maxsize=64)
def judge(window: FrontierWindow, gates: Gates) -> WindowVerdict:
    """Account for a window, cut it where ranks meet, and say what the time was lost to."""
    matrix, whole_steps = window.matrix, window.ended or window.matrix
    found = cut(whole_steps, gates, window.waits)
    whole = None if isinstance(found, str) else found
    attribution = attribute(whole_steps, found, gates, window.since)
    reference = None if attribution.onset is None else _before(matrix, attribution.onset, gates)
    return WindowVerdict(matrix, examine(matrix, gates, _waits_in(whole), reference), attribution, whole, window.waits)


def began(judged: WindowVerdict, culprit: Culprit) -> Since | None:
    """When a loss began, where its step is known and all ranks have one clock."""
    matrix = judged.matrix
    if culprit.begins is None or not matrix.one_clock:
        return None
    row = int((matrix.steps < culprit.begins).sum())
    time_ns = matrix.epoch_ns + int(matrix.begins[row].min())
    return Since(time_ns, "realtime of the ranks' host", int(matrix.walls[row].max()), culprit.begins)


def is_plain(judged: WindowVerdict, culprit: Culprit, gates: Gates) -> bool:
    """Whether a rank cost so much of so many steps that it counts beside a standstill: nobody looked while the job moved."""
    is_much = culprit.share >= gates.share_from_start and culprit.affected >= _SURE_STEPS
    return is_much and judged.attribution.method != "assumed" and not culprit.tied
