"""What this process may see of the host when a job hangs: memory of the ranks, the kernel's log, GPUs; and where it may write.

What can be tried is tried, on this process itself. Rules: Documentation/admin-guide/LSM/Yama.rst and sysctl/kernel.rst of
Linux; moby/profiles/seccomp/default.json, which lets process_vm_readv through with CAP_SYS_PTRACE, syslog with CAP_SYSLOG.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from forensics.collect.collectors.fr_files import PREFIX_VARIABLES, prefixes
from forensics.collect.collectors.kernel_log import KMSG, read_kmsg
from forensics.collect.permissions import ptrace_scope
from forensics.collect.processes import ProcFs
from forensics.shim.doctor import Check, Health

_PTRACE, _SYSLOG = 1 << 19, 1 << 34  # CAP_SYS_PTRACE, CAP_SYSLOG
_LEAST_FREE = 2 << 30
_DUMP_BYTES = 64 << 20
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_ALLOW_READING = "docker run --cap-add SYS_PTRACE, or securityContext: {capabilities: {add: [SYS_PTRACE]}}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the facts are read; a test gives folders of its own."""

    procfs: ProcFs = field(default_factory=ProcFs)
    kmsg: Path = KMSG
    devices: Path = Path("/dev")
    root: Path = Path("/")
    euid: int = field(default_factory=os.geteuid)


def access_checks(environ: Mapping[str, str], place: Place | None = None) -> Iterator[Check]:
    """Checks of what `forensics collect` would be allowed here; `environ` is that of the shell that starts the job."""
    found = place or Place()
    status = _status(found.procfs)
    yield _privileges(status, found)
    yield _reading(memory_error(), status)
    yield _scope(ptrace_scope(found.procfs), status, found.euid)
    yield _kernel_log(found, status)
    yield _gpus(found.devices)
    yield dump_place(environ)
    yield _disk(Path.cwd())


def _status(procfs: ProcFs) -> Mapping[str, str]:
    try:
        return procfs.status(os.getpid())
    except OSError:
        return {}


def _has(status: Mapping[str, str], capability: int) -> bool | None:
    """Whether this process has a capability; None when the kernel does not tell."""
    try:
        return bool(int(status["CapEff"], 16) & capability)
    except (KeyError, ValueError):
        return None


def _privileges(status: Mapping[str, str], place: Place) -> Check:
    """User, capabilities, system call filter and container: what the other lines rest on."""
    known = {True: "yes", False: "no", None: "unknown"}
    filtered = {"0": "none", "1": "strict", "2": "on"}.get(status.get("Seccomp", ""), "unknown")
    contained = any((place.root / mark.lstrip("/")).exists() for mark in _CONTAINER_MARKS)
    words = (
        f"uid {place.euid}, CAP_SYS_PTRACE {known[_has(status, _PTRACE)]}, CAP_SYSLOG {known[_has(status, _SYSLOG)]}, "
        f"system call filter {filtered}, {'in a container' if contained else 'no mark of a container'}"
    )
    return Check("privileges", Health.OK if status else Health.UNKNOWN, words)


