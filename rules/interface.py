"""What a rule is: a module `rules/<family>/<slug>.py` with a `RULE`, and its page `<slug>.md` beside it.

There is no list to edit: the engine finds every module of every family folder. A rule is a pure function of the reduced job;
it returns findings about roots, victims or confirmations, and leaves the ranking to arbitration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from forensics.model import Finding
from forensics.rules.reductions.job import Job


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number a rule depends on: default and the reason for it; `[rules.CODE] name = value` in a TOML overrides it."""

    name: str
    default: float
    reason: str


@dataclass(frozen=True, slots=True)
class Need:
    """A kind of evidence without which the rule cannot speak; `kind` is a key of `Job.available`."""

    kind: str
    why: str


class Maturity(StrEnum):
    """How far a rule is proven: only what a stable one says may be `confirmed`.

    A stable rule has a scenario, tests with look-alikes on which it must not fire, and an exam in which it was right;
    `tests/unit/rules/test_maturity.py` lists them.
    """

    STABLE = "stable"
    INCUBATING = "incubating"


Thresholds = Mapping[str, float]
Evaluate = Callable[[Job, Thresholds], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule's identity and contract.

    `evaluate(job, thresholds)` yields findings. When it yields none, `clears(job)` says what was checked and found in order, or
    None when the evidence would not have shown the fault, had it been there. A new rule is incubating.
    """

    code: str
    name: str
    seed: str
    needs: tuple[Need, ...]
    thresholds: tuple[Threshold, ...]
    concludes: str
    confusions: tuple[str, ...]
    evaluate: Evaluate
    clears: Callable[[Job], str | None]
    maturity: Maturity = Maturity.INCUBATING

    def missing_evidence(self, job: Job) -> str | None:
        """Say which need the job cannot meet, or None when the rule applies."""
        for need in self.needs:
            if need.kind not in job.available:
                return f"no {need.kind} in this case ({need.why})"
        return None
