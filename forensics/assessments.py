"""What was observed and how well each hypothesis accounts for it; import these from forensics.model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forensics.vocabulary import Cause, Confidence, StageName


@dataclass(frozen=True, slots=True)
class Evidence:
    """One statement with the place it was read: `path#locator` inside the bundle."""

    statement: str
    source: str | None = None
    supports: bool = True


class SymptomKind(StrEnum):
    """What a sound job would not show, or not for so long."""

    WAITS = "waits"
    ABSENT = "absent"
    ENDED = "ended"
    STOPPED = "stopped"
    SILENT = "silent"
    FAILED = "failed"
    LATE = "late"


class Family(StrEnum):
    """Kinds of evidence that fail together: what one of them misses, another may still show."""

    RECORDER = "recorder"
    STACK = "stack"
    PROCESS = "process"
    LOG = "log"
    RAS = "ras"
    SHIM = "shim"
    NIC = "nic"
    TRACE = "trace"


@dataclass(frozen=True, slots=True)
class Symptom:
    """One thing observed of one or several ranks that asks for an explanation; it counts once for each of them.

    `source` is `path#locator`; None for a symptom that is an absence.
    """

    kind: SymptomKind
    ranks: tuple[int, ...]
    text: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """How well one hypothesis accounts for the symptoms, and why it accuses nobody where it was withheld.

    A hypothesis without ranks is one of the whole job; without a cause it says that the job is sound. `explains` and `leaves`
    count symptoms, one for each rank that shows it; `unexplained` says in words what is left, `contradicted_by` what was read
    against it. `families` are the independent kinds of evidence behind it. `fault` is the number of its fault in the verdict,
    None when it was `withheld`.
    """

    ranks: tuple[int, ...]
    cause: Cause | None
    stage: StageName
    confidence: Confidence | None
    rules: tuple[str, ...]
    explains: int
    leaves: int
    unexplained: tuple[str, ...] = ()
    contradicted_by: tuple[str, ...] = ()
    families: tuple[Family, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    fault: int | None = None
    withheld: str | None = None


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """What became of one rule: fired, silent, ruled out by evidence, or not applicable, with the reason."""

    rule: str
    name: str
    status: str
    reason: str
