"""Kernel logs: GPU and link events, out-of-memory kills, hung tasks (docs/formats/kernel-log.md)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs.front import iso_time
from forensics.ingest._job_logs.patterns import FALLEN_OFF, TASK_OUT_OF_MEMORY, matches, pattern
from forensics.ingest._job_logs.stated_versions import DRIVER_WORDS, StatedVersions
from forensics.ingest._shared.content import Lines
from forensics.ingest.interface import Batch, Ingester, Item, Problem
from forensics.ingest.kernel_log.core_info import CoreInfo, is_info

MAX_EVENTS = 200_000
MAX_TEXT = 4096

_PREFIX = re.compile(
    r"(?:<\d+>)?\[ *\d{1,9}\.\d{6}\]|\d{1,3},\d+,\d+,[-c+](?:,[^;\n]{0,80})?;|.{0,80}\bkernel: "
    r"|\[\w{3} \w{3} +\d+ [\d:]{8} \d{4}\] "
    # The log of the Fabric Manager, which tells of NVSwitches what the kernel does.
    r"|\[\w{3} \d\d \d{4} [\d:]{8}\] \[\w{4,9}\] \[tid \d{1,9}\] "
)
# The driver writes some messages over several lines, of which the kernel stamps the first.
_GOES_ON = re.compile(r"\s{2,}NVRM: (?P<text>.*)")
_HOST = re.compile(r"(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT\S{8,30}) (?P<host>[\w.-]{1,253}) kernel: ")
_OF_A_JOB = re.compile(
    r"\[[Rr]ank ?\d{1,7}\]|ProcessGroup\w{1,20}\.cpp|NCCL (?:INFO|WARN) |Traceback \(most recent call last\)"
)
# What `coredumpctl list` prints of a process that ended by a fault of its own; watchdogs abort as well.
_CORE = (
    r"\w{3} \d{4}-\d\d-\d\d [\d:]{8} \w{2,5} {1,8}(?P<pid>\d{1,9}) {1,8}\d{1,10} {1,8}\d{1,10} {1,8}SIGSEGV {1,8}\w{3,12}"
    r" {1,8}/"
)
_LINES_ABOVE = 4  # a command, or what somebody says of it
_LINES_OF_INFO = 20
_CORE_HEADING = re.compile(r"(?:```)?TIME {1,40}PID {1,8}UID {1,8}GID {1,8}SIG ")
_WEEKDAY = re.compile(r"^[A-Z][a-z]{2} (?=\d{4}-\d\d-)")
_NFS = ("nfs: server ", "NFS: server ")
_DEVICE_EVENTS = (
    pattern(
        "xid_cascade",
        r"NVRM: Xid \((?:PCI:)?(?P<device>[\w:.]+)\): (?P<code>\d{1,5})\b.*caused by previous Xid \d+",
        "{device}",
    ),
    pattern(
        "xid", r"NVRM: Xid \((?:PCI:)?(?P<device>[\w:.]+)\): (?P<code>\d{1,5})\b(?!.*caused by previous Xid \d)", "{device}"
    ),
    pattern("gpu_fallen_off", FALLEN_OFF, "{device}"),
    pattern("sxid", r"SXid \((?:PCI:)?(?P<device>[\w:.]+)\): (?P<code>\d{1,5})\b", "{device}"),
    pattern(
        "sxid",
        r"NVSwitch fatal error (?P<code>\d{1,5}) on .{0,120}?pci bus id (?P<device>[\da-fA-F:.]{7,16})",
        "{device}",
    ),
    # Drivers that start a device anew: all that ran on it is gone. amdgpu does so with all that are joined to it.
    pattern(
        "gpu_reset",
        r"(?:amdgpu|habanalabs) (?P<device>[\da-f]{4}:[\da-f:.]{1,31}[\da-f])(?: \w{1,16})?: (?:amdgpu: )?"
        r"(?P<what>GPU reset begin!|Device heartbeat failed!|Going to (?:hard-|soft-)?reset device)",
        "{device}",
    ),
    pattern("link_down", r"(?<![\w.-])(?P<device>[\w.-]{1,64}): (?:NIC )?[Ll]ink (?:is )?[Dd]own\b", "{device}"),
    pattern("link_up", r"(?<![\w.-])(?P<device>[\w.-]{1,64}): (?:NIC )?[Ll]ink (?:is )?[Uu]p\b", "{device}"),
    pattern(
        "pcie_error",
        r"(?<![\da-f:.])(?P<device>[\da-f]{4}:[\da-f:.]{1,32}): (?:AER: )?PCIe Bus Error: severity=(?!Correct)",
        "{device}",
    ),
    pattern(
        "pcie_link",
        r"(?:mlx5_core|bnxt_en|ice) (?P<device>[\da-f]{4}:[\da-f:.]{1,32}): \d{1,5}\.\d{3} Gb/s available PCIe bandwidth",
        "{device}",
    ),
    # What amdgpu could not correct in the memory or a block of its own device, as often as it is noted anew.
    pattern(
        "gpu_uncorrectable",
        r"amdgpu (?P<device>[\da-f]{4}:[\da-f:.]{1,32}): .{0,80}\b[1-9]\d{0,9} (?:new )?uncorrectable hardware errors detected "
        r"in (?!total)\w{1,40} block",
        "{device}",
    ),
    # The driver of a NIC whose firmware stopped, and that does not come back by itself.
    pattern(
        "nic_fatal",
        r"mlx5_core (?P<device>[\da-f]{4}:[\da-f:.]{1,31}[\da-f])(?: \w{1,16})?: .{0,80}"
        r"(?:Fatal error \d{1,3} detected|health recovery flow aborted|reached miss count"
        r"|timeout\. Will cause a leak of a command resource|status bad system state)",
        "{device}",
    ),
    # What the memory of the host could not correct; the kernel ends, or warns, the process that it is of.
    pattern("memory_error", r"EDAC \w{2,12}: \d{1,9} UE ", ""),
    pattern(
        "memory_error",
        r"Memory failure: 0x[\da-f]{1,16}: (?:Sending SIGBUS to|Killing) .{1,64}:\d{1,9} due to hardware memory corruption",
        "",
    ),
    pattern("machine_check", r"mce: \[Hardware Error\]: Machine check", ""),
)
_LOG_EVENTS = (
    pattern("oom_kill", r"ut of memory.*Kill(?:ed)? process (?P<pid>\d{1,9})", "{pid}"),
    pattern("oom_kill", r"oom-kill:.*\bpid=(?P<pid>\d{1,9})\b", "{pid}"),
    *TASK_OUT_OF_MEMORY,
    pattern("hung_task", r"task .{1,64}:(?P<pid>\d{1,9}) blocked for more than \d+ seconds", "{pid}"),
    pattern("soft_lockup", r"soft lockup - CPU#\d+ stuck for [^\[]{0,64}\[[^\]]{0,64}:(?P<pid>\d{1,9})\]", "{pid}"),
    pattern("segfault", r"\[(?P<pid>\d{1,9})\](?:: segfault at| general protection)", "{pid}"),
    pattern("segfault", _CORE, "{pid}"),
    pattern("server_not_responding", r"(?:nfs|NFS): server (?P<server>\S+) not responding", "{server}", _NFS),
    pattern("server_ok", r"(?:nfs|NFS): server (?P<server>\S+) OK", "{server}", _NFS),
    pattern(
        "server_not_responding",
        r"Lustre(?:Error)?: .*Connection to (?P<server>[\w.-]+) \(at (?P<address>[^)\s]+)\) was lost",
        "{server}",
    ),
    pattern(
        "server_not_responding",
        r"Lustre: .{0,200}Request sent has (?:timed out for (?:slow|sent) \w+|failed due to network error): "
        r".{0,400}?->(?P<server>[\w.-]{1,64}?)-(?:osc|mdc|mgc)\b",
        "{server}",
    ),
    pattern(
        "server_not_responding",
        r"Lustre(?:Error)?: .*Request sent has (?:timed out for (?:slow|sent) \w+|failed due to network error)",
        "",
    ),
    pattern(
        "server_not_responding",
        r"[Nn]fs4?_\w+: .*server (?P<server>\S+) (?:timed out|unreachable)",
        "{server}",
        ("Nfs", "nfs"),
    ),
    pattern("server_ok", r"Lustre: (?P<server>[\w.-]+?)(?:-(?:osc|mdc)[\w.-]*)?: Connection restored to ", "{server}"),
    pattern("client_evicted", r"Lustre(?:Error)?: .*This client was evicted by (?P<server>[\w.-]+);", "{server}"),
    pattern(
        "kernel_oops",
        r"BUG: kernel NULL pointer dereference|RIP: \w+:(?P<function>\S+) \[nvidia\]",
        "{function}",
        ("BUG: kernel", "RIP: "),
    ),
    pattern("ceph_session_lost", r"ceph: (?P<server>mds\d+) (?:hung|caps stale|reconnect denied)", "{server}"),
)
# One of these stands in every line that some pattern matches, and such a line is no shorter ("a: Link Up").
_WORDS = (
    "off the bus",
    *(
        "Xid",
        "ink ",
        "PCIe Bus",
        "PCIe bandwidth",
        "Machine check",
        "ut of memory",
        "oom-kill",
        "due to memory ",
        "blocked for",
        "soft lockup",
        "segfault at",
    ),
    "SIGSEGV",
    "uncorrectable hardware errors",
    *("Fatal error ", "recovery flow aborted", "reached miss count", "EDAC ", "Memory failure: "),
    *("Will cause a leak of a command", "bad system state"),
    *("NVSwitch fatal error", "GPU reset begin!", "Device heartbeat failed!", "reset device"),
    *("general protection", "server ", "Lustre", "ceph: ", "BUG: kernel", "RIP: ", *DRIVER_WORDS),
)
_SHORTEST = 10
# Both lines of one out-of-memory kill name the same process.
_SAME_KILL_LINES = 200
# A job that hangs computes on queues of its own: what stands in a ring of graphics is of a desktop.
_OF_GRAPHICS, _GRAPHICS_LINES = re.compile(r"\bring gfx_\S{1,16} timeout"), 40


def sniff(head: bytes, path: str) -> int:
    """Lines that start as dmesg, /dev/kmsg or the journal write kernel messages; not a log of a job with some among them."""
    if b"\0" in head or head[:1] == b"{":
        return 0
    lines = [line for line in head.decode("utf-8", "replace").splitlines()[:50] if line.strip("- ") and line[:3] != "-- "]
    others = [
        line
        for line in lines
        if not (_PREFIX.match(line) or _GOES_ON.match(line) or ("dmesg" in path and iso_time(line) is not None))
    ]
    if any(_CORE_HEADING.match(line) for line in lines[:_LINES_ABOVE]) or is_info(lines[:_LINES_OF_INFO]):
        return 60
    if any(_OF_A_JOB.search(line) for line in others):
        return 0
    return 60 if lines and 2 * len(others) < len(lines) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Device events and log events in the order of the log."""
    devices: dict[str, list[Any]] = defaultdict(list)
    events: dict[str, list[Any]] = defaultdict(list)
    kills: dict[str, int] = {}
    drawn = -_GRAPHICS_LINES
    lines = Lines(artefact)
    versions, cores = StatedVersions(), CoreInfo()
    for number, line in _joined(lines):
        if core := cores.feed(line):
            _add(events, number, line, "core_dumped", core[1])
            events["subject"].append(core[0])
        drawn = number if "ring gfx_" in line and _OF_GRAPHICS.search(line) else drawn
        if len(line) < _SHORTEST or not any(word in line for word in _WORDS):
            continue
        versions.feed(line)
        for known, match, device in matches(_DEVICE_EVENTS, line):
            if known.kind == "gpu_reset" and number - drawn < _GRAPHICS_LINES:
                continue
            code = match.groupdict().get("code")
            _add(devices, number, line, known.kind, artefact.host)
            devices["device"].append(device)
            devices["code"].append(int(code) if code else None)
        for known, _, subject in matches(_LOG_EVENTS, line):
            if known.kind == "oom_kill" and number - kills.get(str(subject), -_SAME_KILL_LINES) < _SAME_KILL_LINES:
                continue
            if known.kind == "oom_kill":
                kills[str(subject)] = number
            _add(events, number, line, known.kind, artefact.host)
            events["subject"].append(subject)
        if len(devices["kind"]) + len(events["kind"]) >= MAX_EVENTS:
            yield Problem(f"more than {MAX_EVENTS} events; the rest was left out", f"line={number}")
            break
    if devices["kind"]:
        yield Batch("device_events", devices)
    if events["kind"]:
        yield Batch("log_events", events)
    yield from versions.batches()
    if lines.problem is not None:
        yield lines.problem


def _joined(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines, and where one goes on below another that shows nothing by itself, what both say together."""
    above = ""
    for number, whole in lines:
        line = whole[:MAX_TEXT]
        more = _GOES_ON.match(line) if line[:1] in " \t" else None
        if more is None:
            above = line if "NVRM: " in line and not any(word in line for word in _WORDS) else ""
        elif above:
            above = line = f"{above} {more['text']}"[:MAX_TEXT]
        yield number, line


def _add(columns: dict[str, list[Any]], number: int, line: str, kind: str, host: str | None) -> None:
    """A row; the host in a line counts where nothing else tells it: it may be another name of the same host."""
    said = _HOST.match(line) if host is None else None
    columns["host"].append(said["host"] if said else host)
    columns["locator"].append(number)
    columns["time_ns"].append(iso_time(_WEEKDAY.sub("", line)))
    columns["kind"].append(kind)
    columns["text"].append(line)


INGESTER = Ingester("kernel_log", "kernel_log", sniff, rows, most=60)
