"""What is and is not in place to see a hang: on this host, and in one process; each check with its reason and what to do."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from forensics.collect.collectors.py_spy import find_py_spy
from forensics.collect.collectors.shim_logs import default_folder
from forensics.native import library_path
from forensics.shim.elf import nccl_version, needed
from forensics.shim.launch import LIBRARY

LEAST_PLUGIN = (2, 23)
"""First NCCL that loads profiler plugins (src/include/plugin/profiler of 2.23)."""
LOG_BYTES = 8 << 20
_SHARE = 16
"""The writer takes at most this part of the free space for a log."""
_RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_RECORDER_DUMPS = ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT")


class Health(StrEnum):
    """Whether something is there: `missing` is what a diagnosis cannot do without, `unknown` what cannot be known from here."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARN = "warn"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it is, why, and what to do about it (empty when nothing)."""

    name: str
    health: Health
    reason: str
    advice: str = ""


def host_checks(environ: Mapping[str, str]) -> Iterator[Check]:
    """Checks of this installation and host; `environ` is that of the shell that starts the job."""
    yield from _library()
    yield from _nccl(find_nccl())
    yield _memory_folder(Path(environ.get("FORENSICS_SHIM_DIR") or default_folder(os.geteuid())))
    yield _py_spy()
    yield recorder_settings(environ)
    yield _clock_source()
    yield _rdma()


def _library() -> Iterator[Check]:
    path = library_path(LIBRARY)
    if path is None:
        advice = "install a wheel, or build with a C compiler"
        yield Check("collector library", Health.MISSING, "this installation has no libforensics_shim.so", advice)
        return
    yield Check("collector library", Health.OK, str(path))
    trouble = _preload_trouble(path)
    if trouble:
        yield Check("collector loads", Health.MISSING, trouble, "see the loader's message; was it built for this system?")
    else:
        yield Check("collector loads", Health.OK, "a program starts with it preloaded")


def _preload_trouble(path: Path) -> str | None:
    """What the dynamic loader says against preloading the library into this interpreter; it stays asleep there."""
    environ = {"LD_PRELOAD": str(path), "PATH": os.environ.get("PATH", "")}
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-E", "-c", ""], env=environ, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"could not be tried: {error}"
    said = next((line for line in done.stderr.splitlines() if path.name in line), None)
    return said or (f"a program that preloads it ends with {done.returncode}" if done.returncode else None)


def find_nccl() -> dict[str, Path]:
    """Files with NCCL inside, or that ask for it, beside this Python: the wheel's library and torch's own."""
    places = {"libnccl.so.2": "nvidia/nccl/lib/libnccl.so.2", "libtorch_cuda.so": "torch/lib/libtorch_cuda.so"}
    folders = [Path(entry) for entry in sys.path if entry]
    found = {}
    for name, inside in places.items():
        path = next((folder / inside for folder in folders if (folder / inside).is_file()), None)
        if path is not None:
            found[name] = path
    return found


def _nccl(found: Mapping[str, Path]) -> Iterator[Check]:
    torch, nccl = found.get("libtorch_cuda.so"), found.get("libnccl.so.2")
    if torch is None and nccl is None:
        words = "neither torch with CUDA nor the NCCL wheel is beside this Python"
        yield Check("NCCL", Health.WARN, words, "run doctor with the job's Python, or with --pid of a rank")
        return
    if torch is not None:
        yield linking(torch, needed(torch))
    carrier = nccl or torch
    if carrier is not None:
        yield plugin_support(nccl_version(carrier), carrier)


def linking(torch: Path, wanted: tuple[str, ...]) -> Check:
    """Whether preloading reaches the NCCL that torch calls."""
    if any(name.startswith("libnccl.so") for name in wanted):
        return Check("NCCL linking", Health.OK, f"{torch.name} asks for libnccl.so: both hooks work")
    words = f"{torch.name} has NCCL inside (static): preloading may not see its calls"
    return Check("NCCL linking", Health.WARN, words, "set NCCL_PROFILER_PLUGIN: that hook works for static NCCL too")


