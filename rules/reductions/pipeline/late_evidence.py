"""What is said of a rank that comes last to collectives, and what its stacks tell of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from forensics.model import Evidence, StageName
from forensics.rules.reductions.arrivals.lateness import Lateness
from forensics.rules.reductions.calls.semantics import stem_of
from forensics.rules.reductions.hardware.cpu import HostCpu, waits_for_cores
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import Sample, Stacks
from forensics.rules.reductions.text.evidence_text import ranks_text

_PASSES = (StageName.FORWARD, StageName.BACKWARD)


def late_evidence(late: Lateness) -> Iterator[Evidence]:
    """How often it came last and by how much, and what tells so."""
    most = "up to" if late.is_bound else "median"
    yield Evidence(
        f"rank {late.rank} arrived last in {late.late}/{late.calls} {late.kind} of {late.communicator} ({most} "
        f"{late.typical_ns / 1e6:.0f} ms late); peers spent {100 * late.share:.0f} % of the time waiting for it",
        late.source,
    )
    if late.within is not None:
        yield _within(late.within)
    if late.before_ns is not None:
        yield Evidence(f"earlier in the same record it was {late.before_ns / 1e6:.0f} ms late", late.source)
    if late.on_own_clocks:
        yield Evidence(
            "each member's time in the call is on its own clock; who came last is in it for the shortest", late.source
        )
    if late.on_device:
        yield Evidence("its host made these calls when those beside it did: its device came to them late", late.source)


def _within(late: Lateness) -> Evidence:
    peers = ranks_text([rank for rank in late.members if rank != late.rank])
    often = f"{late.late}/{late.calls} {late.kind} of {late.communicator} (median {late.typical_ns / 1e6:.0f} ms late)"
    return Evidence(f"it arrived last in {often} too: {peers} waited for it there, and came late elsewhere", late.source)


def late_doubts(
    roster: Roster, cpu: HostCpu, late: Lateness, beside: tuple[tuple[int, ...], frozenset[int]]
) -> Iterator[Evidence]:
    """What makes a rank a suspect at most; `beside` are others that may be meant, and those for whose messages it may wait."""
    others, unseen = beside
    yield from waits_for_cores(cpu, roster, (late.rank,))
    if late.is_bound:
        why = "start times were not recorded: the others may have had work of their own on the device for a part of it"
        yield Evidence(why, late.source, supports=False)
    if not late.on_own_clocks and stem_of(late.kind) == "all_to_all":
        why = "data may decide how much of an exchange falls on each rank: compare their sizes before a node is blamed"
        yield Evidence(why, late.source, supports=False)
    if open_ := unseen.intersection(others):
        why = f"no recorder keeps the messages of this pipeline: it may wait for those of {ranks_text(tuple(sorted(open_)))}"
        yield Evidence(why, None, supports=False)
    elif others:
        why = "they work in step or pass messages on, cost nearly the same or left no record: one of them is late"
        yield Evidence(why, None, supports=False)


def usual_stage(stacks: Mapping[int, Stacks], late: Lateness, *, in_passes: bool = False) -> tuple[StageName, float]:
    """The stage its stacks show most often outside communication, and which part of its cost that accounts for.

    Who is late `in_passes` is so in none of the others. Of its samples, the share in this stage beyond that of the others is
    what it takes of the time; of a late device, nothing.
    """
    found = None if late.on_device else stacks.get(late.rank)
    outside = [s.activity for s in found.main if not s.activity.communicating] if found else []
    seen = [activity.stage for activity in outside if not in_passes or activity.stage in _PASSES]
    stage = max(dict.fromkeys(seen), key=seen.count, default=StageName.UNKNOWN)
    # The job's own names describe, they account for nothing.
    by_words = all(activity.words_alone for activity in outside if activity.stage is stage)
    if found is None or stage is StageName.UNKNOWN or by_words:
        return stage, 0.0
    peers = [stacks[rank].main for rank in late.members if rank != late.rank and rank in stacks]
    usual = [_part(samples, stage) for samples in peers if samples]
    beyond = _part(found.main, stage) - (sum(usual) / len(usual) if usual else 0.0)
    return stage, max(0.0, min(1.0, beyond / late.share))


def _part(samples: Sequence[Sample], stage: StageName) -> float:
    """Share of samples in a stage."""
    return sum(s.activity.stage is stage and not s.activity.communicating for s in samples) / len(samples)
