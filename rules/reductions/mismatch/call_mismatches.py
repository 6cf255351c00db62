"""Disputed operations that block somebody: evidence shared by the rules on skipped, extra and mismatching collectives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Members,
    Role,
    StageRef,
)
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.mismatch.disagreements import Call, Disagreement
from forensics.rules.reductions.stacks.call_paths import application_frame
from forensics.rules.reductions.text import evidence_text as statements
from forensics.rules.reductions.text.call_stages import agreed_stage


def blocking(job: Job) -> Iterator[Disagreement]:
    """Disputes in which somebody is stuck; one that everybody got past explains nothing."""
    for dispute in job.disagreements:
        if any(call.state != "done" for call in dispute.calls.values()):
            yield dispute


def size_dispute(job: Job) -> Disagreement | None:
    """The blocking dispute that is about sizes or types only, and that a majority decides."""
    return next((dispute for dispute in blocking(job) if dispute.majority and not dispute.kinds_differ), None)


def went_elsewhere(job: Job, dispute: Disagreement) -> bool:
    """Whether the odd ranks left the part of the program their peers are still in: then they made fewer calls.

    Their call was never made before, and either it is a barrier, which carries no data of a step, or the paths part above the
    functions that make the two calls. Paths that part inside one of these are a branch between two kinds of call.
    """
    if not (dispute.novel and dispute.kinds_differ and dispute.majority):
        return False
    barrier = all(dispute.calls[rank].kind == "barrier" for rank in dispute.odd)
    usual = _place(job, dispute, dispute.majority[0])
    places = [_place(job, dispute, rank) for rank in dispute.odd]
    return barrier or all(_part_above(usual, place) for place in places)


def _part_above(usual: tuple[str, ...], place: tuple[str, ...]) -> bool:
    """Whether two paths (outermost first) part above the functions that make the two calls."""
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(usual, place, strict=False)))
    return common < min(len(usual), len(place))


def _place(job: Job, dispute: Disagreement, rank: int) -> tuple[str, ...]:
    """Functions of the job on the way to the call, outermost first, from the recorder's frames or the stack of a rank in it."""
    recorded = job.paths.get(dispute.calls[rank].call_path or 0, ())
    seen = job.activity(rank)
    path = recorded or (seen.path if seen and (seen.communicating or seen.below_autograd) else ())
    return tuple(frame.function for frame in reversed(path) if frame.origin == "app")


def accused(dispute: Disagreement) -> tuple[int, ...]:
    """The odd ranks, or every voter when the vote is tied."""
    return tuple(sorted(dispute.calls)) if dispute.tied else dispute.odd


def dispute_finding(
    job: Job, dispute: Disagreement, rule: str, cause: Cause, confidence: Confidence, next_step: str
) -> Finding:
    """Build the finding of a rule on a dispute; a tie accuses nobody in particular."""
    ranks = accused(dispute)
    waits = [wait for wait in job.graph.waits if wait.communicator == dispute.communicator]
    return Finding(
        rule=rule,
        ranks=ranks,
        role=Role.ROOT,
        cause=cause,
        stage=_stage(job, dispute, ranks),
        belief=Belief.MISMATCH,
        confidence=Confidence.SUSPECT if dispute.tied else confidence,
        strength=0.3 if dispute.tied else 0.8,
        evidence=tuple(_evidence(job, dispute)),
        granularity=Granularity.RANK if len(ranks) == 1 else Granularity.GROUP,
        members=Members.ONE_OF if dispute.tied else Members.EACH,
        since=statements.since(job, waits),
        next_steps=(next_step,),
    )


def _stage(job: Job, dispute: Disagreement, ranks: tuple[int, ...]) -> StageRef:
    calls = [dispute.calls[rank].call_path for rank in ranks if rank in dispute.calls]
    call = dispute.calls[ranks[0]]
    return StageRef(
        name=agreed_stage(job, calls, ranks),
        component=Component.COMMUNICATION,
        operation=call.kind,
        communicator=dispute.communicator,
        sequence=dispute.sequence,
        substage=_line(job, call),
    )


def _evidence(job: Job, dispute: Disagreement) -> Iterator[Evidence]:
    camps: dict[str, list[int]] = {}
    for rank, call in sorted(dispute.calls.items()):
        camps.setdefault(call.signature, []).append(rank)
    for ranks in sorted(camps.values(), key=lambda camp: (-len(camp), camp)):
        call = dispute.calls[ranks[0]]
        line = _line(job, call)
        at = f" at {line}" if line else ""
        what = f"{call.kind} {call.sizes}".strip()
        yield Evidence(
            f"{statements.ranks_text(ranks)} issued {what} as number {dispute.sequence} of {dispute.communicator}{at}",
            call.source,
        )
    if dispute.tied:
        yield Evidence(
            f"the vote is tied ({' : '.join(str(len(c)) for c in camps.values())}): undecidable which side is wrong", None
        )
    if dispute.by_siblings:
        yield Evidence(
            f"the vote is even; other communicators of this size issued what {statements.ranks_text(dispute.majority)} issued",
            None,
        )
    for rank in accused(dispute)[:4]:
        yield from statements.stack(job, rank)


def _line(job: Job, call: Call) -> str | None:
    path = job.paths.get(call.call_path) if call.call_path is not None else None
    frame = application_frame(path) if path else None
    return str(frame) if frame else None
