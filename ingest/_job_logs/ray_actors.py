"""How Ray says that an actor died: a line, and below it who it was, indented, and why.

Upstream: `ActorDiedError` of python/ray/exceptions.py (`RayActorError` before 2.10), the death causes of
src/ray/gcs/actor/gcs_actor_manager.cc, and what raylets print of workers. Numbers of processes count on their host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from forensics.ingest._job_logs.ended import Ended
from forensics.ingest._job_logs.tracebacks import TRACEBACK

WORDS = ("Worker exit type: ", "Ray killed this worker")
STARTS = ("Started distributed worker processes:", "Started training worker group of size ")
"""What Ray Train prints of all its workers, again when it starts them anew."""
ASKED = "asked"
"""Marks an end that somebody asked for, or that of the program which owned the actor."""
_DIED = "actor died unexpectedly"
_FRONT = r"^(?:\([\w.:-]{1,80} pid=[^)]{1,64}\) ?)?"
_ACTOR = re.compile(_FRONT + r"\s+pid: (?P<pid>\d{1,9})\s*$")
_ADDRESS = re.compile(_FRONT + r"\s+ip: (?P<address>[\w.:]{1,45})\s*$")
_PLACED = re.compile(_FRONT + r"\s+name: \w{1,200}_(?P<node>\d{1,6}):(?P<place>\d{1,4})\s*$")
_ASKED = re.compile(
    r"actor is dead because (?:it was killed by `?ray\.kill|its owner has died|(?:because )?all references)|INTENDED_"
)
_RAYLET = re.compile(
    r"Worker PID: (?P<pid>\d{1,9}) Worker exit type: (?:SYSTEM_ERROR|UNEXPECTED_SYSTEM_EXIT)\b"
    r"|\(actor ID: \w{1,64}, name=[^,]{1,200}, pid=(?P<killed>\d{1,9}), memory used=[^)]{1,40}\) was running "
    r".{1,400}?Ray killed this"
)
_LABEL = re.compile(r"^actor .*\bpid=(?P<pid>\d{1,9})(?:, ip=(?P<address>[\w.:]{1,45}))?$")
_ENDED = re.compile(r"\bpid=(?P<pid>\d{1,9}) by=ray(?: ip=(?P<address>\S{1,45}))?")
_PID = re.compile(r"\bpid=(\d{1,9})\b")
SNIPPET = re.compile(r"\[Rank (?P<ranks>\d{1,7}(?:,\d{1,7}){0,2047}) Error Snippet\]")
"""Above an error, with all ranks that raised it alike."""
_LONGEST, _NEAR = 256, 12
_MOST = 1 << 14
_CODE_UNKNOWN = "unknown"
_HOW_UNKNOWN = f"exitcode={_CODE_UNKNOWN} "


@dataclass(slots=True)
class RayActors:
    """Reads them; of what raylets say the first counts.

    `found` are ranks by number and address of a process, where the controller shows the death below the rank that it is of.
    """

    found: dict[tuple[str, str | None], int] = field(default_factory=dict)
    _snippet: int | None = None
    _is_dying: bool = False
    _end: str = ""
    _has_raylet: bool = False
    _lines: int = 0

    @property
    def is_open(self) -> bool:
        """Whether lines follow that tell who it was, and why."""
        return self._is_dying or bool(self._end) or self._snippet is not None

    def feed(self, line: str, signals: Mapping[str, str]) -> Iterator[Ended]:
        """What this line completes; `signals` are those that processes reported of themselves, by number."""
        if not self._has_raylet and (died := _RAYLET.search(line)):
            self._has_raylet = True
            code = "-9" if died["killed"] else _CODE_UNKNOWN
            yield Ended(None, f"exitcode={code} pid={died['killed'] or died['pid']} first by=ray")
        self._lines += 1
        if (stated := SNIPPET.search(line)) and stated["ranks"].isdecimal():
            self._snippet, self._is_dying, self._end, self._lines = int(stated["ranks"]), False, "", 0
        elif TRACEBACK in line or (self._lines > _NEAR and not self._is_dying and not self._end):
            self._snippet = None
        if _DIED in line:
            self._is_dying, self._end, self._lines = True, "", 0
        elif self._lines > _LONGEST:
            self._is_dying, self._end, self._snippet = False, "", None
        elif self._is_dying and (said := _ACTOR.match(line)):
            self._is_dying = False
            self._end = f"exitcode={signals.get(said['pid'], _CODE_UNKNOWN)} pid={said['pid']} by=ray"
            self._note(said["pid"], None)
            yield Ended(None, self._end)
        elif self._end:
            yield from self._more(line)

    def _note(self, pid: str, address: str | None) -> None:
        if self._snippet is not None and len(self.found) < _MOST:
            self.found.setdefault((pid, address), self._snippet)

    def _more(self, line: str) -> Iterator[Ended]:
        if placed := _PLACED.match(line):
            yield Ended(None, f"{self._end} node={placed['node']} place={placed['place']}")
        elif found := _ADDRESS.match(line):
            self._end += f" ip={found['address']}"
            self._note(self._end.partition(" pid=")[2].partition(" ")[0], found["address"])
            yield Ended(None, self._end)
        elif _ASKED.search(line):
            yield Ended(None, f"{ASKED} {self._end}")
        # Below what is indented stands why it died.
        if "actor is dead because" in line:
            self._end = ""


@dataclass(slots=True)
class AddressedProcesses:
    """Ranks of processes by their number and the address of their host, and what is known of those that died."""

    _ranks: dict[int, dict[str | None, set[int]]] = field(default_factory=dict)
    _died: dict[int, set[str]] = field(default_factory=dict)
    _stated: set[tuple[str, str | None]] = field(default_factory=set)
    _unclear: set[str] = field(default_factory=set)

    def note(self, pid: int, address: str | None, rank: int) -> None:
        """A line that says which rank a process is; without an address it is one of the host of the driver."""
        self._ranks.setdefault(pid, {}).setdefault(address, set()).add(rank)

    def note_label(self, label: str, rank: int) -> None:
        """The rank of the process whose lines have this label."""
        if said := _LABEL.search(label):
            self.note(int(said["pid"]), said["address"], rank)

    def of_label(self, label: str) -> int | None:
        """The one rank of the process that is named by number, and by address on another host, in front of lines."""
        said = _LABEL.search(label)
        ranks = self._ranks.get(int(said["pid"]), {}).get(said["address"], set()) if said else set()
        return next(iter(ranks)) if len(ranks) == 1 else None

    def add_ends(self, subjects: Iterable[str]) -> None:
        """All ends of a file: the number of a process stands some lines above the address of its host."""
        for subject in subjects:
            if found := _ENDED.search(subject):
                self._died.setdefault(int(found["pid"]), set()).update([found["address"]] if found["address"] else [])
                self._stated |= {(found["pid"], found["address"])} if subject.startswith(ASKED) else set()
                self._unclear |= {found["pid"]} if subject.startswith(_HOW_UNKNOWN) else set()

    def ranks(self, subject: str) -> set[int] | None:
        """All ranks that a process which ended may be; None where somebody had asked it to end, or it may be one of several.

        Of several that died it is not stated which was first: whoever loses a peer is aborted.
        """
        found = _ENDED.search(subject)
        if found is None:
            return set().union(*self._ranks.get(_number(subject), {}).values())
        addresses = {found["address"]} if found["address"] else self._died.get(int(found["pid"]), set())
        if subject.startswith(_HOW_UNKNOWN) and len(self._unclear - {pid for pid, _ in self._stated}) > 1:
            return None
        if any((found["pid"], address) in self._stated for address in (*addresses, None)) or len(addresses) > 1:
            return None
        known = self._ranks.get(int(found["pid"]), {})
        if addresses and known.keys() - {None}:
            known = {address: ranks for address, ranks in known.items() if address is None or address in addresses}
        return set().union(*known.values())


def _number(subject: str) -> int:
    found = _PID.search(subject)
    return int(found[1]) if found else -1
