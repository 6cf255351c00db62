"""Reports of the NCCL RAS service on paper, as NCCL 2.30.7 writes them (src/ras/client_support.cc): JSON and verbose text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
TAKEN = "2026-11-20 14:37:31"


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of a communicator; `lost` is None, or why it did not answer: unresponsive, dead or nocomm."""

    rank: int
    address: str
    pid: int
    device: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    async_error: int = 0
    init_state: int = 0
    lost: str | None = None

    @property
    def process(self) -> str:
        return f"process {self.pid} on node {self.address}"


@dataclass(frozen=True, slots=True)
class Comm:
    """A communicator: its hash and all its ranks."""

    hash: int
    members: Sequence[Member]

    @property
    def present(self) -> list[Member]:
        return [member for member in self.members if member.lost is None]

    @property
    def missing(self) -> list[Member]:
        return [member for member in self.members if member.lost is not None]


def as_json(comms: Sequence[Comm], *, taken: str = TAKEN, version: str = "2.30.7", timeouts: int = 0) -> bytes:
    """The answer to `SET FORMAT json` and `VERBOSE STATUS`."""
    document = {
        "nccl_version": version,
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": taken,
        "communicators_count": len(comms),
        "communicators": [_communicator(comm) for comm in comms],
        "ras": {"collection_time_sec": 0.001, "timeouts_count": timeouts},
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def without_commas(report: bytes) -> bytes:
    """What 2.28.7 and 2.28.9 make of missing ranks: no comma in front of their status."""
    return re.sub(rb',(\n *"status": \{\n *"unresponsive")', rb"\1", report)


def _communicator(comm: Comm) -> dict[str, object]:
    return {
        "hash": f"0x{comm.hash:x}",
        "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
        "size": len(comm.members),
        "ranks_count": len(comm.present),
        "missing_ranks_count": len(comm.missing),
        "ranks": [_rank(member) for member in comm.present],
        "missing_ranks": [
            _identity(member) | {"status": {"unresponsive": member.lost != "nocomm", "considered_dead": member.lost == "dead"}}
            for member in comm.missing
        ],
    }


def _identity(member: Member) -> dict[str, object]:
    return {
        "rank": member.rank,
        "host": member.address,
        "pid": member.pid,
        "cuda_dev": member.device,
        "nvml_dev": member.device,
    }


def _rank(member: Member) -> dict[str, object]:
    flags = {
        "init_state": member.init_state,
        "async_error": member.async_error,
        "finalize_called": False,
        "destroy_flag": False,
        "abort_flag": False,
    }
    return _identity(member) | {"status": flags, "collective_counts": {kind: member.counts.get(kind, 0) for kind in KINDS}}


def as_text(comms: Sequence[Comm], *, version: str = "2.30.7") -> bytes:
    """The answer to `VERBOSE STATUS`: communicators that differ in size or finding make groups of their own."""
    order = sorted(comms, key=lambda comm: -len(comm.members))
    processes = {(m.address, m.pid): m for comm in comms for m in comm.members}
    answering = sum(member.lost != "dead" for member in processes.values())
    nodes = len({address for address, _ in processes})
    lines = [
        f"NCCL version {version} compiled with CUDA 13.0",
        "CUDA runtime version 13000, driver version 13000",
        "",
        "Job summary",
        "===========",
        "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"{nodes:7}  {len(processes) // nodes:9}  {1:11}  {answering:9}  {answering:7}",
        "",
        "Communicators... (0.00s)",
        "=============",
        "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
        *(_row(number, comm) for number, comm in enumerate(order)),
        "",
        "Errors",
        "======",
        "",
        *_lost(list(processes.values())),
        *(line for number, comm in enumerate(order) for line in _incomplete(number, comm)),
        "Warnings",
        "========",
        "",
        *(line for number, comm in enumerate(order) for line in _mismatch(number, comm)),
    ]
    return ("\n".join(lines) + "\n").encode()


def _differ(comm: Comm) -> list[str]:
    return [kind for kind in KINDS if len({member.counts.get(kind, 0) for member in comm.present}) > 1]


def _row(number: int, comm: Comm) -> str:
    words = [word for word, there in (("INCOMPLETE", comm.missing), ("MISMATCH", _differ(comm))) if there]
    nodes = len({member.address for member in comm.members})
    size, errors = len(comm.members), ",".join(words) or "OK"
    return f"{number:5}  {1:8}  {nodes:8}  {size // nodes:>8}  {size:8}  {len(comm.present):8}  {'RUNNING':>8}  {errors:>6}"


def _lost(processes: Sequence[Member]) -> Iterator[str]:
    silent = [member for member in processes if member.lost == "unresponsive"]
    dead = [member for member in processes if member.lost == "dead"]
    if silent:
        yield from ("INCOMPLETE", f"  Missing communicator data from {len(silent)} job process{'es' * (len(silent) > 1)}")
        yield from (*(_managing(member) for member in silent), "")
    if dead:
        count = "1 job process is" if len(dead) == 1 else f"{len(dead)} job processes are"
        yield from ("DEAD", f"  {count} considered dead (unreachable via the RAS network)")
        yield from (*(_managing(member) for member in dead), "")


def _managing(member: Member) -> str:
    return f"  P{member.process[1:]} managing GPU {member.device}"


def _incomplete(number: int, comm: Comm) -> Iterator[str]:
    count = len(comm.missing)
    if count:
        yield f"#{number}-0 ({comm.hash:016x}) INCOMPLETE"
        yield f"  Missing communicator data from {count} rank{'s' * (count > 1)}"
        yield from (*(_listed(member) for member in comm.missing), "")


def _listed(member: Member, words: str = "") -> str:
    return f"  Rank {member.rank}{words} -- GPU {member.device} managed by {member.process}"


def _mismatch(number: int, comm: Comm) -> Iterator[str]:
    differing = _differ(comm)
    if differing:
        yield f"#{number}-0 ({comm.hash:016x}) MISMATCH"
    for kind in differing:
        yield f"  Communicator ranks have different {kind} operation counts"
        counts = Counter(member.counts.get(kind, 0) for member in comm.present)
        for value, count in sorted(counts.items(), key=lambda item: (-item[1], -item[0])):
            yield from _camp(comm, kind, value, count)
        yield ""


def _camp(comm: Comm, kind: str, value: int, count: int) -> Iterator[str]:
    """Ranks that agree: a single one is always listed, a set only when it is less than half of the communicator."""
    camp = [member for member in comm.present if member.counts.get(kind, 0) == value]
    words = f"have launched up to operation {value}" if value else "have not launched any operations"
    if count == 1:
        yield _listed(camp[0], f" {words.replace('have', 'has')}")
        return
    yield f"  {count} ranks {words}"
    if 2 * count < len(comm.members):
        yield from map(_listed, camp)
