"""NCCL RAS reports as text (docs/formats/nccl-ras.md), from NCCL 2.24 on.

The answer to `VERBOSE STATUS` (`ncclras -v`); upstream `src/ras/client_support.cc` (rasClientRunInit, rasClientRunComms), read
at 2.24.3, 2.26.2, 2.27.3 and 2.30.7. Communicators whose ranks agree are folded into a table and not named; of a set of ranks
that agree only the smaller ones are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.dump_times import time_in
from forensics.ingest._shared.values import integer
from forensics.ingest.interface import Ingester, Item, Problem
from forensics.ingest.nccl_ras.rows import NO_GROUP, Group, Rows, hash_of, kind_of, report

_VERSION = re.compile(r"NCCL version (\S+) compiled with CUDA")
_ROW = re.compile(r" *(\d{1,9}) +(\d{1,9}) +\d{1,9} +[\d-]{1,12} +(\d{1,9}) +\d{1,9} +[A-Z]{3,12} +[A-Z,]{2,40}")
_TOTALS = re.compile(r"(?: *\d{1,9}){2,5} +(\d{1,9})")
_HEADING = re.compile(r"#(\d{1,9})-\d{1,9} \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)")
_BARE = re.compile(r"(INCOMPLETE|DEAD|TIMEOUT)")
_TIMEOUTS = re.compile(r"  Encountered (\d{1,9}) communication timeouts?")
_TOPIC = re.compile(r"  Communicator ranks have different (?:(status)|(\w{1,40}) operation counts)")
_ERRORS = re.compile(r"  (Initialization|Asynchronous) errors? on \d{1,9} ranks?")
_PROCESS = re.compile(r"  Process (\d{1,9}) on node (\S{1,64}) managing GPUs? ")
_LISTED = re.compile(r"  The (missing|unknown) ranks?: ([\d, ]{1,2000})")
_SET = re.compile(
    r"  (\d{1,9}) ranks? (?:ha(?:ve|s) launched up to operation (?P<count>\d{1,19})"
    r"|(?P<none>ha(?:ve|s) not launched any operations)|ha(?:ve|s) status (?P<status>[A-Z]{3,12})"
    r"|reported (?P<error>[\w ]{1,60}))"
)
_RANK = re.compile(
    r"  Rank (\d{1,9})(?: has launched up to operation (?P<count>\d{1,19})|(?P<none> has not launched any operations)"
    r"| has status (?P<status>[A-Z]{3,12})| reported (?P<error>[A-Za-z]{1,20}(?: [A-Za-z]{1,20}){0,3}))?"
    r"(?: -- (?:\[process information not found\]|GPU (?P<cuda>\d{1,3})(?: \(NVML (?P<nvml>\d{1,3})\))?"
    r" managed by process (?P<pid>\d{1,9}) on node (?P<node>\S{1,64})))?"
)
# Before 2.26 a process that answered and is no member was called unknown.
_LISTED_STATUS = {"missing": "unresponsive", "unknown": "nocomm"}
_ERROR_CODES = {
    "Unhandled CUDA error": 1,
    "System error": 2,
    "Internal error": 3,
    "Invalid argument": 4,
    "Invalid usage": 5,
    "Remote process error": 6,
}


def sniff(head: bytes, path: str) -> int:
    """The summary that opens a report; commands typed into netcat may have left an `OK` in front of it."""
    plain = head.replace(b"\r", b"")
    return 92 if b"Job summary\n===========\n" in plain and b"Processes" in plain else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """The report, and a row for each rank (or unnamed set of ranks) that it mentions."""
    reader = _Reader(Rows(artefact.sample or 0))
    lines = Lines(artefact)
    for number, line in lines:
        reader.read(number, line)
    if lines.problem:
        yield lines.problem
    elif not reader.ended:
        yield Problem("ends before its section of warnings: it may be cut", f"line={reader.line}")
    yield report(
        artefact.sample or 0,
        form="text",
        taken=reader.taken,
        nccl_version=reader.version,
        communicators=sum(reader.groups.values()) if reader.sizes else None,
        gpus=reader.gpus,
        timeouts=reader.timeouts,
    )
    yield from reader.table.batches()


@dataclass(slots=True)
class _Reader:
    """Where in the report we are, and what was read so far; `topic` is what the next sets and ranks are about."""

    table: Rows
    version: str | None = None
    taken: str | None = None
    gpus: int | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    dead: set[tuple[str, int]] = field(default_factory=set)
    group: Group = NO_GROUP
    topic: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    timeouts: int = 0
    ended: bool = False
    line: int = 0

    def read(self, number: int, line: str) -> None:
        """One line of the report; what is not known is passed over, for the form changes from release to release."""
        self.line = number
        if self.version is None and (written := time_in(line)) is not None:
            # The text has no time of its own: what stands above it is that of the command.
            self.taken = datetime.fromtimestamp(written / 1e9, UTC).replace(tzinfo=None).isoformat(" ", "seconds")
        if self._opens_section(line) or self._sets_topic(line):
            return
        place = f"line={number}"
        if match := _RANK.match(line):
            self._add_rank(match, place)
        elif match := _SET.match(line):
            self.facts = self._value(match)
            self.table.add(self.group, place, ranks=integer(match[1]), **self.facts)
        elif (match := _PROCESS.match(line)) and self.topic in ("dead", "unresponsive"):
            self._add_process(match, place)
        elif match := _LISTED.match(line):
            for rank in re.findall(r"\d{1,9}", match[2]):
                self.table.add(self.group, place, comm_rank=int(rank), status=_LISTED_STATUS[match[1]])

    def _opens_section(self, line: str) -> bool:
        """Headings, and the table of communicators at the top."""
        if match := _HEADING.match(line):
            self.group = Group(hash_of(match[2]), None, self.sizes.get(match[1]))
            self.topic, self.facts = "unresponsive" if match[3] == "INCOMPLETE" else "", {}
        elif match := _BARE.fullmatch(line.rstrip()):
            self.group, self.topic, self.facts = NO_GROUP, "dead" if match[1] == "DEAD" else "unresponsive", {}
        elif match := _ROW.fullmatch(line.rstrip()):
            self.groups[match[1]], self.sizes[match[1]] = int(match[2]), int(match[3])
        elif self.topic == "totals" and (match := _TOTALS.fullmatch(line.rstrip())):
            self.gpus, self.topic = int(match[1]), ""
        elif line.startswith("(total)"):
            self.topic = "totals"
        elif match := _VERSION.match(line):
            self.version = match[1]
        elif match := _TIMEOUTS.match(line):
            self.timeouts = int(match[1])
        elif line.rstrip() == "Warnings":
            self.ended = True
        else:
            return False
        return True

    def _sets_topic(self, line: str) -> bool:
        if match := _TOPIC.match(line):
            self.topic, self.facts = "status" if match[1] else kind_of(match[2]), {}
        elif match := _ERRORS.match(line):
            self.topic, self.facts = "init_state" if match[1] == "Initialization" else "async_error", {}
        else:
            return False
        return True

    def _value(self, match: re.Match[str]) -> dict[str, Any]:
        """What a set or a rank has: a count of launched operations, a status or an error."""
        if match["count"] or match["none"]:
            return {"kind": self.topic or None, "launched": integer(match["count"]) if match["count"] else 0}
        if match["status"]:
            return {"status": "nocomm" if match["status"] == "UNKNOWN" else match["status"].lower()}
        return {self.topic: _ERROR_CODES.get(match["error"])} if self.topic in ("init_state", "async_error") else {}

    def _add_rank(self, match: re.Match[str], place: str) -> None:
        """A rank with a value of its own, else with that of the set above it, else one that is missing."""
        own = any(match[name] for name in ("count", "none", "status", "error"))
        facts = self._value(match) if own else self.facts
        pid, node = integer(match["pid"]), match["node"]
        if not facts and self.topic == "unresponsive":
            facts = {"status": "dead" if (node, pid) in self.dead else "unresponsive"}
        device = integer(match["nvml"] or match["cuda"])
        self.table.add(self.group, place, comm_rank=int(match[1]), address=node, pid=pid, device=device, **facts)

    def _add_process(self, match: re.Match[str], place: str) -> None:
        pid = int(match[1])
        if self.topic == "dead":
            self.dead.add((match[2], pid))
        self.table.add(NO_GROUP, place, address=match[2], pid=pid, status=self.topic)


INGESTER = Ingester("nccl_ras_text", "nccl_ras", sniff, rows, most=92)
