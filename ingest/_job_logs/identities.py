"""Which rank a process, a local number or a device is, as the lines of a start say: of Ray, launchers, and of NCCL's init.

Upstream: deepspeed/launcher/launch.py (the command of each process), `RayWorkerGroup` of verl/single_controller/ray/base.py
(actors named by node and place on it).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from forensics.ingest._job_logs.host_ranks import HostRanks
from forensics.ingest._job_logs.own_ranks import OwnRanks
from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.placements import Placements
from forensics.ingest._job_logs.ray_actors import AddressedProcesses
from forensics.ingest._job_logs.slurm_tasks import SlurmTasks
from forensics.ingest._shared.config import config_rows
from forensics.ingest._shared.process_ranks import ProcessRank, process_rank_batches
from forensics.ingest._shared.stack_headings import host_before
from forensics.ingest._shared.values import integer, rank_number
from forensics.ingest.interface import Batch

WORDS = (
    "[rank ",
    "[RANK:",
    "[PID:",
    "world_rank=",
    "GLOBAL_RANK: ",
    "distributed init (rank ",
    "[rank=",
    "--node_rank",
    "--node-rank",
    "Started process ",
    "Global rank ",
    "global rank ",
    "rdzv",
    "world",
    "spawned with command",
    "num_local_procs=",
    "n_gpus_per_node",
    "CUDA_VISIBLE_DEVICES",
)
_PAIRS = (
    re.compile(r"(?:\bip=(?P<address>[\w.:]{1,45}), )?pid[= ](?P<pid>\d{1,9})\) world_rank=(?P<rank>\d{1,7})"),
    re.compile(r"GLOBAL_RANK: (?P<rank>\d{1,7}).{0,40}\(pid (?P<pid>\d{1,9})\)"),
    re.compile(r"pid=(?P<pid>\d{1,9})(?:, ip=(?P<address>[\w.:]{1,45}))?\).{0,200}\[rank=(?P<rank>\d{1,7}), world_size="),
    re.compile(
        r"pid=(?P<pid>\d{1,9})(?:, ip=(?P<address>[\w.:]+))?\).{0,200}\brank[ =:]{1,2}(?P<rank>\d{1,7})(?:,| /| of| in) ?"
        r"(?:the )?world(?:[ _]size)?[ =:]{1,2}(?:of )?(?P<size>\d{1,7})",
        re.IGNORECASE,
    ),
    re.compile(
        r"pid=(?P<pid>\d{1,9})(?:, ip=(?P<address>[\w.:]+))?\).{0,200}"
        r"\b(?:distributed init \(rank |GLOBAL_RANK: )(?P<rank>\d{1,7})\b"
    ),
    re.compile(r"\brank[= ](?P<rank>\d{1,7})[, ]{1,2}(?:world(?:_size)?|local_rank)[= ]\d.{0,80}?\bpid[= ](?P<pid>\d{1,9})\b"),
    re.compile(r"^\[(?i:rank)[ =:](?P<rank>\d{1,7})\] .{0,40}?\bpid[ =:]{1,2}(?P<pid>\d{1,9})\b"),
    re.compile(r"\[PID:(?P<pid>\d{1,9})\] \[RANK:(?P<rank>\d{1,7})\]"),
    re.compile(r"[Gg]lobal rank (?P<rank>\d{1,7}) \(PID (?P<pid>\d{1,9})\)"),
    # The tests of torch that start a process for each rank.
    re.compile(r"\bStarted process (?P<rank>\d{1,7}) with pid (?P<pid>\d{1,9})\b"),
)
_SUBJECT = re.compile(r"\b(pid|local_rank|node|place)=(\d{1,9})\b")
_SPAWNED = re.compile(r"process (?P<pid>\d{1,9}) spawned with command: \[.{0,400}?'--local_rank=(?P<local>\d{1,5})'")
_STARTED = re.compile(r"\bnnodes=\d{1,6}, num_local_procs=(?P<each>\d{1,4}), node_rank=(?P<node>\d{1,6})\b")
_PLACES = re.compile(r"\bn_gpus_per_node[\"']?(?:=| ?: ?)(\d{1,4})\b")
_VISIBLE = re.compile(r"CUDA_VISIBLE_DEVICES[\"']?(?:=| ?: ?)[\"']?(?P<list>[\w,-]{1,400})")
_NODE = re.compile(r"--node[_-]rank[= ](\d{1,6})\b")
_PER_NODE = re.compile(r"--nproc[_-]per[_-]node[= ](\d{1,4})\b")


class Identities:
    """Collects them over a file."""

    def __init__(self) -> None:
        self._by_pid: dict[int, set[int]] = defaultdict(set)
        self.processes = AddressedProcesses()
        self._of_nccl: dict[int, set[int]] = defaultdict(set)
        self._placements = Placements()
        self._own = OwnRanks()
        self._tasks = SlurmTasks()
        self._users: dict[tuple[str, int], int] = {}
        self._locals: dict[int, set[int]] = defaultdict(set)
        self._fronts: set[str] = set()
        self._nodes: set[tuple[int, int]] = set()
        self._places: set[int] = set()
        self._addresses: dict[str, set[int]] = defaultdict(set)
        self._sizes: set[int] = set()
        self._hosts = HostRanks()
        self._is_elastic = False
        self._is_renumbered = False

    @property
    def is_of_one_node(self) -> bool:
        """Whether its start shows the ranks of one node only."""
        return self._placements.is_of_one_node

    def feed(self, line: str, label: str | None = None) -> None:
        """Take one line; `label` shows the process that wrote it."""
        self._placements.feed(line, label)
        self._tasks.feed(line)
        if label is None:
            self._own.feed(line)
        self._hosts.feed(line)
        if not mentions(line, WORDS):
            return
        for pair in _PAIRS:
            if said := pair.search(line):
                rank, pid = rank_number(said["rank"]), integer(said["pid"])
                if rank is not None and pid is not None:
                    self._by_pid[pid].add(rank)
                    self.processes.note(pid, said.groupdict().get("address"), rank)
                    self._note_address(rank, said.groupdict())
        if spawned := _SPAWNED.search(line):
            self._locals[int(spawned["pid"])].add(int(spawned["local"]))
            self._fronts |= {front[0]} if (front := host_before(line)) else set()
        self._places |= {int(each) for each in _PLACES.findall(line)}
        if visible := _VISIBLE.search(line):
            self._is_renumbered = self._is_renumbered or not _counts_from_zero(visible["list"])
        self._start(line)

    def _note_address(self, rank: int, said: Mapping[str, str | None]) -> None:
        size = integer(said.get("size"))
        if size is not None:
            self._sizes.add(size)
        if size is not None or said.get("address"):
            self._addresses[said.get("address") or ""].add(rank)

    def of_node(self, address: str) -> frozenset[int]:
        """All ranks of a node by its address, where the log shows where each rank of the job is."""
        if ranks := self._placements.of_node(address) or self._tasks.of_node(address) or self._hosts.of_node(address):
            return ranks
        known = frozenset[int]().union(*self._addresses.values())
        # A list of all workers, which states no size, counts from 0 without a gap.
        size = next(iter(self._sizes)) if len(self._sizes) == 1 else 1 + max(known, default=-1)
        is_whole = len(self._sizes) < 2 and len(known) == sum(map(len, self._addresses.values())) == size
        return frozenset(self._addresses.get(address, ())) if is_whole else frozenset()

    def failed_of_agent(self, subject: str | None, label: str | None) -> int | None:
        """The rank that an elastic agent, whose lines have this label, has just seen fail."""
        local = _numbers(subject).get("local_rank")
        return None if local is None else self._placements.of_agent(label, local)

    def _start(self, line: str) -> None:
        """How many processes a node has, and which node this is."""
        if started := _STARTED.search(line):
            self._nodes.add((int(started["node"]), int(started["each"])))
        node, each = _NODE.search(line), _PER_NODE.search(line)
        # A rendezvous gives nodes their numbers itself.
        self._is_elastic = self._is_elastic or "rdzv" in line
        if node and each:
            self._nodes.add((int(node[1]), int(each[1])))

    def add_processes(self, ranks: Mapping[tuple[str, int], int], labels: Mapping[str, int]) -> None:
        """Ranks of processes by host and number, and by the labels of their lines, as other readers know them."""
        for label, rank in labels.items():
            self.processes.note_label(label, rank)
        for (host, pid), rank in ranks.items():
            self._of_nccl[pid].add(rank)
            self._users[host, pid] = rank

    def faulted(self, subject: str | None, user: tuple[str, int] | None) -> int | None:
        """The rank of a device that failed: of the process that uses it, which is the one that the kernel names, if any."""
        pid = _numbers(subject).get("pid")
        return self._users.get(user) if user is not None and pid in (None, user[1]) else None

    def by_device(self, subject: str, index: int, devices: int, world: int | None, heard: Collection[int]) -> int | None:
        """The rank of a device by its number, where each of some devices of a node has a process of its own, in order.

        `world` is the size of a job on one node, `heard` are ranks that the log knows of: none may be of another node.
        """
        if self._is_renumbered or "pid" in _numbers(subject):
            return None
        if not self._nodes:
            return index if world == devices and not self._is_elastic else None
        rank = self._of_local(index)
        is_whole = all(each == devices and {other // each for other in heard} <= {node} for node, each in self._nodes)
        return rank if is_whole else None

    def ended(self, subject: str | None) -> int | None:
        """The rank of a process that somebody saw end, by its number, by that on its node, or by its place among actors."""
        found = _numbers(subject)
        pid = found.get("pid", -1)
        ranks = self.processes.ranks(subject or "")
        if ranks is None:
            return None
        # NCCL's lines tell no address: on another host a process may have the same number.
        ranks |= self._of_nccl.get(pid, set()) if " ip=" not in (subject or "") else set()
        if len(ranks) == 1:
            return next(iter(ranks))
        if "node" in found and "place" in found:
            return self._of_place(found["node"], found["place"])
        locals_ = self._locals.get(pid, set())
        local = next(iter(locals_)) if len(locals_) == 1 else found.get("local_rank")
        return None if local is None else self._of_local(local)

    def batches(self, own: int | None = None) -> Iterator[Batch]:
        """Rows of `process_ranks`, but for what NCCL tells: that is compared over all files.

        `own` is the rank that lines state of the file, where its name has it as a mere number.
        """
        yield from process_rank_batches(self._rows())
        yield from self._placements.batches()
        yield from self._own.batches()
        if own is not None:
            yield from config_rows([("log.own_rank", str(own))], rank=None)
        if self._is_renumbered:
            yield from config_rows([("log.CUDA_VISIBLE_DEVICES", "not in order")], rank=None)
        if self._placements.alone is not None:
            pid, rank = self._placements.alone
            yield from config_rows([("log.process", f"{pid} {rank}")], rank=None)

    def _rows(self) -> Iterator[ProcessRank]:
        ((node, each),) = self._nodes if self._is_of_node else ((None, None),)
        for pid, ranks in self._by_pid.items():
            if len(ranks) == 1:
                yield ProcessRank("log", pid=pid, rank=next(iter(ranks)))
        for pid, locals_ in self._locals.items():
            if len(locals_) == 1:
                yield ProcessRank("launcher", pid=pid, local_rank=next(iter(locals_)), node=node, per_node=each)
        for host, placed in self._hosts.by_host.items():
            yield from (ProcessRank("log", host=host, rank=rank) for rank in sorted(placed))

    @property
    def _is_of_node(self) -> bool:
        """Whether a static start says which node this is; where several hosts speak, it does so of one of them."""
        return len(self._nodes) == 1 and not self._is_elastic and len(self._fronts) < 2

    def _of_local(self, local: int) -> int | None:
        """Where the one command in the log says which node of a static start this is."""
        if not self._is_of_node:
            return None
        ((node, each),) = self._nodes
        return node * each + local if local < each else None

    def _of_place(self, node: int, place: int) -> int | None:
        """Where each node has as many actors as its setting says."""
        if node == 0 and not self._places:
            return place
        if len(self._places) != 1:
            return None
        (each,) = self._places
        return node * each + place if place < each else None


def _numbers(subject: str | None) -> dict[str, int]:
    return {name: int(value) for name, value in _SUBJECT.findall(subject or "")}


def _counts_from_zero(devices: str) -> bool:
    return devices == ",".join(map(str, range(devices.count(",") + 1)))
