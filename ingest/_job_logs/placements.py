"""Where ranks are, as the lines of a start say: hosts, numbers of processes, and the ranks of each node.

Upstream: torch/distributed/elastic (rendezvous, `_assign_worker_ranks`), deepspeed/launcher/launch.py (`global_rank_mapping`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from forensics.ingest._shared.process_ranks import ProcessRank, process_rank_batches
from forensics.ingest._shared.values import integer, rank_number
from forensics.ingest.interface import Batch

WORDS = ("host=", "hostname=", " host: ", "has joined round", "global_ranks=[", "global_rank_mapping", "spawned with command")
_PID_BEHIND = r"\d{1,7}\b[^\n]{0,120}\b[Pp][Ii][Dd][ =:]"
_RANK_BEHIND = r"\d{2,9}\b[^\n]{0,60}\b[Rr]ank[ =:]"
EXPRESSIONS = {
    **{f"ank{end}0": f"ank{end}{_PID_BEHIND}" for end in (" ", "=", ": ", ":")},
    **{f"pid{end}0": f"pid{end}{_RANK_BEHIND}" for end in (" ", "=", ": ", ":")},
    **{f" ranks{end}0": rf" ranks{end}\d{{1,7}} ?(?:\.\.|-|to )" for end in (" ", "=", ": ")},
}
_MENTIONED = (*WORDS, "pid", "ranks", " RANK=")
# Of which group another word in front says.
_OTHERS = (
    "local",
    "node",
    "group",
    "machine",
    "role",
    "tp",
    "pp",
    "dp",
    "ep",
    "cp",
    "model",
    "parallel",
    "tensor",
    "pipe",
    "data",
    "expert",
    "comm",
    "stage",
)
_NO_OTHER = "".join(rf"(?<!{word}{end})" for word in _OTHERS for end in (" ", "_", "-"))
_RANK = re.compile(rf"{_NO_OTHER}(?<![A-Za-z0-9-])(?:global[_ ]?)?(?i:rank)[ =:]{{1,2}}(\d{{1,7}})\b")
_PID = re.compile(r"(?<![\w-])(?i:pid)[ =:]{1,2}(\d{2,9})\b")
_HOST = re.compile(r"(?<![\w-])(?:host(?:name)?|node)[ =:]{1,2}([A-Za-z][\w.-]{0,252})")
_HOSTED = re.compile(
    r"(?<![\w.-])(?:global_)?rank(?:[=:] ?| )(?P<rank>\d{1,7})(?:(?:/| of )\d{1,7})?[, ]{1,2}"
    r"(?:local_rank[=:] ?(?P<local>\d{1,5})[, ]{1,2})?(?:world_?size[=:] ?\d{1,7}[, ]{1,2})?(?:on )?"
    r"host(?:name)?[=:] ?(?P<host>[A-Za-z][\w.-]{0,252})"
)
_JOINED = re.compile(
    r"The node '(?P<host>[\w.-]{1,253}?)_\d{1,9}_\d{1,9}' has joined round \d{1,6} .{0,300}? as rank (?P<node>\d{1,6}) "
)
_OF_NODE = re.compile(r"\bglobal_ranks=\[(?P<ranks>\d{1,7}(?:, \d{1,7}){0,63})\]")
_RANGE = re.compile(
    r"^\W{0,8}(?:\d{1,7}: )?(?P<host>(?=[\w.-]{0,252}\d)[A-Za-z][\w.-]{0,252}) .{0,60}?\branks[ =:(\[]{1,2}"
    r"(?P<first>\d{1,7}) ?(?:\.\.\.?|-|to) ?(?P<last>\d{1,7})\b"
)
_MAPPED = re.compile(r"'(?P<host>[\w.-]{1,253})': \[(?P<ranks>\d{1,7}(?:, \d{1,7}){0,63})\]")
_SPAWNED = re.compile(
    r"^(?P<host>[A-Za-z][\w.-]{0,252}): .{0,120}?process (?P<pid>\d{1,9}) spawned with command: "
    r"\[.{0,400}?'--local_rank=(?P<local>\d{1,5})'"
)
# What a shell says of a command that a signal ended, with the environment that stood in front of it.
_SIGNALLED = re.compile(
    r"line \d{1,7}: +(?P<pid>\d{2,9}) (?:Killed|Aborted|Segmentation fault|Bus error|Terminated)\b"
    r"[^\n]{0,400}?(?<=\s)RANK=(?P<rank>\d{1,7})(?=\s)"
)
_MOST = 1 << 17
_LARGEST_NODE = 64


class Placements:
    """Collects them over a file."""

    def __init__(self) -> None:
        self._processes: dict[tuple[str | None, int], set[int]] = defaultdict(set)
        self._by_host: dict[str, dict[int, int | None]] = defaultdict(dict)
        self._joined: dict[str, int] = {}
        self._nodes: dict[int, frozenset[int]] = {}
        self._ranges: dict[str, tuple[int, int]] = {}
        self._mapped: dict[str, list[int]] = {}
        self._spawned: dict[tuple[str, int], int] = {}
        self._signalled: dict[int, int] = {}
        self._agents: dict[str | None, dict[int, int]] = {}

    @property
    def is_of_one_node(self) -> bool:
        """Whether elastic shows the ranks of one node only: then local ranks of the file are of that node."""
        return len(self._nodes) == 1

    def of_agent(self, label: str | None, local: int) -> int | None:
        """The rank that an elastic agent gave a local rank in its last rendezvous, where one agent wrote these lines.

        Lines with a `label` are of one process; of others all must speak of one node, for they may be of several.
        """
        if label is None and len(self._nodes) > 1:
            return None
        return self._agents.get(label, {}).get(local)

    def feed(self, line: str, label: str | None = None) -> None:
        """Take one line; `label` shows the process that wrote it."""
        if len(self._processes) > _MOST or not any(word in line for word in _MENTIONED):
            return
        self._stated(line)
        if hosted := _HOSTED.search(line):
            rank = rank_number(hosted["rank"])
            self._by_host[hosted["host"]] |= {} if rank is None else {rank: integer(hosted["local"])}
        if joined := _JOINED.search(line):
            self._joined[joined["host"]] = int(joined["node"])
        if listed := _OF_NODE.search(line):
            ranks = sorted(_numbers(listed["ranks"]))
            self._nodes[ranks[0] // len(ranks)] = frozenset(ranks)
            self._agents[label] = dict(enumerate(ranks))
        if spanned := _RANGE.search(line):
            self._ranges[spanned["host"]] = int(spanned["first"]), int(spanned["last"])
        if "global_rank_mapping" in line:
            self._mapped |= {said["host"]: _numbers(said["ranks"]) for said in _MAPPED.finditer(line)}
        if spawned := _SPAWNED.search(line):
            self._spawned[spawned["host"], int(spawned["pid"])] = int(spawned["local"])
        if (signalled := _SIGNALLED.search(line)) and (rank := rank_number(signalled["rank"])) is not None:
            self._signalled[int(signalled["pid"])] = rank

    def _stated(self, line: str) -> None:
        """A rank and the number of its process in one line, which speaks of no other."""
        pids = set(_PID.findall(line))
        ranks = set(_RANK.findall(line)) if len(pids) == 1 else set()
        rank = rank_number(ranks.pop()) if len(ranks) == 1 else None
        if rank is not None:
            host = _HOST.search(line)
            self._processes[host[1] if host else None, int(pids.pop())].add(rank)

    @property
    def alone(self) -> tuple[int, int] | None:
        """Number and rank of the one process that the file speaks of; whether the file is of it, other files may show."""
        if len(self._processes) != 1:
            return None
        (((_, pid), ranks),) = self._processes.items()
        return (pid, min(ranks)) if len(ranks) == 1 else None

    def of_node(self, address: str) -> frozenset[int]:
        """All ranks of a node by the name of its host."""
        if address in self._joined:
            return self._nodes.get(self._joined[address], frozenset())
        first, last = self._spans().get(address, (0, -1))
        return frozenset(range(first, last + 1))

    def _spans(self) -> dict[str, tuple[int, int]]:
        """Ranges of the hosts, where together they are all ranks from 0 on."""
        spans = sorted(self._ranges.values())
        follow = all(after[0] == before[1] + 1 for before, after in pairwise(spans))
        small = all(0 <= last - first < _LARGEST_NODE for first, last in spans)
        return self._ranges if len(spans) > 1 and spans[0][0] == 0 and follow and small else {}

    def batches(self) -> Iterator[Batch]:
        """Rows of `process_ranks`; a rank without a process is one of its host."""
        yield from process_rank_batches(self._rows())

    def _rows(self) -> Iterator[ProcessRank]:
        known = {process: next(iter(ranks)) for process, ranks in self._processes.items() if len(ranks) == 1}
        # Lines of a start name each process once; what is said of one process alone may be anything.
        if len(known) == len(self._processes) == len(set(known.values())) > 1:
            yield from (ProcessRank("log", host, pid, rank) for (host, pid), rank in known.items())
        yield from (ProcessRank("command", None, pid, rank) for pid, rank in self._signalled.items())
        for (host, pid), local in self._spawned.items():
            ranks = self._mapped.get(host, [])
            if local < len(ranks):
                yield ProcessRank("launcher", host, pid, ranks[local], local)
        for host, of_host in self._by_host.items():
            yield from (ProcessRank("log", host, None, rank, local) for rank, local in of_host.items())
        for host, (first, last) in self._spans().items():
            yield from (ProcessRank("log", host, None, rank, rank - first) for rank in range(first, last + 1))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(", ")]
