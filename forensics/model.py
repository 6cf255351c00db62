"""The vocabulary of a diagnosis: enums and frozen dataclasses shared by every layer.

Field names and enum values are those of the verdict schema `forensics.verdict/1` (docs/verdict.md); they are additive only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """What happened to the job as a whole."""

    HANG = "hang"
    SLOWDOWN = "slowdown"
    FAILSTOP = "failstop"
    HEALTHY = "healthy"
    INCONCLUSIVE = "inconclusive"


class StageName(StrEnum):
    """The training stage a rank was in."""

    INIT = "init"
    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    CALLBACKS = "callbacks"
    CHECKPOINT = "checkpoint"
    EVAL = "eval"
    OTHER = "other"
    UNKNOWN = "unknown"


class WaitKind(StrEnum):
    """What a thread was waiting for at its innermost frames; not a stage."""

    COLLECTIVE = "collective_wait"
    POINT_TO_POINT = "p2p_wait"
    STORE = "store_wait"
    DATA = "data_wait"
    CHILD = "child_wait"
    LOCK = "lock"
    IO = "io"
    SLEEP = "sleep"
    DEVICE = "device_sync"
    COMPILE = "compile"
    GC = "gc"
    EXITING = "exiting"
    RUNNING = "running"
    UNKNOWN = "unknown"


class Component(StrEnum):
    """Which part of the machine a stage was using."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    HOST = "host"
    UNKNOWN = "unknown"


class Cause(StrEnum):
    """Why, in the fixed words of the verdict schema."""

    DATALOADER_STALL = "dataloader_stall"
    CHECKPOINT_STALL = "checkpoint_stall"
    HOST_STALL = "host_stall"
    PROCESS_DEAD = "process_dead"
    PROCESS_STOPPED = "process_stopped"
    GIL_HELD = "gil_held"
    PYTHON_EXCEPTION = "python_exception"
    COMPUTE_HANG = "compute_hang"
    COMPUTE_SLOW = "compute_slow"
    GPU_FAULT = "gpu_fault"
    GPU_THROTTLED = "gpu_throttled"
    GPU_CONTENTION = "gpu_contention"
    CPU_CONTENTION = "cpu_contention"
    INTERMITTENT_HOST_LOAD = "intermittent_host_load"
    NETWORK_DOWN = "network_down"
    NETWORK_SLOW = "network_slow"
    NETWORK_CONGESTION = "network_congestion"
    NIC_OR_PCIE_SLOW = "nic_or_pcie_slow"
    PCIE_DEGRADED = "pcie_degraded"
    NUMA_BINDING = "numa_binding"
    MEMORY_ALIGNMENT = "memory_alignment"
    PROXY_DELAY = "proxy_delay"
    COLLECTIVE_MISMATCH = "collective_mismatch"
    SHAPE_MISMATCH = "shape_mismatch"
    DEADLOCK = "deadlock"
    P2P_UNMATCHED = "p2p_unmatched"
    EXTRA_OR_MISSING_COLLECTIVE = "extra_or_missing_collective"
    EXPERT_IMBALANCE = "expert_imbalance"
    INIT_STALL = "init_stall"
    OTHER = "other"
    UNKNOWN = "unknown"


class Anomaly(StrEnum):
    """Whether the fault stopped the rank or only slowed it."""

    FAIL_STOP = "fail_stop"
    FAIL_SLOW = "fail_slow"


class Granularity(StrEnum):
    """The smallest thing the evidence can name."""

    RANK = "rank"
    GPU = "gpu"
    NIC = "nic"
    FLOW = "flow"
    LINK = "link"
    HOST = "host"
    GROUP = "group"
    JOB = "job"


class Members(StrEnum):
    """How to read a suspect with several ranks: all of them, or one that the evidence cannot single out."""

    EACH = "each"
    ONE_OF = "one_of"


class Confidence(StrEnum):
    """Fixed words, strongest first."""

    CONFIRMED = "confirmed"
    LIKELY = "likely"
    SUSPECT = "suspect"


class Role(StrEnum):
    """What a finding says of its subject."""

    ROOT = "root"
    VICTIM = "victim"
    CONFIRMATION = "confirmation"


class Belief(StrEnum):
    """The order of belief of the design (section 4, principle 2), strongest first."""

    DIRECT_RECORD = "direct_record"
    BEHIND_AND_BUSY = "behind_and_busy"
    MISMATCH = "mismatch"
    GROUP_SYMPTOM = "group_symptom"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One statement with the place it was read: `path#locator` inside the bundle."""

    statement: str
    source: str | None = None
    supports: bool = True


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
    """When it went wrong: `time_ns` on `clock`, with an error bound in ns, and the step when known."""

    time_ns: int
    clock: str
    bound_ns: int
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule says of one subject; arbitration merges findings into suspects.

    `strength` in [0, 1] orders findings of equal belief; `fault` groups alternatives: findings that share it explain the
    same fault, None lets arbitration decide from the ranks.
    """

    rule: str
    ranks: tuple[int, ...]
    role: Role
    cause: Cause
    stage: StageRef
    belief: Belief
    confidence: Confidence
    strength: float
    evidence: tuple[Evidence, ...]
    granularity: Granularity = Granularity.RANK
    members: Members = Members.EACH
    anomaly: Anomaly = Anomaly.FAIL_STOP
    resource: Resource | None = None
    mechanism: Mechanism | None = None
    impact: Impact | None = None
    since: Since | None = None
    next_steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Suspect:
    """One entry of the ranked list; `fault` equal means alternatives for one fault, different means independent faults."""

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
class CoverageRow:
    """One kind of evidence: which subjects (ranks or hosts) have it, lack it (with the reason), or have part of it."""

    kind: str
    scope: str
    present: tuple[str, ...]
    partial: tuple[str, ...]
    absent: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """What became of one rule: fired, silent, ruled out by evidence, or not applicable, with the reason."""

    rule: str
    name: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole answer; `forensics.verdict/1` is its JSON form (`forensics.report.json`)."""

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
    would_change: tuple[str, ...] = field(default=())
    bundle_sha256: str | None = None
