"""Members of a communicator issued different operations, or the same with other sizes, under one number."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Cause, Confidence, Finding
from forensics.rules.interface import Need, Rule, Thresholds
from forensics.rules.reductions import statements
from forensics.rules.reductions.disputes import accused, blocking, dispute_finding
from forensics.rules.reductions.job import Job


def _evaluate(job: Job, _: Thresholds) -> Iterator[Finding]:
    for dispute in blocking(job):
        if dispute.shift is not None:
            continue
        cause = Cause.COLLECTIVE_MISMATCH if dispute.kinds_differ else Cause.SHAPE_MISMATCH
        step = f"compare the code that {statements.ranks_text(accused(dispute))} ran before this call with its peers'"
        yield dispute_finding(job, dispute, RULE.code, cause, Confidence.LIKELY, step)


def _clears(job: Job) -> str | None:
    compared = [group for group in job.groups if len(group.positions) > 1]
    if not compared or job.disagreements:
        return None
    where = statements.counted(len(compared), "communicator")
    return f"kinds, sizes and types agree at every number that two ranks recorded, in {where}"


RULE = Rule(
    code="FX121",
    name="collective-mismatched",
    seed="Flight Recorder practice",
    needs=(Need("recorder", "operations are compared number by number"),),
    thresholds=(),
    concludes="The rank whose operation differs from the majority's under the same number; a tie is said to be undecidable.",
    confusions=("operations that may legally have uneven sizes: only their kind is compared", "a ring that wrapped"),
    evaluate=_evaluate,
    clears=_clears,
)
