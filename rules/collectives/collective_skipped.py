"""One rank issued one collective less, or one more, than its peers."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Cause, Confidence, Finding
from forensics.rules.interface import Need, Rule, Thresholds
from forensics.rules.reductions import statements
from forensics.rules.reductions.disputes import blocking, dispute_finding, went_elsewhere
from forensics.rules.reductions.job import Job

_WORDS = {
    "missing": "skipped a call that the others made",
    "extra": "made a call that the others did not make",
    "either": "made one call more or less than the others",
    "left": "is already at a later place of the program, so it made fewer calls than the others",
}


def _evaluate(job: Job, _: Thresholds) -> Iterator[Finding]:
    for dispute in blocking(job):
        if dispute.shift is None and not went_elsewhere(job, dispute):
            continue
        who = statements.ranks_text(dispute.odd)
        what = f"{who} {_WORDS[dispute.shift or 'left']}: look for a branch that depends on the rank or its data"
        yield dispute_finding(job, dispute, RULE.code, Cause.EXTRA_OR_MISSING_COLLECTIVE, Confidence.LIKELY, what)


def _clears(job: Job) -> str | None:
    compared = [group for group in job.groups if len(group.positions) > 1]
    if not compared or any(dispute.shift for dispute in job.disagreements):
        return None
    return f"no rank's sequence is shifted against its peers in {statements.counted(len(compared), 'communicator')}"


RULE = Rule(
    code="FX120",
    name="collective-skipped",
    seed="Flight Recorder practice",
    needs=(Need("recorder", "operations are compared number by number"),),
    thresholds=(),
    concludes="The rank whose operations line up with its peers' when moved by one.",
    confusions=("a different collective of the same kind and size: only its call path differs",),
    evaluate=_evaluate,
    clears=_clears,
)
