"""Whether a log speaks of more than one node: there a local rank is not the rank of the job."""

from __future__ import annotations

import re
from collections import defaultdict

from forensics.bundle.origin import looks_like_host
from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._shared.prompts import command_host, is_command

_SEVERAL = re.compile(
    r"(?:nnodes|num_machines|num_nodes|group_world_size|GROUP_WORLD_SIZE|SLURM_NNODES|WORLD_NODES)"
    r"[\"']?(?: |=|: ?){1,3}[\"']?(?:[2-9]|[1-9]\d{1,5})\b"
    r"|--(?:node[_-]rank|machine[_-]rank)[ =](?:[1-9]\d{0,5})\b"
    r"|(?:group_rank|GROUP_RANK)[\"']?(?: |=|: ?){1,3}[1-9]\d{0,5}\b"
    # Global ranks of nvidia-resiliency-ext.
    r"|RankMonitorServer:(?:[89]|[1-9]\d{1,6})\b"
)
WORDS = (
    *("nnodes", "num_machines", "num_nodes", "group_world_size", "GROUP_WORLD_SIZE", "SLURM_NNODES", "WORLD_NODES"),
    *("node_rank", "node-rank", "machine_rank", "machine-rank", "group_rank", "GROUP_RANK", "(local_rank: "),
)
# SkyPilot's front of what other nodes than the first one wrote; older ones count from `node-0`.
_OF_WORKER = r"\((?:worker[1-9]\d{0,4}, rank=[1-9]\d{0,4},|node-[1-9]\d{0,4}) pid=\d"
_OTHER_NODE = re.compile(_OF_WORKER)
EXPRESSIONS = {
    "(worker": _OF_WORKER,
    "(node-": _OF_WORKER,
    "ip=0": r"\bip=\d",
    "[rank0": r"\[rank(?:[89]|[1-9]\d)",
    "host": r"\bhost {0,40}: ?\w",
}
_WORDS = ("nodes", "num_machines", "WORLD_SIZE", "world_size", "node", "_rank", "_RANK", "NNODES", "machine", "RankMonitor")
_AGENT = re.compile(r"(?<![\w-])rank {0,40}: ?(\d{1,7}) \(local_rank: (\d{1,5})\)")
_HOST = re.compile(r"\bhost {0,40}: ?([\w.-]{1,255})")
_ADDRESS = re.compile(r"\bip=(\d{1,3}(?:\.\d{1,3}){3})\)")
_NCCL_HOST = re.compile(r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,254}):\d{1,9}:\d{1,9} \[-?\d{1,4}\] ")
_MOST, _LONGEST_KERNEL_LOG = 64, 2000
_WORD = re.compile(r"(?<![\w.-])[A-Za-z][\w-]{1,62}\d(?![\w.-])")
# pdsh, clush and DeepSpeed's launcher put the host in front: `worker-1: `.
_HOST_IN_FRONT = re.compile(rb"\n([A-Za-z][\w.-]{0,62}?)(\d{1,6}): ")
_OF_A_HOST = re.compile(r"(?P<stem>[A-Za-z][\w.-]{0,62}?)\d{1,6}: ")
_LARGEST_NODE = 8
# Pods that an operator numbers: beside this one there are others.
_POD = re.compile(r"\[pod/(?P<pod>[^\]/\s]{1,240}-[1-9]\d{0,3})/")
# Hosts of a job of SageMaker are counted from 1.
_ALGO = re.compile(r"(?<![\w-])(?P<host>algo-(?:[2-9]|[1-9]\d{1,2}))(?=[-,\s\]>:])")
KERNEL_LOGS = ("dmesg", "journalctl ")
"""Commands that print what a kernel wrote."""
OF_KERNEL = frozenset({"xid", "oom_kill", "task_killed", "pod_killed", "task_blocked", "client_evicted"})
"""Kinds of events that a kernel writes, and the reader of a job's log knows."""
_OF_NODE = re.compile(r"^([A-Za-z][\w.-]{0,254}): {1,2}\[(?:[A-Z][a-z]{2} [A-Z][a-z]{2} | {0,8}\d{1,9}\.\d{6}\])")
_KERNEL = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? ([A-Za-z][\w.-]{0,254}) kernel: ")
_OF_WORKER_FILE = re.compile(r"(?:^|[/_.-])worker[-_]?[1-9]\d{0,3}(?=[._]|$)")


