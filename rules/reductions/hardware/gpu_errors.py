"""Errors that the driver wrote of GPUs into the kernel log (Xids), GPUs that are lost, and the ranks whose GPUs they are.

What the codes mean: NVIDIA's "XID Errors" (r575). Errors that another one caused, that were repaired, or that only ask for an
action are not among them. An error before the job began is not of the job, and one after which its rank went on ended nothing.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows, rows_of
from forensics.model import Cause, Evidence, Finding
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.hardware.devices_in_order import devices_in_order
from forensics.rules.reductions.hardware.state import Machines, machines
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.owners import Owners, Place

_OF_DEVICE = {
    48: "memory error of two bits",
    64: "rows of its memory could not be remapped",
    79: "it has fallen off the bus",
    94: "memory error, contained in its process",
    95: "memory error that was not contained",
    119: "its system processor does not answer",
    120: "error of its system processor",
    140: "memory error that could not be corrected",
}
_FALLEN_OFF = 79
_OF_WORK = {
    13: "exception of its graphics engine",
    31: "page fault of its memory",
    32: "invalid stream of commands",
    43: "it stopped processing",
    46: "it stopped processing in time",
    61: "breakpoint of its microcontroller",
    62: "halt of its microcontroller",
    69: "error of a class of its graphics engine",
    74: "error of an NVLink",
    109: "timeout in a change of context",
}
"""What a program, or a peer, can cause as well."""
_OF_ITS_OWN = frozenset({46, 62, 109})
"""Of these what no peer causes: what waits for one, or reads memory that one has given back, gets other errors."""
_TELLERS = {"dcgm_metrics": "DCGM"}
# By `dmesg -T`, also behind the time at which something else printed it.
_DATED = re.compile(r"(?:\[?|.{0,80}? \[)[A-Z][a-z]{2} ([A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4})\]?\s")
_PID = re.compile(r"\bpid='?(\d{1,9})")
_BY_DEVICE = re.compile(
    r"(?:CUDA|Cuda|HIP|cuDNN|CUBLAS|cublas|NCCL)\w{0,20} (?:error|failure)|unhandled cuda|illegal memory access"
)
_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?")
# Clocks of hosts differ, and one error brings others: within this time nothing shows which was first.
_TOGETHER_NS = 5_000_000_000


@dataclass(frozen=True, slots=True)
class GpuError:
    """What one line says of a GPU: `address` is its place on PCI, or its number on the host where that is not known.

    `meaning` is the error in words, `of_device` that no program causes it, `teller` who wrote it, `time_ns` CLOCK_REALTIME if
    something dates it, `pid` the process that it names, `of_rank` that this is the process of the rank, `is_loose` that nothing
    ties it to a standstill which logs alone tell of, `is_lost` that the GPU answers nobody until its host is started again,
    `wall_ns` the time by a clock of unknown zone, `of_peer` that a peer may have caused it, `told` the host above.
    """

    host: str | None
    address: str | None
    meaning: str
    of_device: bool
    source: str
    time_ns: int | None = None
    pid: int | None = None
    teller: str = "the kernel log"
    of_rank: bool = False
    is_loose: bool = False
    is_lost: bool = False
    wall_ns: int | None = None
    of_peer: bool = False
    told: str | None = None


@dataclass(frozen=True, slots=True)
class GpuErrors:
    """The first error of the GPU of each rank, and errors of GPUs whose rank nothing tells.

    `reset` are ranks by the host and the device that a driver started anew, None where nothing tells the rank.
    """

    by_rank: Mapping[int, GpuError] = field(default_factory=dict)
    unplaced: tuple[GpuError, ...] = ()
    reset: Mapping[tuple[str | None, str], int | None] = field(default_factory=dict)

    def first(self, ranks: Container[int]) -> tuple[int, ...]:
        """Those of `ranks` whose GPU failed first: several where errors came together, or where nothing dates one of them."""
        times = {rank: error.time_ns for rank, error in self.by_rank.items() if rank in ranks and not error.is_loose}
        known = [time for time in times.values() if time is not None]
        if len(known) < len(times):
            return tuple(times)
        return tuple(rank for rank, time in times.items() if time is not None and time <= min(known) + _TOGETHER_NS)

    def statement(self, rank: int) -> Evidence:
        """What the kernel log says of the GPU of a rank."""
        error = self.by_rank[rank]
        return Evidence(f"{error.teller} reports of the GPU of rank {rank} ({error.address}): {error.meaning}", error.source)

    def refined(self, finding: Finding) -> Finding:
        """A finding about a device with the error that its driver wrote; unchanged without one."""
        error = self.by_rank.get(finding.ranks[0]) if len(finding.ranks) == 1 else None
        if error is None or error.is_loose:
            return finding
        return replace(finding, cause=Cause.GPU_FAULT, evidence=(*finding.evidence, self.statement(finding.ranks[0])))

    def refined_end(self, finding: Finding, said: str | None) -> Finding:
        """The same of a rank that ended by what it said, where that is an error of calls of its device."""
        return self.refined(finding) if said is not None and _BY_DEVICE.search(said) else finding


KernelLogs = NewType("KernelLogs", frozenset[str | None])
"""Hosts whose kernel logs were read; None for one of a host that nothing tells."""

GpuReports = NewType("GpuReports", bool)
"""Whether anything would tell of an error of a GPU, or does."""


# A record may begin a little after an error that the host did not notice at once.
_BEFORE_RECORD_NS = 60_000_000_000
# Kernel lines that stand in the log of a job are events of that log; those of a known rank are read as its own failure.
_XIDS = f"""
WITH lines AS (
    SELECT host, device, code, text, time_ns, source, path, locator, parser, '' AS told FROM device_event WHERE kind = 'xid'
    UNION ALL
    SELECT host, regexp_extract(subject, 'pci=(\\S+)', 1), CAST(regexp_extract(subject, 'code=(\\d+)', 1) AS INTEGER), text,
        time_ns, source, path, locator, NULL, regexp_extract(subject, ' host=(\\S+)', 1)
    FROM logged_event WHERE kind = 'xid' AND rank IS NULL
)
SELECT host, device, code, text, source, time_ns, parser, told FROM lines
WHERE code IS NOT NULL AND (time_ns IS NULL
    OR time_ns >= coalesce((SELECT min(enqueued_ns) FROM operations) - {_BEFORE_RECORD_NS}, time_ns))
