"""Where to begin in a job that moves and of which the stages name nobody: what its steps go to, and who is longer there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from forensics.model import StageName
from forensics.rules.reductions.frontier.cut import Cut
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.in_calls import InCalls
from forensics.rules.reductions.frontier.long_stages import is_limited
from forensics.rules.reductions.frontier.matrix import RESIDUAL, REST, StageMatrix
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import WindowVerdict, judge, longest
from forensics.rules.reductions.pipeline.device_work import DeviceWork, compared_text
from forensics.rules.reductions.pipeline.traced_work import TracedWork
from forensics.rules.reductions.text.evidence_text import ranks_text

# Of a step: no sound job spends so much in a stage beside its passes, or in its own transfers.
_MOST, _MOST_IN_CALLS = 0.5, 0.75
# To the nearest per cent.
_ALL = 0.995
# Of its steps: who waits for so little while all others wait for so much is who they wait for.
_LITTLE, _MUCH = 0.25, 0.5
# Passes compute in every job, and what lies in no stage may be the wait for a device.
_NO_PASSES = (StageName.DATA, StageName.CALLBACKS, StageName.CHECKPOINT, StageName.EVAL)
_PASSES = (StageName.FORWARD, StageName.BACKWARD)
_UNSTAGED = (RESIDUAL, REST)
# Of the time: what half of the ranks are longer by is lost to the others twice over.
_LATER = 0.05
_FEWEST = 2
_MS = 1e6


def frontier_leads(windows: FrontierWindows, in_calls: InCalls, devices: DeviceWork, traced: TracedWork) -> Iterator[str]:
    """Ranks that are longer than their peers in what does not suffice to name them, or by design.

    Else those of which nothing is recorded while all that are wait, or a stage beside the passes that takes most of each step.
    """
    yield from _of_few_equals(devices, traced)
    gates = Gates()
    for window in longest(windows):
        judged = judge(window, gates)
        later = [] if judged.cut is None or is_limited(judged, gates) else [*_later(judged), *_now_and_then(judged.cut, gates)]
        # Where devices do the work, a host that is long in a pass may cost nobody anything.
        hosts_work = not (devices.compared or traced.compared or window.matrix.device)
        later += _on_host(window.matrix, hosts_work=hosts_work) if window.matrix.messages else []
        yield from later
        if not later and not judged.attribution.culprits:
            yield from _others_wait(window.matrix, in_calls)
            yield from _takes_long(window.matrix)


def waits_least(in_calls: InCalls, windows: FrontierWindows) -> Iterator[str]:
    """The one rank that is hardly in collectives while all others are in them most of the time, in traces without stages."""
    least, *others = sorted((share, rank) for rank, share in in_calls.items()) or [(1.0, 0)]
    if not windows and len(others) >= _FEWEST and least[0] <= _LITTLE and others[0][0] >= _MUCH:
        share, rank = least
        every_other = f"every other rank for {100 * others[0][0]:.0f} % or more"
        inside = f"it is in collectives for {100 * share:.0f} % of its steps, {every_other}"
        yield f"what takes rank {rank} long: {inside}; if the job is slow, it begins there"


def _of_few_equals(devices: DeviceWork, traced: TracedWork) -> Iterator[str]:
    """Ranks that work longer than the only other one with the same work, by less than names them."""
    by_rank = {item.rank: item for item in (*traced.of_few, *devices.of_few)}
    for item in by_rank.values():
        longer = f"{compared_text(item)} of {item.step_ns / _MS:.0f} ms"
        yield f"rank {item.rank}: {longer}; of so few with the same work nothing shows which is the unusual one"


def _on_host(matrix: StageMatrix, *, hosts_work: bool) -> Iterator[str]:
    """A stage beside the passes, where nobody waits for messages, that is longer on one rank of a pipeline stage throughout.

    So are the passes of one of three ranks or more where its host needs twice as long for them as any other: who waits for
    messages inside a pass does so in one of the two, or is as long as others that wait.
    """
    passes = (_PASSES,) if hosts_work and len(matrix.ranks) > _FEWEST else ()
    for stages in (*((name,) for name in _NO_PASSES), *passes):
        columns = [index for index, column in enumerate(matrix.columns) if column.stage in stages]
        spent = matrix.durations[:, columns].sum(axis=1)
        if len(matrix.ranks) < _FEWEST or len(spent) < _FEWEST or not columns:
            continue
        at = int(np.median(spent, axis=0).argmax())
        others = np.delete(spent, at, axis=1).max(axis=1)
        longer = spent[:, at] - others
        least = np.maximum(Gates().stage_share * matrix.walls[:, at], others if stages == _PASSES else 0.0)
        if (longer >= least).all():
            by = f"{float(np.median(longer)) / _MS:.1f} ms longer than on {ranks_text(np.delete(matrix.ranks, at).tolist())}"
            made = "; it may be made so" if stages == _PASSES else ""
            yield f"{' and '.join(stages)} on rank {matrix.ranks[at]}: {by} in each of {len(spent)} steps{made}"


def _later(judged: WindowVerdict) -> Iterator[str]:
    """Who is longer in what follows all stages, or in a stage in which the first rank has more to do in sound jobs.

    What lies in no stage says less of the same ranks than a stage does.
    """
    found = [each for each in judged.attribution.culprits if each.ranks and each.stage not in _PASSES and each.share >= _LATER]
    by_ranks = {each.ranks: each for each in sorted(found, key=lambda each: each.stage not in _UNSTAGED)}
    for culprit in by_ranks.values():
        where = f"{culprit.stage} ({culprit.substage})" if culprit.substage else culprit.stage
        longer = f"{culprit.typical_ns / _MS:.1f} ms longer than on its peers in {culprit.affected} of {culprit.steps} steps"
        why = "its device, or its host, works longer in no stage" if culprit.stage == REST else "it may be made so"
        yield f"{where} on {ranks_text(culprit.ranks)}: {longer}, {100 * culprit.share:.0f} % of the time; {why}"


def _now_and_then(found: Cut, gates: Gates) -> Iterator[str]:
    """A stage in which one rank, always the same, is much longer in too few steps to name it."""
    excess = found.excess
    usual = float(np.median(found.lengths))
    for stage in dict.fromkeys(column.stage for column in found.columns):
        mine = excess[:, [index for index, column in enumerate(found.columns) if column.stage == stage]].sum(axis=1)
        rows = np.flatnonzero(mine.max(axis=1) >= gates.stage_share * usual)
        late = set(mine[rows].argmax(axis=1).tolist())
        lost = float(mine[rows].max(axis=1).sum())
        is_few = _FEWEST <= len(rows) < gates.repeats
        if is_few and len(late) == 1 and lost >= gates.stage_share * float(found.lengths.sum()):
            steps = ", ".join(map(str, found.steps[rows].tolist()))
            longer = (
                f"{lost / len(rows) / _MS:.1f} ms longer than on its peers in steps {steps}, of {len(found.steps)} compared"
            )
            yield f"{stage} on {ranks_text([found.ranks[late.pop()]])}: {longer}; more steps would show whether it recurs"


def _others_wait(matrix: StageMatrix, in_calls: InCalls) -> Iterator[str]:
    """Whoever comes last of those recorded waits as well: for one of the others, or for its messages."""
    least = min(in_calls.get(rank, 0.0) for rank in matrix.ranks)
    if matrix.missing and least >= _MOST_IN_CALLS:
        here = ranks_text(matrix.ranks)
        who = f"{here} is" if len(matrix.ranks) == 1 else f"{here} are each"
        part = f"{100 * least:.0f} % {'' if len(matrix.ranks) == 1 else 'or more '}of" if least < _ALL else "all of"
        spent = f"{part} the recorded steps"
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