class Nodes:
    """Collects what tells of nodes: hosts, addresses of workers, settings of launchers, ranks beside local ranks.

    `kernel_of` is the host whose kernel's lines stand below the last command, by its prompt.
    """

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._addresses: set[str] = set()
        self._in_front: dict[str, set[int]] = defaultdict(set)
        self.why: str | None = None
        self.locator = 0
        self.kernel_of: str | None = None
        self._kernel_since = 0

    def survey(self, block: bytes) -> None:
        """Note hosts at the very front of lines, whatever the lines say."""
        is_open = self.why is None and len(self._in_front) < _MOST
        for stem, number in {*_HOST_IN_FRONT.findall(b"\n" + block)} if is_open else ():
            self._in_front[stem.decode()].add(int(number))

    def feed(self, number: int, line: str, rank: int | None) -> None:
        """Take one line, until several nodes are known; `rank` is the rank of the job that wrote it."""
        if mentions(line, KERNEL_LOGS) or (self.kernel_of is not None and (is_command(line) or line.startswith("#"))):
            self.kernel_of = command_host(line) or _headed(line) if mentions(line, KERNEL_LOGS) else None
            self._kernel_since = number
        elif not self.is_open(number):
            self.kernel_of = None
        beyond = f"rank {rank} is beyond a node of {_LARGEST_NODE}" if rank is not None and rank >= _LARGEST_NODE else None
        if self.why is None and (reason := beyond or self._reason(line)):
            self.why, self.locator = reason, number

    def is_open(self, number: int) -> bool:
        """Whether what a kernel wrote may go on, up to the next command: nobody pastes all of it."""
        return self.kernel_of is not None and number - self._kernel_since < _LONGEST_KERNEL_LOG

    def with_host(self, kind: str, subject: str | None, host: str | None) -> str | None:
        """What is said of a device of a host that nothing but the command, or the heading, above it names, with that host."""
        return f"{subject} host={self.kernel_of}" if kind == "xid" and host is None and self.kernel_of else subject

    def _reason(self, line: str) -> str | None:
        if mentions(line, _WORDS) and (said := _SEVERAL.search(line)):
            return said[0]
        if ("(worker" in line or "(node-" in line) and (other := _OTHER_NODE.search(line)):
            return other[0].removeprefix("(").partition(",")[0].partition(" ")[0]
        if "[pod/" in line and "local_rank" in line and (pod := _POD.search(line)):
            return f"the pod {pod['pod']} is one of several"
        if "algo-" in line and "local_rank" in line and (algo := _ALGO.search(line)):
            return f"{algo['host']} of SageMaker is one of several"
        if "local_rank: " in line and (host := _OF_A_HOST.match(line)) and len(self._in_front[host["stem"]]) > 1:
            return f"lines of several hosts, {host[0].rstrip()}"
        if "local_rank: " in line and (row := _AGENT.search(line)) and row[1] != row[2]:
            return f"rank {row[1]} is local rank {row[2]}"
        for known, found in ((self._addresses, _ADDRESS.search(line) if "ip=" in line else None), (self._hosts, _host(line))):
            if found and len(known) < _MOST:
                known.add(found[1])
                if len(known) > 1:
                    return f"hosts {', '.join(sorted(known))}"
        return None


def is_of_worker(path: str) -> bool:
    """Whether a file is called by a worker that is not the first one of its job."""
    return _OF_WORKER_FILE.search(path.rpartition("/")[2]) is not None


def _headed(line: str) -> str | None:
    """The one host that a heading of a page in Markdown names."""
    named = {word for word in _WORD.findall(line) if looks_like_host(word)} if line.startswith("#") else set()
    return named.pop() if len(named) == 1 else None


def _host(line: str) -> re.Match[str] | None:
    if "host " in line:
        return _HOST.search(line)
    return _NCCL_HOST.search(line) if " NCCL " in line else None


def host_of_kernel(kind: str, line: str, above: str | None) -> str | None:
    """The host of a line of its kernel, as a journal has it (`Aug 14 02:10:07 node-5 kernel: `), or pdsh in front of dmesg.

    `above` is that of the prompt above it: of what no process is looked up for.
    """
    found = (_KERNEL.search(line) or _OF_NODE.match(line)) if kind in OF_KERNEL else None
    return found[1] if found else above if kind == "client_evicted" else None
