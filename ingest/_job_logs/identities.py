"""Which rank a process or a local number is, as the lines of a start say: of Ray, Lightning, launchers, and of NCCL's init."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._shared.values import integer, rank_number

WORDS = (
    "[rank ",
    "[RANK:",
    "[PID:",
    "world_rank=",
    "GLOBAL_RANK: ",
    "[rank=",
    "--node_rank",
    "--node-rank",
    "Global rank ",
    "global rank ",
    "rdzv",
    "world",
)
_PAIRS = (
    re.compile(r"pid[= ](?P<pid>\d{1,9})\) world_rank=(?P<rank>\d{1,7})"),
    re.compile(r"GLOBAL_RANK: (?P<rank>\d{1,7}).{0,40}\(pid (?P<pid>\d{1,9})\)"),
    re.compile(r"pid=(?P<pid>\d{1,9})(?:, ip=[\w.:]+)?\).{0,200}\[rank=(?P<rank>\d{1,7}), world_size="),
    re.compile(
        r"pid=(?P<pid>\d{1,9})(?:, ip=[\w.:]+)?\).{0,200}\brank[ =:]{1,2}(?P<rank>\d{1,7})(?:,| /| of| in) ?(?:the )?world"
        r"(?:[ _]size)?[ =:]{1,2}(?:of )?\d",
        re.IGNORECASE,
    ),
    re.compile(r"^\[(?i:rank)[ =:](?P<rank>\d{1,7})\] .{0,40}?\bpid[ =:]{1,2}(?P<pid>\d{1,9})\b"),
    re.compile(r"\[PID:(?P<pid>\d{1,9})\] \[RANK:(?P<rank>\d{1,7})\]"),
    re.compile(r"[Gg]lobal rank (?P<rank>\d{1,7}) \(PID (?P<pid>\d{1,9})\)"),
)
_SUBJECT = re.compile(r"\b(pid|local_rank)=(\d{1,9})\b")
_NODE = re.compile(r"--node[_-]rank[= ](\d{1,6})\b")
_PER_NODE = re.compile(r"--nproc[_-]per[_-]node[= ](\d{1,4})\b")


class Identities:
    """Collects them over a file."""

    def __init__(self) -> None:
        self._by_pid: dict[int, set[int]] = defaultdict(set)
        self._users: dict[tuple[str, int], int] = {}
        self._nodes: set[tuple[int, int]] = set()
        self._is_elastic = False

    def feed(self, line: str) -> None:
        """Take one line."""
        if not mentions(line, WORDS):
            return
        for pair in _PAIRS:
            if said := pair.search(line):
                rank, pid = rank_number(said["rank"]), integer(said["pid"])
                if rank is not None and pid is not None:
                    self._by_pid[pid].add(rank)
        node, each = _NODE.search(line), _PER_NODE.search(line)
        # A rendezvous gives nodes their numbers itself.
        self._is_elastic = self._is_elastic or "rdzv" in line
        if node and each:
            self._nodes.add((int(node[1]), int(each[1])))

    def add_processes(self, ranks: Mapping[tuple[str, int], int]) -> None:
        """Ranks of processes by host and number, as another reader knows them."""
        for (host, pid), rank in ranks.items():
            self._by_pid[pid].add(rank)
            self._users[host, pid] = rank

    def faulted(self, subject: str | None, user: tuple[str, int] | None) -> int | None:
        """The rank of a device that failed: of the process that uses it, which is the one that the kernel names, if any."""
        pid = next((int(value) for name, value in _SUBJECT.findall(subject or "") if name == "pid"), None)
        return self._users.get(user) if user is not None and pid in (None, user[1]) else None

    def ended(self, subject: str | None) -> int | None:
        """The rank of a process that a launcher saw end, by its number or by that on its node."""
        found = {name: int(value) for name, value in _SUBJECT.findall(subject or "")}
        ranks = self._by_pid.get(found.get("pid", -1), set())
        if len(ranks) == 1:
            return next(iter(ranks))
        return self._of_local(found["local_rank"]) if "local_rank" in found else None

    def _of_local(self, local: int) -> int | None:
        """Where the one command in the log says which node of a static start this is."""
        if len(self._nodes) != 1 or self._is_elastic:
            return None
        ((node, each),) = self._nodes
        return node * each + local if local < each else None