def plugin_support(version: str | None, path: Path) -> Check:
    """Whether this NCCL loads profiler plugins."""
    if version is None:
        return Check(
            "NCCL version", Health.WARN, f"{path} does not state its version", "NCCL 2.23 or newer has the profiler hook"
        )
    numbers = tuple(int(part) for part in version.split("."))
    if numbers[:2] < LEAST_PLUGIN:
        words = f"{version} has no profiler plugins: no chunk state"
        return Check("NCCL version", Health.WARN, words, "use NCCL 2.23 or newer; preloading works with this one")
    return Check("NCCL version", Health.OK, f"{version} loads profiler plugins ({path})")


def _memory_folder(folder: Path) -> Check:
    place = next((parent for parent in (folder, *folder.parents) if parent.exists()), Path("/"))
    try:
        facts = os.statvfs(place)
    except OSError as error:
        return Check(
            "log folder", Health.MISSING, f"{folder}: {error.strerror}", "set FORENSICS_SHIM_DIR to a folder that can be used"
        )
    free, wanted = facts.f_bavail * facts.f_frsize, _SHARE * LOG_BYTES
    size = f"{free >> 20} MiB free: a rank takes a sixteenth of it, at most {LOG_BYTES >> 20} MiB"
    if place == folder and _is_foreign(folder):
        words = f"{folder} is a link, of somebody else, or writable by others: it is not used"
        return Check("log folder", Health.MISSING, words, "remove it, or set FORENSICS_SHIM_DIR")
    if not os.access(place, os.W_OK):
        return Check("log folder", Health.MISSING, f"{place} cannot be written", "set FORENSICS_SHIM_DIR to a folder that can")
    if free < wanted:
        advice = "docker run --shm-size=1g, or FORENSICS_SHIM_BYTES=2097152, or FORENSICS_SHIM_DIR on a disk"
        return Check("log folder", Health.WARN, f"{place}: {size}", advice)
    return Check("log folder", Health.OK, f"{place}: {size}")


def _is_foreign(folder: Path) -> bool:
    """The writer's rule for the folder that it makes for itself."""
    if folder != Path(default_folder(os.geteuid())):
        return False
    facts = folder.lstat()
    return not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or bool(facts.st_mode & 0o022)


def _py_spy() -> Check:
    path = find_py_spy()
    if path is None:
        return Check("py-spy", Health.WARN, "not found: no Python stacks", "pip install 'forensics[collect]'")
    return Check("py-spy", Health.OK, path)


def recorder_settings(environ: Mapping[str, str]) -> Check:
    """Whether torch's Flight Recorder keeps calls and writes them when its watchdog gives up."""
    sizes = [environ[name] for name in _RECORDER_SIZES if environ.get(name, "").isdigit()]
    dumps = next((environ[name] for name in _RECORDER_DUMPS if environ.get(name)), "")
    advice = "export TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"
    if not sizes:
        words = "its buffer size is not set: the default of torch, 0 in old releases and 2000 in 2.13"
        return Check("Flight Recorder", Health.WARN, words, advice)
    if all(int(size) == 0 for size in sizes):
        return Check("Flight Recorder", Health.WARN, "switched off", advice)
    if dumps.lower() not in ("1", "true", "y", "yes", "on"):
        return Check(
            "Flight Recorder", Health.WARN, "on, but it does not dump on a timeout", "export TORCH_NCCL_DUMP_ON_TIMEOUT=1"
        )
    return Check("Flight Recorder", Health.OK, f"keeps {max(map(int, sizes))} calls and dumps on a timeout")


def _clock_source() -> Check:
    source = _text(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource"))
    if source in ("tsc", "arch_sys_counter", "kvm-clock", None):
        return Check("clock", Health.OK if source else Health.UNKNOWN, source or "the kernel does not state its source of time")
    return Check(
        "clock", Health.WARN, f"the kernel does not trust the CPU counter ({source})", "a record then costs some 30 ns more"
    )


def _rdma() -> Check:
    root = Path("/sys/class/infiniband")
    try:
        devices = sorted(entry.name for entry in root.iterdir())
    except OSError:
        devices = []
    if not devices:
        return Check("RDMA", Health.OK, "no InfiniBand or RoCE device: NCCL uses sockets, the verbs hook stays unused")
    return Check("RDMA", Health.OK, ", ".join(devices))


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return None
