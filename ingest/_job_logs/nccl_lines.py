"""NCCL's own log lines (NCCL_DEBUG=INFO or WARN), from NCCL 2.14 to 2.30, of one or of many processes in one file.

Upstream: NVIDIA/nccl src/debug.cc (the front of a line), src/init.cc (Init START and COMPLETE), src/enqueue.cc (opCount),
src/transport/net_ib* (queue pairs and failed completions). The key of a process is host and pid; a communicator is a pointer
within it, and its commId (since 2.18) is the same on all members.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from forensics.ingest._job_logs.calls import NEWEST, LoggedCall
from forensics.ingest._job_logs.patterns import match_at
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._shared.nccl_types import DTYPES
from forensics.ingest._shared.values import integer, rank_number
from forensics.ingest.interface import Batch

FRONT = re.compile(
    r"(?<![\w.-])(?P<host>[A-Za-z0-9][\w.-]{0,254}):(?P<pid>\d{1,9}):(?P<thread>\d{1,9}) \[-?\d{1,4}\] "
    r"(?:(?P<where>\S{1,200}:\d{1,7})(?: \([^)]{0,80}\))? )?NCCL (?P<level>INFO|WARN) (?P<text>.*)"
)
_COMM = r"comm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,7}) n[rR]anks (?P<size>\d{1,7})"
_INIT = re.compile(
    rf"{_COMM} .*?(?:commId (?P<id>0x[0-9a-f]{{1,16}}) *|parent (?P<parent>0x[0-9a-f]{{1,16}})"
    r"(?: (?:split|child)Count (?P<number>\d{1,9}))? color (?P<color>-?\d{1,10}) key -?\d{1,10} *)?"
    r"- Init (?P<what>START|COMPLETE)"
)
_DEVICE = re.compile(r"busId ([0-9a-f]{1,12}) ")
_SPLIT_ID = re.compile(r"commId (0x[0-9a-f]{1,16})")
_END = re.compile(r"comm (?P<comm>0x[0-9a-f]{1,16}) .*- (?P<how>Destroy|Abort) (?:COMPLETE|START)")
_CALL = re.compile(
    r"(?P<kind>[A-Z]\w{1,40}): opCount (?P<number>[0-9a-f]{1,16}) sendbuff \S{1,20} recvbuff \S{1,20} "
    r"count (?P<count>\d{1,18}) datatype (?P<type>\d{1,3}) op (?P<operation>-?\d{1,4}) root (?P<root>-?\d{1,9}) "
    r"comm (?P<comm>0x[0-9a-f]{1,16}) \[nranks=(?P<size>\d{1,7})\]"
    r"(?: stream \S{1,20} task \d{1,9} globalrank (?P<rank>\d{1,7}))?"
)
_END_OF_CALL = re.compile(r"(?: stream 0x[0-9a-f]{1,16})?")
_QUEUE_PAIR = re.compile(
    r"NET/IB ?: (?:\w{1,64}: )?(?:NCCL (?:Merged)?Dev \d{1,4} IbDev|Dev) (?P<dev>\d{1,4}) Port (?P<port>\d{1,4}) "
    r"(?:qpn|qp_num) (?P<qp>\d{1,9})"
)
_ADDRESS = re.compile(r"(?:OOB|Bootstrap ?: Using) [\w.-]{1,64}:\[?(?P<address>[0-9a-fA-F.:]{2,45}?)\]?<\d{1,5}>")
_USED_NIC = re.compile(r"\[(\d{1,4})\]([\w.-]{1,64}):\d{1,4}/")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
WORDS = ("NCCL INFO ", "NCCL WARN ")
MEANING = ("opCount ", "- Init ", "- Destroy ", "- Abort ", "NET/IB :", "NET/IB: ", "Bootstrap", "NCCL WARN ")
"""One of these stands in every line that shows more than which process wrote it."""
MAX_COMMUNICATORS = 1 << 17
MAX_QUEUE_PAIRS = 200_000


@dataclass(slots=True)
class _Process:
    """One process: its communicators by pointer (the newest that used the pointer), its NICs by number."""

    first: LogPosition
    communicators: dict[str, LogPosition] = field(default_factory=dict)
    nics: dict[int, str] = field(default_factory=dict)


class NcclLines:
    """Collects positions and queue pairs over all processes of a file."""

    def __init__(self) -> None:
        self._processes: dict[tuple[str, int], _Process] = {}
        self.positions: list[LogPosition] = []
        self._devices: dict[str, set[tuple[str, int]]] = {}
        self._calls: dict[int, deque[LoggedCall]] = {}
        self.addresses: dict[tuple[str, str], None] = {}
        self.queue_pairs: list[tuple[LogPosition, dict[str, Any]]] = []
        self.was_call = False

    @property
    def calls(self) -> Iterator[tuple[LogPosition, Iterable[LoggedCall]]]:
        """The newest calls of each process in each communicator that has collectives only."""
        for said in self.positions:
            if not said.is_p2p:
                yield said, self._calls.get(id(said), ())

    def ranks(self, has_several_nodes: bool) -> dict[tuple[str, int], int]:
        """Rank of each process by its number in the largest communicator, where that may be all of the job.

        It is not where there are several of that size, more processes than members, or one node only of several.
        """
        size = max((said.size or 0 for said in self.positions), default=0)
        whole = [said for said in self.positions if said.size == size and said.group_rank is not None and said.init]
        found = {(said.host or "", said.pid or 0): said.group_rank for said in whole if said.group_rank is not None}
        processes = {(said.host, said.pid) for said in self.positions}
        is_part = has_several_nodes and len({host for host, _ in processes}) == 1 and size <= len(processes)
        clashes = len({said.communicator for said in whole}) != 1 or len(set(found.values())) < len(found)
        stated = any(said.rank not in (None, said.group_rank) for said in whole)
        return {} if is_part or clashes or stated or len(processes) > size else found

    def device(self, address: str, host: str | None) -> tuple[str, int] | None:
        """The process that uses a device of a host, or of the only host that the log speaks of where none is known."""
        hosts = {said.host for said in self.positions}
        found = self._devices.get(address, set())
        users = [user for user in found if (len(hosts) == 1 if host is None else _short(user[0]) == _short(host))]
        return users[0] if len(users) == 1 else None

    @property
    def rows(self) -> Iterator[LogPosition]:
        """All positions, and processes that write of no communicator while others begin the init of one."""
        yield from self.positions
        if any(said.init == "started" for said in self.positions):
            yield from (process.first for process in self._processes.values() if not process.communicators)

    @property
    def processes(self) -> int:
        """Processes that wrote NCCL lines."""
        return len(self._processes)

    def feed(self, number: int, line: str, rank: int | None, label: str | None, time_ns: int | None) -> re.Match[str] | None:
        """Take one line; the match of its front when it is one of NCCL's."""
        self.was_call = False
        front = FRONT.search(line) if " NCCL " in line else None
        if front is None:
            return None
        key = (front["host"], int(front["pid"]))
        process = self._processes.get(key)
        said = LogPosition(number, "nccl", time_ns, *key, rank, label=label)
        if process is None:
            if len(self._processes) >= MAX_COMMUNICATORS:
                return front
            process = self._processes[key] = _Process(replace(said))
        self._read(process, said, front["text"])
        return front

    def _read(self, process: _Process, said: LogPosition, text: str) -> None:
        if call := _CALL.search(text):
            self.was_call = call.start() == 0 and _END_OF_CALL.fullmatch(text, call.end()) is not None
            self._called(process, said, call)
        elif init := match_at(_INIT, "comm ", text):
            self._initialised(process, said, init, text)
        elif end := match_at(_END, "comm ", text):
            self._ended(process, said, end)
        elif pair := _QUEUE_PAIR.search(text):
            self._connected(process, said, pair)
        elif text.startswith(("NET/IB : Using ", "Bootstrap")):
            process.nics.update((int(index), name) for index, name in _USED_NIC.findall(text))
            address = _ADDRESS.search(text)
            if address and said.host and len(self.addresses) < MAX_COMMUNICATORS:
                self.addresses[address["address"], said.host] = None

    def _position(self, process: _Process, said: LogPosition, comm: str, fresh: bool = False) -> LogPosition:
        """The position of a communicator; `fresh` starts a new one, for pointers are used again."""
        found = process.communicators.get(comm)
        if found is None or fresh:
            found = said
            process.communicators[comm] = found
            if len(self.positions) < MAX_COMMUNICATORS:
                self.positions.append(found)
        found.locator, found.time_ns = said.locator, said.time_ns
        found.rank = said.rank if found.rank is None else found.rank
        found.label = found.label or said.label
        return found

    def _initialised(self, process: _Process, said: LogPosition, init: re.Match[str], text: str) -> None:
        begins = init["what"] == "START"
        found = self._position(process, said, init["comm"], fresh=begins)
        if not begins and found.init in ("destroyed", "aborted"):
            found = self._position(process, said, init["comm"], fresh=True)
        found.init = "started" if begins else "complete"
        found.group_rank, found.size = rank_number(init["rank"]), integer(init["size"])
        found.communicator = _identity(process, init, text) or found.communicator
        if said.host and said.pid and (device := _DEVICE.search(text)):
            found.gpu = device[1]
            self._devices.setdefault(device[1].lstrip("0"), set()).add((said.host, said.pid))

    def _ended(self, process: _Process, said: LogPosition, end: re.Match[str]) -> None:
        if end["comm"] in process.communicators:
            self._position(process, said, end["comm"]).init = "destroyed" if end["how"] == "Destroy" else "aborted"

    def _called(self, process: _Process, said: LogPosition, call: re.Match[str]) -> None:
        found = self._position(process, said, _known(process, call))
        number = int(call["number"], 16)
        found.size = found.size or integer(call["size"])
        found.group_rank = rank_number(call["rank"]) if found.group_rank is None and call["rank"] else found.group_rank
        found.is_p2p = found.is_p2p or call["kind"] in ("Send", "Recv")
        if number >= 1 << 63 or (found.enqueued is not None and number < found.enqueued):
            return
        kind = int(call["type"])
        found.enqueued, found.kind, found.count = number, _WORD.sub("_", call["kind"]).lower(), integer(call["count"])
        found.dtype = DTYPES[kind] if kind < len(DTYPES) else None
        made = LoggedCall(said.locator, number, found.kind, call["count"], found.dtype or call["type"])
        made.root, made.operation = integer(call["root"]), integer(call["operation"])
        self._calls.setdefault(id(found), deque(maxlen=NEWEST)).append(made)

    def batches(self, own: int | None) -> Iterator[Batch]:
        """Addresses of hosts, and queue pairs with their ranks; `own` is that of a file of one process."""
        if self.addresses:
            values, hosts = zip(*self.addresses, strict=True)
            same: dict[str, list[Any]] = {"key": ["node.address"], "confidence": ["read"], "rank": [None]}
            known = {name: one * len(values) for name, one in same.items()}
            yield Batch("job_config", {**known, "value": list(values), "host": list(hosts)})
        if self.queue_pairs:
            by_pid = {position.pid: position.rank for position in self.positions if position.pid and position.rank is not None}
            yield Batch("queue_pairs", dict(_queue_pair_columns(self.queue_pairs, by_pid, own)))

    def _connected(self, process: _Process, said: LogPosition, pair: re.Match[str]) -> None:
        if len(self.queue_pairs) < MAX_QUEUE_PAIRS:
            nic = process.nics.get(int(pair["dev"]), f"device {pair['dev']}")
            self.queue_pairs.append((said, {"queue_pair": pair["qp"], "nic": nic, "port": int(pair["port"])}))


