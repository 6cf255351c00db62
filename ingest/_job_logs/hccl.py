"""What HCCL says on Ascend devices: who waited for whom until a timeout, and whose device failed.

A line of torch_npu names the process and its rank (`(PID:30120, Device:0, RankID:0) ERR02200 DIST call hccl api failed.`),
those below it the error by code and process. Numbers of remote ranks count within a communicator: they are ranks where all
ranks from 0 up to the highest are spoken of, in one communicator only.
HCCL also watches over the devices of its peers, and passes on which one fell silent: that is where to begin.
Upstream: torch_npu/csrc/core/npu/NPUException.cpp of Ascend/pytorch, error codes EI0002, EI0006 and EI0009 of CANN 6 to 8.5,
hccl_socket_manager.cc, heartbeat.cc and task_exception_handler.cc of CANN's HCCL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import MOST_RANKS, report
from forensics.ingest._shared.values import rank_number

WORDS = (
    *("RankID:", "Notify record from remote", "Getting socket times out", "socket establish timeout", "| time out |"),
    *(
        "Transport init error",
        "initialize the HCCP process",
        "AICORE execution",
        "AICPU execution",
        "aicore error",
        "aivec error",
        "fftsplus task timeout",
        "Cluster Exception Location",
        "Heartbeat Lost Occurred",
        "[HCCL_TRACE]rank [",
        "taskType[Notify Wait]",
    ),
)
_SPEAKER = re.compile(r"\(PID:(?P<pid>\d{1,9}), Device:-?\d{1,4}, RankID:(?P<rank>\d{1,7})\)")
_PID = re.compile(r"\bE[A-Z]\d{4}:? ?\[PID: (\d{1,9})\]")
_NOTIFY = re.compile(r"Notify record from remote rank:? ?\[(?P<remote>\d{1,7}|unknown)\]")
_TAG = re.compile(r"\btag\[(?:[A-Za-z]{1,40}_)?([^\]\s]{1,200})\]")
_SOCKET = re.compile(r"Getting socket times out|wait socket establish timeout")
_LINK = re.compile(
    r"\| {1,8}[\w.:%/]{1,64}\((?P<remote>\d{1,7})\) {1,8}\| {1,8}\d{1,12} {1,8}\| {1,8}[\w.:%/]{1,64}\((?P<own>\d{1,7})\) {1,8}"
    r"\| {1,8}\d{1,12} {1,8}\| {1,8}(?:server|client) {1,8}\| {1,8}time out\b"
)
_INIT = re.compile(
    r"Transport init error.{0,200}?createLink para: ?rank\[\d{1,7}\]-localUserrank\[(?P<own>\d{1,7})\].{1,200}?"
    r"remoteUserrank\[(?P<remote>\d{1,7})\]"
)
_DEVICE = re.compile(
    r"exception occurred during AI(?:CORE|CPU) execution|there is an (?:exception of )?(?:fftsplus )?ai(?:core|vec) error"
)
_STALL = re.compile(r"hccl fftsplus task timeout occurred")
_NOT_STARTED = re.compile(r"Failed to initialize the HCCP process\.(?: Reason: [^.]{1,120})?")
_SILENT = (
    re.compile(
        r"Cluster Exception Location ?\[IP/ID\]: ?\[(?P<host>[\w.:%]{2,64})/(?P<device>\d{1,4})\]"
        r".{0,300}?ExceptionType: ?\[(?:Heartbeat Lost|Stuck) Occurred"
    ),
    re.compile(r"serverId\[(?P<host>[\w.:%]{2,64})\], ?deviceId\[(?P<device>\d{1,4})\], ?(?:Heartbeat Lost|Stuck) Occurred"),
)
_TRACED = re.compile(
    r"\[HCCL_TRACE\]rank \[[\w.:%/]{2,70}\]: ?rank \[(?P<host>[\w.:%]{2,64})/(?P<device>\d{1,4})\] status\[(?:LOST|STUCK)\]"
)
_WAIT_FAILED = re.compile(r"\[ERROR\] ?HCCL\(.{1,300}taskType\[Notify Wait\]")
_NEAR = 8


class Said(NamedTuple):
    """One event: what it is, what it is about, and of which rank."""

    kind: str
    subject: str
    rank: int | None


class Hccl:
    """Collects what a file says of it."""

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}
        self._speaker: tuple[int, int] = 0, -1
        self._waits: dict[int, set[int]] = {}
        self._groups: set[str] = set()
        self._traced: dict[str, None] = {}
        self._line = 0

    def feed(self, number: int, line: str, rank: int | None) -> Iterator[Said]:
        """Take one line of `rank`, where that is known."""
        if not mentions(line, WORDS):
            return
        if said := _SPEAKER.search(line):
            known = rank_number(said["rank"])
            if known is not None and len(self._ranks) < MOST_RANKS:
                self._ranks[int(said["pid"])] = known
                self._speaker = number, known
        rank = self._own(number, line, rank)
        if failed := _DEVICE.search(line):
            yield Said("fatal_error", failed[0], rank)
        if refused := _NOT_STARTED.search(line):
            yield Said("start_failed", refused[0], rank)
        if notify := _NOTIFY.search(line):
            self._groups |= {tag[1] for tag in _TAG.finditer(line)} if len(self._groups) < 2 else set()
            self._wait(number, rank, notify["remote"])
            yield Said("transfer_timeout", f"HCCL: notify of rank {notify['remote']}", rank)
        elif link := _LINK.search(line) or _INIT.search(line):
            self._wait(number, int(link["own"]), link["remote"])
            yield Said("transfer_timeout", f"HCCL: connection to rank {link['remote']}", rank)
        elif _SOCKET.search(line) or _STALL.search(line):
            yield Said("transfer_timeout", "HCCL", rank)
        yield from self._silent(line, rank)

    def _silent(self, line: str, rank: int | None) -> Iterator[Said]:
        """Devices that fell silent; of a trace only once a wait failed: the heartbeat of a job that ends stops as well."""
        if traced := _TRACED.search(line):
            self._traced |= {_device(traced): None} if len(self._traced) < MOST_RANKS else {}
        elif _WAIT_FAILED.search(line):
            yield Said("transfer_timeout", "HCCL", rank)
            yield from (Said("process_lost", device, None) for device in self._traced)
            self._traced.clear()
        elif said := next(filter(None, (form.search(line) for form in _SILENT)), None):
            yield Said("process_lost", _device(said), None)

    def _own(self, number: int, line: str, rank: int | None) -> int | None:
        """The rank of a line: of its process, of the line itself, or of the line that spoke just above."""
        pid = _PID.search(line)
        if pid and int(pid[1]) in self._ranks:
            return self._ranks[int(pid[1])]
        before, speaker = self._speaker
        return speaker if rank is None and speaker >= 0 and pid is None and number - before <= _NEAR else rank

    def _wait(self, number: int, rank: int | None, remote: str) -> None:
        self._line = self._line or number
        if rank is not None and len(self._waits) < MOST_RANKS:
            waits = self._waits.setdefault(rank, set())
            if remote.isdigit():
                waits.add(int(remote))

    @property
    def positions(self) -> Iterator[LogPosition]:
        """Who waited, and who is waited for by most of them and waited for nobody."""
        missing = {remote for waits in self._waits.values() for remote in waits} - self._waits.keys()
        ranks = sorted(missing | self._waits.keys())
        naming = sum(bool(waits & missing) for waits in self._waits.values())
        is_job = ranks == list(range(len(ranks))) and len(self._groups) < 2
        if missing and is_job and len(missing) < len(self._waits) and 2 * naming > len(self._waits):
            yield from report("hccl", self._line, "hccl", self._waits, missing, kind="operation")


def _device(said: re.Match[str]) -> str:
    return f"device {said['device']} of {said['host']}"