ORDER BY time_ns NULLS LAST, path, locator
"""
_LOST = """
SELECT host, device, text, source, coalesce(time_ns, captured_ns), kind FROM device_event
WHERE kind IN ('gpu_lost', 'gpu_fallen_off', 'gpu_uncorrectable') ORDER BY ALL
"""
_RESET = "SELECT DISTINCT host, device FROM device_event WHERE kind = 'gpu_reset' AND device IS NOT NULL ORDER BY ALL"


@reduction
def kernel_logs(connection: DuckDBPyConnection) -> KernelLogs:
    """Of which hosts there is a kernel log."""
    query = "SELECT DISTINCT host FROM sources WHERE kind = 'kernel_log' AND status IN ('ok', 'partial')"
    rows = rows_of(connection, "sources", query, kinds=("kernel_log",))
    return KernelLogs(frozenset(host for (host,) in rows))


@reduction
def gpu_reports(read: KernelLogs, errors: GpuErrors) -> GpuReports:
    """Kernel logs, or an error that another source tells of."""
    return GpuReports(bool(read or errors.by_rank or errors.unplaced))


@reduction
def gpu_errors(calls: Calls, known: Owners) -> GpuErrors:
    """Read what ends the work of a GPU: Xids of kernel logs from the beginning of the job on, and GPUs that do not answer."""
    errors = [*_logged(calls.connection), *_lost(calls.connection)]
    reset = rows_of(calls.connection, "device_events", _RESET, kinds=("gpu_reset",))
    if not errors and not reset:
        return GpuErrors()
    by_address = devices_in_order(calls.connection) | _addresses(machines(calls.connection)) | _of_nccl(calls.connection)
    placed = {(host, device): known.among(by_address, host, _address(device)) for host, device in reset}
    return replace(_placed(calls.connection, known, by_address, errors), reset=placed)


def _logged(connection: DuckDBPyConnection) -> Iterator[GpuError]:
    """Errors in kernel logs; what a program can cause counts where its time, or the process it names, ties it to the job."""
    stated = any(has_rows(connection, table, ("xid",)) for table in ("device_events", "log_events"))
    for host, device, code, text, source, time_ns, parser, told in connection.execute(_XIDS).fetchall() if stated else ():
        pid, wall = _pid(text), wall_ns(text)
        time_ns = None if wall and time_ns and abs(wall - time_ns) > _ZONES_NS else time_ns
        words = _OF_DEVICE.get(code) or (_OF_WORK.get(code) if time_ns is not None or pid is not None else None)
        if words:
            place, teller = _address(device) or device, _TELLERS.get(parser, "the kernel log")
            said = GpuError(host, place, f"Xid {code} ({words})", code in _OF_DEVICE, source, time_ns, pid, teller)
            of_peer = code in _OF_WORK and code not in _OF_ITS_OWN
            yield replace(said, is_lost=code == _FALLEN_OFF, wall_ns=wall, of_peer=of_peer, told=told or None)


def _lost(connection: DuckDBPyConnection) -> Iterator[GpuError]:
    """GPUs that did not answer when somebody asked, or that the driver lost, or reports an error of, without an Xid."""
    for host, device, text, source, time_ns, kind in rows_of(connection, "device_events", _LOST):
        if kind == "gpu_lost":
            place = _address((device or "").removeprefix("GPU-")) or device
            yield GpuError(host, place, text or "it does not answer", True, source, time_ns, teller="nvidia-smi", is_lost=True)
            continue
        is_lost = kind == "gpu_fallen_off"
        meaning = "it has fallen off the bus" if is_lost else "hardware error that could not be corrected"
        yield GpuError(host, _address(device), meaning, True, source, time_ns, is_lost=is_lost, wall_ns=wall_ns(text))


def wall_ns(text: str | None) -> int | None:
    """The time in front of a line of `dmesg -T`, in ns; its zone is that of the host."""
    found = _DATED.match(text or "")
    try:
        return int(datetime.strptime(f"{found[1]} +0000", "%b %d %H:%M:%S %Y %z").timestamp()) * 10**9 if found else None
    except ValueError:
        return None


def _pid(text: str) -> int | None:
    match = _PID.search(text)
    return int(match[1]) if match else None


def _address(text: str | None) -> str | None:
    """Domain, bus and device of an address on PCI, without the function: `0000:3b:00`."""
    match = _ADDRESS.fullmatch(text or "")
    return f"{int(match[1] or '0', 16):04x}:{match[2].lower()}" if match else None


# A shim log shows when a call was entered, and not when it was enqueued.
_ISSUED = "SELECT rank, max(coalesce(enqueued_ns, entered_ns, 0)) FROM operations GROUP BY rank"


# A log names no zone as a rule, and no watchdog waits for longer than a day.
_ZONES_NS, _DAY_NS = 15 * 3_600_000_000_000, 24 * 3_600_000_000_000
_WENT_ON = f"""
SELECT max(ns) FROM (
    SELECT CAST(max(at_s) * 1e9 AS BIGINT) AS ns FROM log_progress WHERE clock = 'line'
    UNION ALL
    SELECT min(time_ns) - {_DAY_NS} FROM log_events WHERE kind IN ('watchdog_timeout', 'transfer_timeout', 'store_timeout')
)
"""


def _placed(
    connection: DuckDBPyConnection, known: Owners, by_address: Mapping[Place, int], errors: Sequence[GpuError]
) -> GpuErrors:
    """Find the ranks by the process that the driver names, else by the address of the GPU.

    Where both are known and differ, the process may be counted by another namespace: then nobody's.
    """
    issued = dict(connection.execute(_ISSUED).fetchall())
    ((went_on,),) = connection.execute(_WENT_ON).fetchall()
    found: dict[int, GpuError] = {}
    unplaced: dict[Place, GpuError] = {}
    for error in errors:
        own = known.rank(error.host, error.pid)
        user = known.among(by_address, error.host or error.told, error.address)
        rank = user if own is None else own if user in (own, None) else None
        if error.time_ns is None and not error.of_device and (own is None or issued):
            continue  # where calls are recorded, whether the rank made some later decides, and nothing shows that
        if rank is None:
            if not _is_old(error, went_on):
                unplaced.setdefault((error.host or error.told, error.address), error)
        elif error.time_ns is None or error.time_ns + _TOGETHER_NS > issued.get(rank, 0):
            is_loose = not issued and (_is_old(error, went_on) or (own is None and _is_of_another(error, known, rank)))
            if rank not in found or (found[rank].is_loose and not is_loose):
                found[rank] = replace(error, of_rank=own is not None, is_loose=is_loose)
    return GpuErrors(dict(sorted(found.items())), tuple(unplaced.values()))


def _is_old(error: GpuError, went_on: int | None) -> bool:
    """Whether the job made steps long after it, or waited for less than the time since: then it ended nothing."""
    when = error.time_ns if error.time_ns is not None else error.wall_ns
    return when is not None and went_on is not None and when + _ZONES_NS < went_on


def _is_of_another(error: GpuError, known: Owners, rank: int) -> bool:
    """Whether it names a process that is not the one known of the rank, for what a program can cause."""
    return error.pid is not None and not error.of_device and rank in known.processes.values()


_BUS_IDS = """
SELECT DISTINCT l.host, l.gpu, p.rank FROM log_positions l JOIN process_ranks p ON p.host = l.host AND p.pid = l.pid
WHERE l.gpu IS NOT NULL AND p.rank IS NOT NULL
"""


def _of_nccl(connection: DuckDBPyConnection) -> dict[Place, int]:
    """Ranks by the GPUs that NCCL's init says they use: domain, bus, device and function in one number."""
    found: dict[Place, int] = {}
    for host, gpu, rank in connection.execute(_BUS_IDS).fetchall():
        number = int(gpu, 16)
        found[host, f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}"] = rank
    return found


def _addresses(known: Machines) -> dict[Place, int]:
    named = {(gpu.host, gpu.device): rank for rank, gpu in known.gpus.items()}
    return named | {(gpu.host, _address(gpu.pci)): rank for rank, gpu in known.gpus.items() if gpu.pci}