def process_label(host: str, pid: int) -> str:
    """What stands for a process until the whole file shows its rank."""
    return f"process {host} {pid}"


def _short(host: str) -> str:
    """A host's name without its domain."""
    return host.partition(".")[0]


def _known(process: _Process, call: re.Match[str]) -> str:
    """The pointer of the call; of an excerpt without its init, that of the only communicator of this size that began."""
    if call["comm"] in process.communicators:
        return str(call["comm"])
    size = integer(call["size"])
    same = [pointer for pointer, said in process.communicators.items() if said.size == size and said.init]
    names = {process.communicators[pointer].communicator for pointer in same}
    return same[-1] if len(names) == 1 and names != {None} else str(call["comm"])


def _identity(process: _Process, init: re.Match[str], text: str) -> str | None:
    """What names the communicator on all members: its commId, else the parent's with the number of the split and the color."""
    if init["id"]:
        return str(init["id"])
    stated = _SPLIT_ID.search(text)
    if stated:
        return stated[1]
    parent = process.communicators.get(init["parent"] or "")
    if parent is None or parent.communicator is None or init["number"] is None:
        return None
    return f"{parent.communicator}/{init['number']}.{init['color']}"


def _queue_pair_columns(
    found: list[tuple[LogPosition, dict[str, Any]]], ranks: Mapping[int, int], only_rank: int | None
) -> Iterator[tuple[str, list[Any]]]:
    """Columns of `queue_pairs`; `ranks` gives the rank of a process by pid, `only_rank` that of a file of one process."""
    yield "locator", [said.locator for said, _ in found]
    yield "host", [said.host for said, _ in found]
    yield "rank", [ranks.get(said.pid or 0, only_rank) if said.rank is None else said.rank for said, _ in found]
    for name in ("queue_pair", "nic", "port"):
        yield name, [values[name] for _, values in found]
