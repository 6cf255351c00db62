"""What a host and a rank are: the documents node.json and rank.json, from files of /proc that do not block."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from forensics.bundle.kept_variables import is_kept
from forensics.bundle.redaction import redact, redact_argv
from forensics.collect.absence import MissingRank
from forensics.collect.collectors.clock import SYNC_FILE
from forensics.collect.cpu_limits import cpu_limit
from forensics.collect.discovery import FoundRank
from forensics.collect.host_load import host_load
from forensics.collect.permissions import ptrace_scope
from forensics.collect.processes import ProcFs, descendants
from forensics.collect.scan import Process, Scan
from forensics.collect.target import Context, start_ns
from forensics.native import ClockReading

_CONTAINERS = re.compile(r"docker|containerd|kubepods|crio|libpod|lxc|buildkit")
_CHILDREN = 256
_OOM = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_LONGEST = 4096


def node_document(context: Context, scan: Scan, clocks: Sequence[ClockReading]) -> dict[str, Any]:
    """The host and what limits the collector on it."""
    names = os.uname()
    return {
        "node": context.node,
        "hostname": names.nodename,
        "boot_id": _file(context.procfs.root / "sys/kernel/random/boot_id"),
        "kernel": names.release,
        "machine": names.machine,
        "clocks": [
            {
                "realtime_ns": one.realtime_ns,
                "monotonic_ns": one.monotonic_ns,
                "boottime_ns": one.boottime_ns,
                "bound_ns": one.bound_ns,
            }
            for one in clocks
        ],
        "clock_sync": _file(context.staging.root / SYNC_FILE),
        "ptrace_scope": ptrace_scope(context.procfs),
        "cap_eff": _own_status(context.procfs, "CapEff"),
        "euid": os.geteuid(),
        "container": _container(context.procfs),
        "cpu": host_load(context.procfs),
        "processes_seen": len(scan.processes),
        "processes_unreadable": len(scan.unreadable),
        "processes_stuck": list(scan.stuck),
    }


def rank_document(context: Context, scan: Scan, found: FoundRank, counts: Counter[str]) -> dict[str, Any]:
    """A living rank and its process."""
    process = found.process
    env, withheld = split_environment(process.environ or {}, counts)
    status = _status(context.procfs, process.pid)
    groups, mount = _cgroup_paths(context.procfs, process.pid), context.sysfs / "fs/cgroup"
    return {
        "rank": found.rank,
        "node": context.node,
        "local_rank": found.claim.local_rank if found.claim else None,
        "rank_method": found.method,
        "pid": process.pid,
        "ns_pid": _last_number(status.get("NSpid")),
        "ppid": process.stat.ppid,
        "start_ns": start_ns(process.stat),
        "state": "alive",
        "exit_signal": None,
        "exit_code": None,
        "state_method": f"process {process.pid} is running (state {process.stat.state})",
        "cmdline": redact_argv(process.cmdline, counts),
        "env": env,
        "env_withheld": withheld,
        "env_error": process.error,
        "cgroup": _cgroup(groups),
        "cpus_allowed": status.get("Cpus_allowed_list"),
        "nice": process.stat.nice,
        "cpu_limit": cpu_limit(groups, mount),
        "oom_kill": _oom_kills(groups, mount),
        "children": _children(scan, process.pid, found.detached, counts, found.started),
        "devices": _devices(context.procfs, process.pid),
    }


def missing_document(
    context: Context, scan: Scan, missing: MissingRank, local_rank: int | None, counts: Counter[str]
) -> dict[str, Any]:
    """A rank without a living process, with what it left behind."""
    dead = scan.processes.get(missing.pid) if missing.pid is not None else None
    return {
        "rank": missing.rank,
        "node": None if missing.state == "unknown" else context.node,
        "local_rank": local_rank,
        "rank_method": None,
        "pid": missing.pid,
        "ns_pid": None,
        "ppid": dead.stat.ppid if dead else None,
        "start_ns": start_ns(dead.stat) if dead else None,
        "state": missing.state,
        "exit_signal": missing.exit_signal,
        "exit_code": missing.exit_code,
        "state_method": missing.method,
        "cmdline": [],
        "env": {},
        "env_withheld": [],
        "cgroup": None,
        "cpus_allowed": None,
        "nice": None,
        "cpu_limit": None,
        "oom_kill": None,
        "children": _children(scan, None, missing.orphans, counts),
        "devices": [],
    }


def _children(
    scan: Scan, root: int | None, lost: Sequence[int], counts: Counter[str], started: Collection[int] = ()
) -> list[dict[str, Any]]:
    """Processes below `root` without the ranks that it started, then those that lost it as their parent, and what is below."""
    stats = scan.stats
    below = descendants(stats, root, started) if root is not None else []
    pids = dict.fromkeys([*below, *lost, *(pid for one in lost for pid in descendants(stats, one))])
    return [_child(scan.processes[pid], counts) for pid in list(pids)[:_CHILDREN] if pid in scan.processes]


def _child(process: Process, counts: Counter[str]) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "ppid": process.stat.ppid,
        "name": process.stat.comm,
        "cmdline": redact_argv(process.cmdline, counts),
    }


def _cgroup(paths: Mapping[str, str]) -> str | None:
    """Path of the control group: of the unified hierarchy, else of the memory controller."""
    unified = paths.get("", "/")
    return unified if unified != "/" else paths.get("memory", paths.get(""))


def _cgroup_paths(procfs: ProcFs, pid: int) -> dict[str, str]:
    """Path by controller; the unified hierarchy has the controller ``."""
    try:
        lines = procfs.text(pid, "cgroup").splitlines()
    except OSError:
        return {}
    fields = (line.split(":", 2) for line in lines)
    return {name: one[2] for one in fields if len(one) == 3 for name in one[1].split(",")}


def _oom_kills(paths: Mapping[str, str], mount: Path) -> int | None:
    """How often the kernel killed something in the control group for want of memory."""
    for controller, folder, name in (("", ".", "memory.events"), ("memory", "memory", "memory.oom_control")):
        if controller in paths:
            match = _OOM.search(_file(mount / folder / paths[controller].lstrip("/") / name) or "")
            if match:
                return int(match[1])
    return None


def _devices(procfs: ProcFs, pid: int) -> list[str]:
    try:
        targets = procfs.descriptors(pid).values()
    except OSError:
        return []
    return sorted({target for target in targets if target.startswith(("/dev/nvidia", "/dev/infiniband"))})


def _container(procfs: ProcFs) -> str | None:
    """The kind of container this process runs in, as far as its own control groups and marks tell."""
    for mark, kind in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if Path(mark).exists():
            return kind
    match = _CONTAINERS.search(_file(procfs.root / "self/cgroup") or "")
    return match[0] if match else None


def _own_status(procfs: ProcFs, name: str) -> str | None:
    lines = (_file(procfs.root / "self/status") or "").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), None)


def _status(procfs: ProcFs, pid: int) -> dict[str, str]:
    try:
        return procfs.status(pid)
    except OSError:
        return {}


def _last_number(text: str | None) -> int | None:
    words = (text or "").split()
    return int(words[-1]) if words and words[-1].isdecimal() else None


def _file(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip() or None
    except OSError:
        return None


def split_environment(environ: Mapping[str, str], counts: Counter[str]) -> tuple[dict[str, str], list[str]]:
    """Kept variables with their value, without secrets, and the names of the withheld ones."""
    kept = {name: redact(value[:_LONGEST], counts) for name, value in sorted(environ.items()) if is_kept(name)}
    return kept, sorted(name for name in environ if name not in kept)
