"""The closed lists of words of a diagnosis; import them from forensics.model.

The values are those of the verdict schema `forensics.verdict/1` (docs/verdict.md); they are additive only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from enum import StrEnum

GUESSED = "guessed"
"""How the rank of a process or a file is known where only its place among others tells it."""


class Outcome(StrEnum):
    """What happened to the job as a whole."""

    HANG = "hang"
    SLOWDOWN = "slowdown"
    FAILSTOP = "failstop"
    HEALTHY = "healthy"
    INCONCLUSIVE = "inconclusive"


MOVES = "it moves"
"""Begins the reason of an inconclusive verdict on a job that goes on: it does not hang, and whether it is slow is not known."""


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
    FILE_LOCK = "file_lock"
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


CAUSE_OF_STAGE: Mapping[str, Cause] = {
    StageName.DATA: Cause.DATALOADER_STALL,
    StageName.CHECKPOINT: Cause.CHECKPOINT_STALL,
}
"""Stages in which a rank that is late has a cause of its own name."""


class Anomaly(StrEnum):
    """Whether the fault stopped the rank or only slowed it."""

    FAIL_STOP = "fail_stop"
    FAIL_SLOW = "fail_slow"


ONLY_IF = {Anomaly.FAIL_STOP: "if the job is stuck: ", Anomaly.FAIL_SLOW: "if the job is slow: "}
"""Stands before suspects of an inconclusive verdict: whom to look at, no accusation while nothing shows that it is so."""


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

    @classmethod
    def of_ranks(cls, ranks: Sized) -> Granularity:
        """A rank where it is one, else a group of them."""
        return cls.RANK if len(ranks) == 1 else cls.GROUP


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
