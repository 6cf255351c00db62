"""All NICs of a job move far less than their lines carry, or than they did, while they have work; the job loses time to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median_high

from forensics.model import (
    Anomaly,
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Impact,
    Mechanism,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.network.captured_uses import NicUses
from forensics.rules.reductions.network.fallen_rates import FallenRates
from forensics.rules.reductions.network.line_peaks import LinePeaks, at_a_stretch
from forensics.rules.reductions.network.line_uses import OF_LINE, LineUse, LineUses, apart, by_hosts, most_of_lines
from forensics.rules.reductions.network.other_traffic import SharedNics, beyond
from forensics.rules.reductions.network.recorded_uses import RecordedUses, filled
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import counted

_TWO = 2


def _evaluate(
    roster: Roster, liveness: Liveness, uses: LineUses, nics: NicUses, peaks: LinePeaks, fallen: FallenRates,
    shared: SharedNics, recorded: RecordedUses, thresholds: Thresholds,
) -> Iterator[Finding]:  # fmt: skip
    hosts = {nic.host for nic in shared}
    if liveness.motion is Motion.STALLED or (hosts and not any(beyond(uses, hosts))):
        return  # what has an end at a line that others fill is slow by that: FX184 names it
    by_captures = bool(nics) and set(nics).isdisjoint(uses)
    least_sound = thresholds["most_of_captured" if by_captures else "most_of_line"]
    known = filled(nics, recorded)
    by_size = {use.host for use in known} - {use.host for use in nics}
    by_lines = [
        _by_size(each, len(by_size))
        for each in _of_lines(roster, known, least_sound, at_a_stretch(peaks, uses), by_hosts(recorded), thresholds)
    ]
    if liveness.may_move or by_captures:
        yield from by_lines or _of_past(roster, uses, fallen, thresholds)


def _by_size(finding: Finding, hosts: int) -> Finding:
    """A finding with how many hosts only show sizes and times of their collectives."""
    if not hosts:
        return finding
    said = f"of {counted(hosts, 'host')} only sizes and times of collectives are known, as if all NICs were in use"
    return replace(finding, evidence=(*finding.evidence, Evidence(said, supports=False)))


def _of_lines(
    roster: Roster,
    uses: Sequence[LineUse],
    least_sound: float,
    peaks: Sequence[float],
    calls: Sequence[float],
    thresholds: Thresholds,
) -> Iterator[Finding]:
    """Whether no NIC comes near its line, by what it moved over its work and, where that leaves it open, at a stretch.

    What it moved over its work bounds it from above, by far where its queue pairs take turns: then `calls` of all hosts decide.
    They also show hosts to be slow alike of which some move more for a while, where most are no faster than the slowest: a ring
    that waits for one slow host makes calls of all hosts slow, and leaves the others a faster line.
    """
    most = most_of_lines(uses)
    known = [use for use in uses if use.part is not None]
    below = bool(peaks) and max(peaks) < thresholds["most_of_peak"]
    # Who waits in a ring for a slow host moves all that it has at once: then its line is as full as those of others.
    in_turn = max(by_hosts(known), default=1.0) < thresholds["most_in_turn"]
    slow_calls = in_turn and len(calls) == len(peaks) and max(calls, default=1.0) < thresholds["most_of_peak"]
    if most is None or (most >= least_sound and not (below and (most < OF_LINE or slow_calls))):
        return
    if max(peaks, default=0.0) >= OF_LINE:
        return  # what moves at a stretch bounds the line from below: queue pairs that have work wait for something else
    # A host whose NICs were not seen may be the one that all others wait for.
    hosts = {use.host for use in known}
    # One is a bound from above and one from below: where the hosts are alike by either, they are slow alike.
    least_even = thresholds["least_even"]
    even = any(min(parts) >= least_even * max(parts) for parts in (by_hosts(known), peaks) if parts)
    even |= slow_calls and min(calls) >= least_even * max(calls) and min(peaks) >= least_even * median_high(peaks)
    far_below = below and most < OF_LINE and max(peaks) < thresholds["most_of_peak_uneven"]
    plain = far_below or most < least_sound
    if apart(known) < thresholds["least_pairs_even" if even else "least_pairs"] or not (even or plain):
        return  # a host or two may be behind all that is slow
    if {host for rank in roster.ranks if (host := roster.host_of(rank))} <= hosts:
        at_most = max(calls) if slow_calls and most >= OF_LINE else None
        yield _finding(tuple(sorted(roster.ranks)), known, most, max(peaks, default=None), at_most)


def _of_past(roster: Roster, uses: LineUses, fallen: FallenRates, thresholds: Thresholds) -> Iterator[Finding]:
    """Whether every way between hosts moves less than it did, and NICs as a whole do."""
    lost = max((use.busy for use in uses), default=0.0) * (1 - fallen.most)
    if max(fallen.most, fallen.of_nics) > thresholds["most_of_past"] or lost < thresholds["least_lost"]:
        return
    # Two hosts that become slow by themselves do not do so at the same moment: two pairs are enough.
    if fallen.apart() < thresholds["least_pairs_even"]:
        return
    hosts = {host for rank in roster.ranks if (host := roster.host_of(rank))}
    unseen = hosts - {host for way in fallen.ways for host in way}
    # What two hosts are to blame for reaches no third pair, whatever the hosts do of which nothing is seen.
    if not unseen or (2 * len(unseen) <= len(hosts) and fallen.apart() >= thresholds["least_pairs"]):
        yield _whole(tuple(sorted(roster.ranks)), lost, tuple(_evidence_of_past(fallen, len(unseen))))


def _evidence_of_past(fallen: FallenRates, unseen: int) -> Iterator[Evidence]:
    yield Evidence(
        f"{counted(fallen.pairs, 'queue pair')} move {fallen.after / 1e9:.2f} GB/s while they have work (median), "
        f"{fallen.before / 1e9:.2f} GB/s until {fallen.ago_ns / 1e9:.0f} s before the end of the logs",
        fallen.source,
    )
    ways = counted(len(fallen.ways), "way")
    yield Evidence(f"all {ways} between hosts keep {100 * fallen.least:.0f} to {100 * fallen.most:.0f} % of their earlier rate")
    yield Evidence(f"{fallen.apart()} pairs of hosts that have no host in common fell at once: no host accounts for all of it")
    if unseen:
        yield Evidence(f"ways of {counted(unseen, 'host')} are not seen", supports=False)
    yield Evidence(
        "traffic of the job itself that began then, or of others on all of its NICs, leaves the same evidence", supports=False
    )


def _finding(ranks: tuple[int, ...], uses: Sequence[LineUse], most: float, peak: float | None, calls: float | None) -> Finding:
    worst = max(uses, key=lambda use: (use.lost, use.host, use.nic))
    stretch = f"at a stretch, NICs of the fastest host move {100 * (peak or 0):.0f} % of their lines (median)"
    evidence = tuple(_evidence(worst, uses, most, calls))
    return _whole(ranks, worst.lost, evidence if peak is None else (evidence[0], Evidence(stretch), *evidence[1:]))


def _whole(ranks: tuple[int, ...], lost: float, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        ranks=ranks,
        cause=Cause.NETWORK_SLOW,
        stage=StageRef(component=Component.COMMUNICATION),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT,
        evidence=evidence,
        granularity=Granularity.JOB,
        anomaly=Anomaly.FAIL_SLOW,
        mechanism=Mechanism("slow_flow", "unknown"),
        impact=Impact(None, round(lost, 3), None, "arrival"),
        next_steps=(
            "run a point-to-point bandwidth test between two hosts, while the job runs and without it",
            "check what the switches report of congestion, and whether the PCIe slots of the NICs carry the rate of the line",
        ),
    )


def _evidence(worst: LineUse, uses: Sequence[LineUse], most: float, calls: float | None) -> Iterator[Evidence]:
    line = (worst.line_rate or 0.0) / 1e9
    yield Evidence(
        f"NIC {worst.nic} of {worst.host} moves {worst.rate / 1e9:.1f} GB/s at most while it has work, its line carries "
        f"{line:.1f} GB/s; it has work {100 * worst.busy:.0f} % of the time",
        worst.source,
    )
    hosts = len({use.host for use in uses})
    count = apart(uses)
    least = "no two hosts account" if count > _TWO else "no host accounts"
    pairs = f"{counted(count, 'pair')} of hosts that have no host in common are slow: {least} for all of it"
    seen = f"{counted(len(uses), 'NIC')} of {counted(hosts, 'host')}"
    if calls is None:
        yield Evidence(f"none of {seen} moves more than {100 * most:.0f} % of the rate of its line")
    else:
        yield Evidence(f"large collectives move {100 * calls:.0f} % of the lines of the fastest host, by their size and time")
    yield Evidence(pairs)
    if count <= _TWO:
        yield Evidence("two hosts that are slow by the same amount would leave the same evidence", None, supports=False)
    yield Evidence("slots that carry less than the line leave the same evidence", None, supports=False)


def _clears(roster: Roster, uses: NicUses) -> str | None:
    """Only where a NIC of every host moves what its line carries."""
    fast = {use.host for use in uses if use.part is not None and use.part >= OF_LINE}
    hosts = {host for rank in roster.ranks if (host := roster.host_of(rank))}
    if not hosts or not hosts <= fast:
        return None
    return f"NICs of all {counted(len(hosts), 'host')} move at least {100 * OF_LINE:.0f} % of the rate of their lines"


RULE = Rule(
    code="FX177",
    name="network-slow",
    seed="VenusTrace section 3.2.2 (rate of work requests) and Pulse section 6.2 (rate while active)",
    needs=(Need(NicUses, "work_requests", "when a NIC has work is seen in verbs, or by captures of it"),),
    thresholds=(
        Threshold("most_of_line", 0.4, "of the rate of the line: sound jobs reach six tenths, most of them nine"),
        Threshold("most_of_captured", 0.5, "the same, in the busiest epochs of captures alone: sound ones reach eight tenths"),
        Threshold("most_of_peak", 0.65, "at a stretch, in the newest epochs of the logs: sound NICs reach eight tenths"),
        Threshold("most_of_peak_uneven", 0.5, "the same, where hosts differ: lines of sound hosts are far from it"),
        Threshold("most_in_turn", 0.8, "by work requests, at each host: NICs that wait for a slow host reach nine tenths"),
        Threshold("most_of_past", 0.7, "of what links between hosts moved before, where all fell: sound ones keep nine tenths"),
        Threshold("least_lost", 0.05, "of the time, at the NIC that has most work: less delays nobody"),
        Threshold("least_even", 0.8, "of what the fastest host moves (median of its NICs): two would be slow by as much"),
        Threshold(
            "least_pairs_even",
            2,
            "where all NICs are slow alike, or fell at once: one fault is likelier than two that are equal",
        ),
        Threshold("least_pairs", 3, "pairs of hosts apart from each other: two slow hosts do not account for three"),
    ),
    concludes="The network of the whole job, where no NIC comes near the rate of its line, or of its past, while it has work.",
    evaluate=_evaluate,
    clears=_clears,
)
