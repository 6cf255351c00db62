"""That the job is sound is a hypothesis too: it needs motion, and a look at speed that found nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NewType

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import recovering
from forensics.model import Assessment, Finding, StageName, Symptom, SymptomKind
from forensics.rules.arrival_signs import awaited_ranks, late_in_turn, late_ranks
from forensics.rules.comparison import Cleared, Comparison, comparison
from forensics.rules.facts.symptoms import Findings
from forensics.rules.leads.rounds import busy_signs
from forensics.rules.reductions.arrivals.lateness import Latenesses
from forensics.rules.reductions.epochs.links import LinkRates
from forensics.rules.reductions.frontier.messages import UnrecordedMessages
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.logs.finished import Finished
from forensics.rules.reductions.network.call_paces import CallPaces
from forensics.rules.reductions.network.line_peaks import LinePeaks, at_a_stretch
from forensics.rules.reductions.network.line_uses import OF_LINE, LineUses, most_of_lines
from forensics.rules.reductions.network.slow_members import slow_members
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.progress.speed import SLOWER, Pace, Speed, of_few, of_whole_steps
from forensics.rules.reductions.progress.unusual_silence import UnusualSilence
from forensics.rules.reductions.progress.varied import LEAST_STEPS, are_even
from forensics.rules.reductions.ranks.roster import RecordedRanks, Roster
from forensics.rules.reductions.steps.long_evaluations import evaluation_signs
from forensics.rules.reductions.steps.times import StepTimes, longer_since
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.stage_signs import stage_signs
from forensics.rules.supply import Supply
from forensics.vocabulary import MOVES

_SHOWN = 6
# Of the time of all steps: what single long steps cost less than this is a trifle.
_TRIFLE = 0.01
# Of a usual step: what one step lost by as much is no trifle, however long the record is.
_OF_A_STEP = SLOWER - 1
# Of the time: a link that loses as much to its peers makes a step slower, also where it is too little to accuse.
_LOST = 0.05
# Times as long as alike calls take elsewhere: less accuses nobody.
_LONGER = 1.5
# Fewer NICs may be those of one slow host.
_LEAST_LINES = 4
# Of the time: passes that are long by as much may hold a slow rank.
_MUCH = 0.15
_PASSES = frozenset({StageName.FORWARD, StageName.BACKWARD})
# Of the time: where NICs have work for less, twice the rate would win little.
_BUSY = 0.1


_LONG_STEP = "FX175"
"""The rule that shows which rank held up a long step."""


NOT_COMPARED = "a rank that was slow before would not show: nothing here compares all ranks"
"""How the reason ends where the job may be sound, but for what only a comparison shows."""


def speed_of_sound(found: Speed, times: StepTimes, compared: Comparison, cleared: Cleared) -> Speed:
    """The speed, also by usual steps alone where a slow rank would stand out from the others, and a long step."""
    if found.was_measured:
        return found
    if compared.by is not None and _LONG_STEP in cleared and (few := of_whole_steps(times)) is not None:
        return few
    # Intervals between calls say less than whole steps do.
    is_short = not found.few and 1 < len(times.length) <= LEAST_STEPS
    return replace(found, reason=of_few("whole steps are known", times.length)) if is_short else found


UnrecordedRanks = NewType("UnrecordedRanks", frozenset[int])
"""Ranks of the job of which neither steps nor calls are known."""


def unrecorded_ranks(roster: Roster, recorded: RecordedRanks, windows: FrontierWindows) -> UnrecordedRanks:
    """Ranks whose own speed nothing tells: one that was slow before the record began delays the others without a trace."""
    return UnrecordedRanks(frozenset(roster.ranks) - recorded - {rank for window in windows for rank in window.matrix.ranks})


SlownessSigns = NewType("SlownessSigns", tuple[str, ...])
"""What speaks for a slow job although it is too little to accuse anybody."""


def slowness_signs(
    times: StepTimes,
    slowness: Slowness,
    findings: Findings,
    rates: LinkRates,
    uses: LineUses,
    peaks: LinePeaks,
    messages: UnrecordedMessages,
    windows: FrontierWindows,
    paces: CallPaces,
    late: Latenesses,
    speed: Speed,
    silence: UnusualSilence,
) -> SlownessSigns:
    """Long steps that nothing accounts for, not even what sound jobs do, links that lose time to their peers, lazy NICs.

    Messages that no recorder keeps are one as well: a rank that is slow from the first step on may only show in them. So is a
    rank that comes last to most calls, for which the others wait as long as makes a step a slow one, stages in which all ranks
    train nothing, and a silence that is unusual at its place.
    """
    long = (*stage_signs(windows), *_longer_since(times), *_long_steps(times, findings), *_long_between(times, speed))
    seen = (
        *silence,
        *long,
        *evaluation_signs(times),
        *_lossy_links(slowness),
        *_slow_calls(paces),
        *_below_their_lines(rates, uses, max(at_a_stretch(peaks, uses), default=0.0)),
    )
    step_ns = speed.step_ns or times.typical_ns
    awaited = (*late_ranks(late), *late_in_turn(late), *awaited_ranks(slowness, step_ns, times))
    return SlownessSigns((*seen, *awaited, *_unseen_messages(messages, windows), *_long_passes(findings)))


def held_against_each_other(
    connection: DuckDBPyConnection, supply: Supply, findings: tuple[Finding, ...], cleared: Cleared
) -> tuple[SlownessSigns, Comparison]:
    """What speaks for a slow job, and what held its ranks against each other; a mistake in either takes no verdict away."""
    try:
        with recovering(connection):
            signs = supply.call(slowness_signs, {Findings: Findings(findings)})
            signs = SlownessSigns((*signs, *supply.call(busy_signs)))
            return signs, supply.call(comparison, {Cleared: cleared})
    except Exception as error:  # a mistake of a reduction: the job is not called healthy, and says why
        why = f"holding its ranks against each other failed, please report it: {type(error).__name__} {error}"
        return SlownessSigns((why,)), Comparison()


def _long_steps(times: StepTimes, findings: Findings) -> Iterator[str]:
    long = times.long()
    usual = [each.impact.recoverable_ns or 0 for each in findings if each.by_design and each.impact is not None]
    lost, worst = sum(excess for _, excess in long) - sum(usual), max((excess for _, excess in long), default=0.0) - sum(usual)
    is_material = lost >= _TRIFLE * float(times.length.sum()) or worst >= _OF_A_STEP * times.typical_ns
    if long and is_material and not are_even([number for number, _ in long]):
        which = f"{len(long)} of {counted(len(times.number), 'step')}"
        yield f"{which} took longer than usual, {lost / 1e6:.0f} ms in all that nothing accounts for"


def _longer_since(times: StepTimes) -> Iterator[str]:
    """Steps that are longer since one of them, by less than a speed is called slower by: nine tenths of them would do."""
    since = longer_since(times.length)
    if since is not None:
        before, after = (float(np.median(part)) / 1e6 for part in (times.length[:since], times.length[since:]))
        steps = f"the last {len(times.length) - since} of {counted(len(times.length), 'step')}"
        yield f"{steps} take {after:.0f} ms, those before {before:.0f} ms, and nothing accounts for that"


def _long_between(times: StepTimes, speed: Speed) -> Iterator[str]:
    """A long time between calls that stand for steps: whether it was a step or a pause, only whole steps would tell."""
    few = 2 * len(times.number) < speed.steps
    if few and speed.step_ns and speed.lost_ns >= _OF_A_STEP * speed.step_ns and not speed.in_log:
        yield f"one step by {speed.by} took {speed.lost_ns / 1e6:.0f} ms longer than usual, and whole steps are not known"


def _lossy_links(slowness: Slowness) -> Iterator[str]:
    found = {**slowness.slow_so_far(), **slowness.slow_links(least_slowdown=1.0)}
    links = {link: channel.share for link, channel in found.items() if channel.share >= _LOST}
    if links:
        (sender, receiver), share = max(links.items(), key=lambda each: (each[1], each[0]))
        yield f"chunks from rank {sender} to rank {receiver} take longer than on other links, {100 * share:.0f} % of the time"


def _slow_calls(paces: CallPaces) -> Iterator[str]:
    for each in slow_members(paces, _LONGER, _LOST)[:1]:
        lost = f"{100 * each.share:.0f} % of the time"
        yield f"messages or collectives of {ranks_text(each.ranks)} take longer than those of others, {lost}"


def _below_their_lines(rates: LinkRates, uses: LineUses, peak: float) -> Iterator[str]:
    """NICs none of which comes near the rate of its line: so looks a network that is slow, or a job that asks no more.

    What a NIC moves with several peers counts together, as if all were busy at once; `peak` is what it moves at a stretch.
    """
    lines = {capture.rank: capture.line_rate for capture in rates.captures}
    moved: dict[tuple[int, bool], float] = defaultdict(float)
    for link in rates.nics:
        moved[link.shown_by, link.shown_by == link.sender] += link.rate
    parts = [rate / line for (rank, _), rate in moved.items() if (line := lines.get(rank))]
    if len(parts) >= _LEAST_LINES and max(parts) < OF_LINE:
        reach = f"reaches more than {100 * max(parts):.0f} % of the rate of its line in its busiest epochs"
        yield f"no NIC {reach}: the whole network may be slow"
    elif (most := most_of_lines(uses)) is not None and (peak or most) < OF_LINE:
        at = "at a stretch (median of the fastest host)" if peak else "while it has work"
        reach = f"moves more than {100 * (peak or most):.0f} % of the rate of its line {at}"
        yield f"no NIC {reach}: the whole network may be slow"
    elif not parts and not any(use.line_rate for use in uses) and any(use.busy >= _BUSY for use in uses):
        yield "the lines of the NICs have no known rate: a network that was always slow would look like this"


def _long_passes(findings: Findings) -> Iterator[str]:
    """Passes in which some ranks are long by much, by work or for messages."""
    stages = {each.stage.name for each in findings if each.by_design and each.impact and (each.impact.share or 0) >= _MUCH}
    for name in sorted(stages & _PASSES):
        yield f"ranks are long in {name}, by work or because they wait for messages"


def _unseen_messages(messages: UnrecordedMessages, windows: FrontierWindows) -> Iterator[str]:
    unseen = sorted(messages - {rank for window in windows for rank in window.matrix.ranks})
    if unseen:
        yield f"messages of {ranks_text(unseen)} are in no recorder: a rank for which others wait in them would not show"


def sound(
    motion: Liveness,
    speed: Speed,
    symptoms: Sequence[Symptom],
    unrecorded: UnrecordedRanks,
    signs: SlownessSigns,
    compared: Comparison,
    end: Finished,
) -> Assessment:
    """Assess it: it explains no symptom, and is withheld without motion shown, or where the speed of some rank is open.

    Steps that stay alike are those of a slow job as well, where it was slow before: ranks must have been compared.

    A job that trained to its end neither hung nor fails; how fast it was only its steps tell.
    """
    against = [symptom.text for symptom in symptoms if symptom.kind is not SymptomKind.ABSENT]
    return Assessment(
        ranks=(),
        cause=None,
        stage=StageName.UNKNOWN,
        confidence=None,
        rules=("FX190",),
        explains=0,
        leaves=sum(len(symptom.ranks) for symptom in symptoms),
        contradicted_by=tuple(against[:_SHOWN]),
        withheld=_withheld(motion, speed, unrecorded, signs, compared, end),
    )


def _withheld(
    motion: Liveness, speed: Speed, unrecorded: UnrecordedRanks, signs: SlownessSigns, compared: Comparison, end: Finished
) -> str | None:
    moves = motion.progress or motion.reason
    if end.text is not None:
        return f"it finished, slower than before: {speed.reason}" if speed.pace is Pace.SLOWER else None
    if not motion.shown:
        return f"nothing shows that the job moves: {motion.reason}"
    if speed.pace is Pace.SLOWER:
        return f"{MOVES}, slower than before: {speed.reason}"
    if not speed.was_measured:
        return f"{MOVES} ({moves}); speed not measured: {speed.reason}"
    if signs:
        return f"{MOVES} ({moves}); speed cannot be judged: {signs[0]}"
    if unrecorded:
        return f"{MOVES} ({moves}); no record of {ranks_text(unrecorded)}, whose speed is not known"
    if compared.by is None:
        return f"{MOVES} ({moves}); {speed.reason}; {NOT_COMPARED}"
    return None
