"""What an environment says of its process: which rank of which job it is, and by which launcher's variables.

torchrun sets RANK, LOCAL_RANK, GROUP_RANK and their sizes (torch.distributed.run); srun, Open MPI and the PMI launchers
set their own. The first source that gives a number wins, because an outer launcher's variables are inherited by the inner
one's ranks: under `srun torchrun`, SLURM_PROCID is the number of the node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_JOB_NAMES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
_SCHEDULER_NAMES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID")
_UNNAMED_RUNS = frozenset({"", "none"})  # torchrun's default --rdzv-id
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


@dataclass(frozen=True, slots=True)
class JobId:
    """What tells one job of a host from another; `namespace` is the network namespace of a job on a loopback address."""

    values: tuple[tuple[str, str], ...]
    namespace: str | None = None

    @property
    def name(self) -> str | None:
        """The scheduler's or launcher's id, else the rendezvous address; None when the job gives neither."""
        values = dict(self.values)
        for key in _SCHEDULER_NAMES:
            if values.get(key, "").lower() not in _UNNAMED_RUNS:
                return values[key]
        address = [values[key] for key in ("MASTER_ADDR", "MASTER_PORT") if key in values]
        return ":".join(address) or None

    def matches(self, wanted: str) -> bool:
        """Whether a user's `--job` means this job: its name, or any value that makes it up."""
        return wanted == self.name or wanted in (value for _, value in self.values)

    def describe(self) -> str:
        """The identity in words."""
        return ", ".join(f"{key}={value}" for key, value in self.values) or "a job without identity"


@dataclass(frozen=True, slots=True)
class Claim:
    """The rank a process says it is, and what it says of its surroundings."""

    rank: int
    method: str
    world_size: int | None
    local_rank: int | None
    local_size: int | None
    job: JobId


@dataclass(frozen=True, slots=True)
class _Source:
    """The variables of one launcher."""

    rank: str
    world: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...]


_SOURCES = (
    _Source("RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")),
    _Source("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",), ()),
    _Source(
        "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_LOCAL_SIZE",)
    ),
    _Source("PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE")),
)


def claims_rank(environ: Mapping[str, str]) -> bool:
    """Whether an environment gives a rank, or the number of a process on its host."""
    return claim(environ) is not None or place_on_node(environ) is not None


def claim(environ: Mapping[str, str], namespace: str | None = None) -> Claim | None:
    """The rank an environment gives, by the first source that has a number."""
    job = job_id(environ, namespace)
    for source in _SOURCES:
        rank = _number(environ, source.rank)
        if rank is not None:
            local_size = _first(environ, source.local_size)
            if source.rank == "SLURM_PROCID":
                local_size = _slurm_local_size(environ)
            local_rank = _first(environ, source.local_rank)
            return Claim(rank, source.rank, _first(environ, source.world), local_rank, local_size, job)
    return _from_group(environ, job)


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Number of a node and of a process on it, as launchers give them that count no ranks, with the size of the job."""

    node: int
    local_rank: int
    world_size: int


def place_on_node(environ: Mapping[str, str]) -> NodePlace | None:
    """The place that NODE_RANK and LOCAL_RANK give, where the environment gives no rank."""
    node, local_rank, world_size = (_number(environ, name) for name in ("NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"))
    if node is None or local_rank is None or not world_size or claim(environ) is not None:
        return None
    return NodePlace(node, local_rank, world_size)


def job_id(environ: Mapping[str, str], namespace: str | None = None) -> JobId:
    """The identity of the job an environment belongs to."""
    values = tuple((key, environ[key]) for key in _JOB_NAMES if environ.get(key))
    return JobId(values, namespace if is_loopback(environ.get("MASTER_ADDR")) else None)


def is_loopback(address: str | None) -> bool:
    """Whether a rendezvous address can only be reached from its own host."""
    return address is not None and (address in ("localhost", "::1") or address.startswith("127."))


def _from_group(environ: Mapping[str, str], job: JobId) -> Claim | None:
    local_rank, group = _number(environ, "LOCAL_RANK"), _number(environ, "GROUP_RANK")
    local_size = _number(environ, "LOCAL_WORLD_SIZE")
    if local_rank is None or group is None or not local_size:
        return None
    world = _number(environ, "WORLD_SIZE")
    return Claim(local_rank + group * local_size, "LOCAL_RANK+GROUP_RANK", world, local_rank, local_size, job)


def _slurm_local_size(environ: Mapping[str, str]) -> int | None:
    """Tasks of this node from a list such as `8(x2),4`, in node order."""
    node = _number(environ, "SLURM_NODEID")
    listed = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE") or ""
    for match in _TASKS.finditer(listed):
        repeat = int(match[2] or 1)
        if node is None or node < repeat:
            return int(match[1]) if node is not None else None
        node -= repeat
    return None


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((value for name in names if (value := _number(environ, name)) is not None), None)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "").strip()
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= 9 else None
