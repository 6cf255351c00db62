"""The vocabulary of a diagnosis: enums and frozen dataclasses shared by every layer.

Field names and enum values are those of the verdict schema `forensics.verdict/1` (docs/verdict.md); they are additive only.
"""

from __future__ import annotations

from dataclasses import dataclass

from forensics.assessments import Assessment as Assessment
from forensics.assessments import Evidence as Evidence
from forensics.assessments import Family as Family
from forensics.assessments import RuleOutcome as RuleOutcome
from forensics.assessments import Symptom as Symptom
from forensics.assessments import SymptomKind as SymptomKind
from forensics.critical_paths import CriticalPathRow as CriticalPathRow
from forensics.critical_paths import PassRow as PassRow
from forensics.critical_paths import PathRank as PathRank
from forensics.incomplete_graphs import GraphPassRow as GraphPassRow
from forensics.incomplete_graphs import IncompleteGraphRow as IncompleteGraphRow
from forensics.parallel_layout import AxisRow as AxisRow
from forensics.parallel_layout import GridRow as GridRow
from forensics.parallel_layout import LayoutRow as LayoutRow
from forensics.step_accounts import AttributionRow as AttributionRow
from forensics.step_accounts import FrontierRow as FrontierRow
from forensics.step_accounts import LeaderRow as LeaderRow
from forensics.step_accounts import LossRow as LossRow
from forensics.vocabulary import Anomaly as Anomaly
from forensics.vocabulary import Belief as Belief
from forensics.vocabulary import Cause as Cause
from forensics.vocabulary import Component as Component
from forensics.vocabulary import Confidence as Confidence
from forensics.vocabulary import Granularity as Granularity
from forensics.vocabulary import Members as Members
from forensics.vocabulary import Outcome as Outcome
from forensics.vocabulary import Role as Role
from forensics.vocabulary import StageName as StageName
from forensics.vocabulary import WaitKind as WaitKind


@dataclass(frozen=True, slots=True)
class StageRef:
    """Where in a training step: `stage` of the verdict schema."""

    name: StageName = StageName.UNKNOWN
    component: Component = Component.UNKNOWN
    direction: str | None = None
    operation: str | None = None
    communicator: str | None = None
    sequence: int | None = None
    step: int | None = None
    microbatch: int | None = None
    model_chunk: int | None = None
    pipeline_stage: int | None = None
    layer: str | None = None
    kernel: str | None = None
    substage: str | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """The hardware a fault sits on, when the evidence goes below the rank."""

    gpu: str | None = None
    nic: str | None = None
    port: str | None = None
    channel: int | None = None
    queue_pair: str | None = None
    peer_ranks: tuple[int, ...] = ()
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The state inside a collective that stopped, and on which side."""

    state: str
    side: str = "unknown"


@dataclass(frozen=True, slots=True)
class Impact:
    """What the fault cost: nanoseconds recoverable, its share of the step, steps seen."""

    recoverable_ns: int | None
    share: float | None
    steps: int | None
    method: str


@dataclass(frozen=True, slots=True)
class Since:
    """When the stall began: `time_ns` on `clock`, with an error bound in ns, and the step when known."""

    time_ns: int
    clock: str
    bound_ns: int
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule says of one subject; arbitration merges findings into suspects.

    `rivals` say what else may account for the same facts at least as well: such a finding stands behind those without.
    `by_design` says why its cost may be how the job is made: then it accuses nobody. `of_past`: before the job stopped.
    The engine sets `rule`, the code of the rule that found it.
    """

    ranks: tuple[int, ...]
    cause: Cause
    stage: StageRef
    belief: Belief
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    role: Role = Role.ROOT
    granularity: Granularity = Granularity.RANK
    members: Members = Members.EACH
    anomaly: Anomaly = Anomaly.FAIL_STOP
    resource: Resource | None = None
    mechanism: Mechanism | None = None
    impact: Impact | None = None
    since: Since | None = None
    next_steps: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    by_design: str | None = None
    of_past: bool = False
    rule: str = ""