def memory_error() -> int:
    """The errno of reading this process's own memory by process_vm_readv: only a system call filter refuses that; 0: none."""
    libc = ctypes.CDLL(None, use_errno=True)
    source, target = ctypes.create_string_buffer(b"x"), ctypes.create_string_buffer(1)
    vector = ctypes.c_void_p * 2
    local, remote = vector(ctypes.addressof(target), 1), vector(ctypes.addressof(source), 1)
    try:
        done = libc.process_vm_readv(os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    except AttributeError:
        return errno.ENOSYS
    return 0 if done == 1 else ctypes.get_errno()


def _reading(error: int, status: Mapping[str, str]) -> Check:
    if error in (errno.EPERM, errno.ENOSYS):
        filtered = " by a system call filter" if status.get("Seccomp") == "2" else ""
        words = f"process_vm_readv is refused{filtered} ({os.strerror(error)}): no stacks"
        return Check("stacks", Health.WARN, words, _ALLOW_READING)
    if error:
        return Check("stacks", Health.UNKNOWN, f"process_vm_readv could not be tried: {os.strerror(error)}")
    return Check("stacks", Health.OK, "process_vm_readv is allowed; whether of a rank, the next line and its user decide")


def _scope(scope: int | None, status: Mapping[str, str], euid: int) -> Check:
    """Yama: 0 lets the user of the job read its memory, 1 its parents, 2 CAP_SYS_PTRACE, 3 nobody."""
    may = _has(status, _PTRACE)
    if scope is None:
        words = "kernel.yama.ptrace_scope is not there: no Yama, or /proc/sys is hidden"
        return Check("ptrace scope", Health.OK if may else Health.UNKNOWN, words)
    if scope == 0 or (scope < 3 and may):
        return Check("ptrace scope", Health.OK, f"{scope}{'' if scope == 0 else ', but this has CAP_SYS_PTRACE'}")
    if scope >= 3:
        return Check(
            "ptrace scope", Health.WARN, "3: nobody may, until the next boot", "boot with kernel.yama.ptrace_scope below 3"
        )
    advice = "sysctl -w kernel.yama.ptrace_scope=0, or collect as root" if euid else _ALLOW_READING
    return Check("ptrace scope", Health.WARN, f"kernel.yama.ptrace_scope is {scope}", advice)


def _kernel_log(place: Place, status: Mapping[str, str]) -> Check:
    """Whether Xid and link messages can be read: tried, not derived."""
    try:
        next(iter(read_kmsg(place.kmsg)), b"")
        return Check("kernel log", Health.OK, f"{place.kmsg} can be read: Xid and link errors will be seen")
    except OSError as error:
        said = f"{place.kmsg}: {error.strerror}"
    if not place.kmsg.exists():
        return Check(
            "kernel log",
            Health.WARN,
            f"{said}: no Xid",
            "docker run --device /dev/kmsg --cap-add SYSLOG, or collect on the host",
        )
    advice = "sysctl -w kernel.dmesg_restrict=0, or usermod -aG systemd-journal USER, or collect as root"
    if _has(status, _SYSLOG):
        advice = "the device is refused in this container: docker run --device /dev/kmsg, or collect on the host"
    restricted = _text(place.procfs.root / "sys/kernel/dmesg_restrict")
    setting = f"kernel.dmesg_restrict is {restricted}" if restricted else "kernel.dmesg_restrict cannot be read"
    journal = "; the journal was not tried" if shutil.which("journalctl") else ""
    return Check("kernel log", Health.WARN, f"{said}, {setting}{journal}: Xid may go unseen", advice)


def _gpus(devices: Path) -> Check:
    try:
        there = sorted(
            entry.name for entry in devices.iterdir() if entry.name.startswith("nvidia") and entry.name[6:].isdigit()
        )
    except OSError as error:
        return Check("GPUs", Health.UNKNOWN, f"{devices}: {error.strerror}")
    if not there:
        return Check("GPUs", Health.OK, "no /dev/nvidia*: none here, or hidden from this container")
    if shutil.which("nvidia-smi") is None:
        return Check(
            "GPUs", Health.WARN, f"{len(there)}, without nvidia-smi on PATH", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        )
    return Check("GPUs", Health.OK, f"{len(there)}, nvidia-smi is on PATH")


def dump_place(environ: Mapping[str, str], seen: Callable[[str], Path] = Path) -> Check:
    """Where the dumps of the Flight Recorder go when the watchdog gives up, and whether that folder takes them.

    `seen` gives a path of the job as this process can open it.
    """
    prefix = prefixes(environ)[0]
    chosen = any(environ.get(name) for name in PREFIX_VARIABLES)
    folder = seen(str(Path(prefix).parent))
    whose = "" if chosen else ", the default of newer torch (older: /tmp/nccl_trace_rank_)"
    words = f"{prefix}<rank>{whose}"
    advice = "mkdir -p DIR; export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=DIR/rank_ TORCH_FR_DUMP_TEMP_FILE=DIR/rank_"
    if not folder.is_dir():
        if not chosen:
            return Check("dump files", Health.UNKNOWN, f"{words}: the folder is made by torch, or not", advice)
        return Check("dump files", Health.WARN, f"{words}: there is no such folder", f"mkdir -p {Path(prefix).parent}")
    if not os.access(folder, os.W_OK):
        return Check("dump files", Health.WARN, f"{words}: {folder} cannot be written by uid {os.geteuid()}", advice)
    free = shutil.disk_usage(folder).free
    if free < _DUMP_BYTES:
        return Check("dump files", Health.WARN, f"{words}: {free >> 20} MiB free", advice)
    return Check("dump files", Health.OK, f"{words}, {free >> 20} MiB free")


def _disk(folder: Path) -> Check:
    """Collect gives up what would leave less than 1 GiB."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("disk", Health.UNKNOWN, f"{folder}: {error.strerror}")
    if free < _LEAST_FREE:
        return Check("disk", Health.WARN, f"{folder}: {free >> 20} MiB free", "forensics collect -o /PATH/WITH/2GiB/bundle.tar")
    return Check("disk", Health.OK, f"{folder}: {free >> 20} MiB free for a bundle")


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return None
