"""Findings on mismatched operations: shared by the rules on skipped, extra and mismatching collectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Members,
    StageRef,
)
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.mismatch.disagreements import Call, Disagreement
from forensics.rules.reductions.stacks.call_paths import application_frame
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText


def accused(mismatch: Disagreement) -> tuple[int, ...]:
    """The odd ranks, or every voter when the vote is tied."""
    return tuple(sorted(mismatch.calls)) if mismatch.tied else mismatch.odd


@reduction
@dataclass(frozen=True, slots=True)
class MismatchFindings:
    """Findings on mismatched operations."""

    text: EvidenceText

    def finding(self, mismatch: Disagreement, cause: Cause, confidence: Confidence, next_step: str) -> Finding:
        """Build the finding of a rule on a mismatch; a tie accuses nobody in particular."""
        ranks = accused(mismatch)
        waits = [wait for wait in self.text.graph.waits if wait.communicator == mismatch.communicator]
        return Finding(
            ranks=ranks,
            cause=cause,
            stage=self.stage_of(mismatch, ranks),
            belief=Belief.MISMATCH,
            confidence=Confidence.SUSPECT if mismatch.tied else confidence,
            evidence=tuple(self._evidence(mismatch)),
            granularity=Granularity.of_ranks(ranks),
            members=Members.ONE_OF if mismatch.tied else Members.EACH,
            since=self.text.since(waits),
            next_steps=(next_step,),
        )

    def stage_of(self, mismatch: Disagreement, ranks: tuple[int, ...]) -> StageRef:
        """The stage of the call that some of the ranks issued."""
        calls = [mismatch.calls[rank].call_path for rank in ranks if rank in mismatch.calls]
        call = mismatch.calls[ranks[0]]
        return StageRef(
            name=self.text.stages.agreed(calls, ranks),
            component=Component.COMMUNICATION,
            operation=call.kind,
            communicator=mismatch.communicator,
            sequence=mismatch.sequence,
            substage=self._line(call),
        )

    def _evidence(self, mismatch: Disagreement) -> Iterator[Evidence]:
        camps: dict[str, list[int]] = {}
        for rank, call in sorted(mismatch.calls.items()):
            camps.setdefault(call.signature, []).append(rank)
        for ranks in sorted(camps.values(), key=lambda camp: (-len(camp), camp)):
            call = mismatch.calls[ranks[0]]
            line = self._line(call)
            at = f" at {line}" if line else ""
            what = f"{call.kind} {call.sizes}".strip()
            yield Evidence(
                f"{evidence_text.ranks_text(ranks)} issued {what} as number {mismatch.sequence} of {mismatch.communicator}{at}",
                call.source,
            )
        if mismatch.tied:
            yield Evidence(
                f"the vote is tied ({' : '.join(str(len(c)) for c in camps.values())}): undecidable which side is wrong", None
            )
        if mismatch.by_siblings:
            yield Evidence(
                "the vote is even; other communicators of this size issued what "
                f"{evidence_text.ranks_text(mismatch.majority)} issued",
                None,
            )
        for rank in accused(mismatch)[:4]:
            yield from self.text.stack(rank)

    def _line(self, call: Call) -> str | None:
        path = self.text.stages.paths.get(call.call_path) if call.call_path is not None else None
        frame = application_frame(path) if path else None
        return str(frame) if frame else None