@dataclass(frozen=True, slots=True)
class RankProcess:
    """The process that is meant by a rank whose number is a guess."""

    rank: int
    pid: int


@dataclass(frozen=True, slots=True)
class Suspect:
    """One entry of the ranked list; `fault` equal means alternatives for one fault, different means independent faults.

    `processes` are those of ranks whose numbers are guessed from the order in which processes were started.
    """

    fault: int
    ranks: tuple[int, ...]
    members: Members
    hosts: tuple[str, ...]
    granularity: Granularity
    resource: Resource | None
    anomaly: Anomaly
    stage: StageRef
    cause: Cause
    mechanism: Mechanism | None
    impact: Impact | None
    since: Since | None
    confidence: Confidence
    rules: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    next_steps: tuple[str, ...]
    processes: tuple[RankProcess, ...] = ()


@dataclass(frozen=True, slots=True)
class Victims:
    """Ranks that wait, and for whom."""

    ranks: tuple[int, ...]
    waits_for: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A caveat on the verdict: what limits it and where."""

    label: str
    axis: str
    reason: str
    stage: StageName | None = None


@dataclass(frozen=True, slots=True)
class TreeLine:
    """One line of the merged stack prefix tree: ranks, the folded frames, depth, and the wait kind of its leaf."""

    depth: int
    ranks: tuple[int, ...]
    frames: tuple[str, ...]
    wait: WaitKind | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One communicator at the moment of the stall: who is where."""

    communicator: str
    members: tuple[int, ...]
    membership: str
    sequence: int | None
    operation: str | None
    sizes: str | None
    joined: tuple[int, ...]
    missing: tuple[int, ...]
    finished: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One dated event before or after the stall; time in ns on the host's realtime clock."""

    time_ns: int
    host: str | None
    text: str
    source: str | None


@dataclass(frozen=True, slots=True)
class ClockOffsetRow:
    """The realtime clock of `host` minus that of `reference`: the truth lies within `bound_ns` of `offset_ns`, both in ns."""

    host: str
    reference: str
    offset_ns: int
    bound_ns: int | None
    method: str | None


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """One kind of evidence: which subjects (ranks or hosts) have it, lack it (with the reason), or have part of it."""

    kind: str
    scope: str
    present: tuple[str, ...]
    partial: tuple[str, ...]
    absent: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDefect:
    """A public defect whose signs were seen: in each version from `since` on that is older than `fixed`, on `machine` if given.

    `certain` is set where a stated version, and machine, have it. `versions` are all that were stated; `ranks` showed it.
    """

    id: str
    product: str
    title: str
    certain: bool
    versions: tuple[str, ...]
    since: str
    fixed: str
    machine: str | None
    ranks: tuple[int, ...]
    action: str
    links: tuple[str, ...]
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole answer; `forensics.verdict/1` is its JSON form (`forensics.report.json`).

    `last_lines` are how the logs of the first suspect end, exceptions included; `leads` are what to get first where nobody is
    named, the surest first.
    """

    outcome: Outcome
    summary: str
    since: Since | None
    suspects: tuple[Suspect, ...]
    victims: tuple[Victims, ...]
    labels: tuple[Label, ...]
    world_size: int | None
    tree: tuple[TreeLine, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    coverage: tuple[CoverageRow, ...] = ()
    not_checked: tuple[str, ...] = ()
    ruled_out: tuple[RuleOutcome, ...] = ()
    warnings: tuple[Evidence, ...] = ()
    leads: tuple[str, ...] = ()
    would_change: tuple[str, ...] = ()
    bundle_sha256: str | None = None
    frontier: tuple[FrontierRow, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    assessments: tuple[Assessment, ...] = ()
    last_lines: tuple[Evidence, ...] = ()
    known_defects: tuple[KnownDefect, ...] = ()
    layout: LayoutRow | None = None
    critical_path: CriticalPathRow | None = None
    incomplete_graph: IncompleteGraphRow | None = None
    clocks: tuple[ClockOffsetRow, ...] = ()
