"""What the logs of living or dead processes say now: who wrote them, which hooks saw calls, how far communicators got."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.file import ShimFile, read_file, text

MOST_FILES = 4096
FRESH_S = 5.0
"""The heartbeat comes every second."""
RECORDING = 1
_ENDINGS = (".frx", ".off", ".tmp")
_HOOKS = {"profiler": (0,), "verbs": (18, 19, 20, 21), "nccl": (32,)}
"""Bits of each hook in the second coverage word (docs/formats/shim-log.md)."""


@dataclass(frozen=True, slots=True)
class CommunicatorStatus:
    """One communicator of one process: its last operation, and whether a thread is inside a call of it now."""

    communicator: str
    group_rank: int
    size: int
    state: str
    operations: int
    finished: int | None
    last_kind: str | None
    inside: str | None


@dataclass(frozen=True, slots=True)
class LogStatus:
    """One log file. `alive` is None when nothing here tells it: the process is of another host, boot, or process namespace.

    `beat_age_s` is the time since the last heartbeat by the clock of this host. `hooked` and `called` name hooks. `lost` are
    records that were overwritten or found no ring, `torn` those that were being written.
    """

    path: str
    problem: str | None = None
    host: str | None = None
    rank: int | None = None
    pid: int | None = None
    alive: bool | None = None
    state: str | None = None
    beat_age_s: float | None = None
    hooked: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    nccl_version: int | None = None
    communicators: tuple[CommunicatorStatus, ...] = ()
    lost: int = 0
    torn: int = 0


def log_folders(environ: Mapping[str, str]) -> list[Path]:
    """Where logs are looked for: the folder of the variable, else this user's own, for root those of all users."""
    from forensics.collect.collectors.shim_logs import DISK, MEMORY, default_folder, default_folders

    if environ.get("FORENSICS_SHIM_DIR"):
        return [Path(environ["FORENSICS_SHIM_DIR"])]
    uid = os.geteuid()
    found = [folder for below in (MEMORY, DISK) for folder in default_folders(Path(below), uid or None)]
    return found or [Path(default_folder(uid))]


def log_files(place: Path) -> list[Path]:
    """Files of logs at or below a path, by name, at most `MOST_FILES`, the newest ones. Raises OSError."""
    if place.is_file():
        return [place]
    found = [Path(folder) / name for folder, _, names in os.walk(place) for name in names if name.endswith(_ENDINGS)]
    if len(found) > MOST_FILES:
        found = sorted(found, key=_modified, reverse=True)[:MOST_FILES]
    return sorted(found)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def statuses(files: Sequence[Path], procfs: Path = Path("/proc")) -> Iterator[LogStatus]:
    """The status of each file, by rank; a file that cannot be read says why."""
    found = [_status(path, procfs) for path in files]
    yield from sorted(found, key=lambda one: (one.rank is None, one.rank or 0, one.host or "", one.pid or 0, one.path))


def _status(path: Path, procfs: Path) -> LogStatus:
    try:
        with path.open("rb") as stream:
            if stream.read(11) == b"FRXSHIM-OFF":
                return LogStatus(str(path), problem=_switched_off(stream.read(256)))
            stream.seek(0)
            items = list(read_file(stream))
    except OSError as error:
        return LogStatus(str(path), problem=error.strerror or str(error))
    log = next((item for item in items if isinstance(item, ShimFile)), None)
    problems = [item.message for item in items if not isinstance(item, ShimFile)]
    if log is None:
        return LogStatus(str(path), problem="; ".join(problems) or "not a log")
    return _of_log(path, log, "; ".join(problems) or None, procfs)


def _switched_off(line: bytes) -> str:
    from forensics.ingest.shim_log.coverage import note_text

    numbers = [int(word) for word in line.replace(b"=", b" ").split() if word.isdigit()]
    return note_text(numbers[1], numbers[2]) if len(numbers) >= 3 else "recorded nothing: reason unknown"


def _of_log(path: Path, log: ShimFile, problem: str | None, procfs: Path) -> LogStatus:
    from forensics.ingest.shim_log.rings import read_rings

    rings = read_rings(log)
    dropped = int(log.live["dropped"].sum())
    return LogStatus(
        path=str(path),
        problem=problem,
        host=log.host,
        rank=log.rank,
        pid=int(log.head["pid"]),
        alive=is_alive(log, procfs),
        state=layout.LOG_STATES.get(int(log.live["state"])),
        beat_age_s=_beat_age(log),
        hooked=_hooks(log.live["hooked"]),
        called=_hooks(log.live["called"]),
        nccl_version=int(log.live["nccl_version"]) or None,
        communicators=tuple(_communicators(log, rings)),
        lost=sum(ring.overwritten for ring in rings) + dropped,
        torn=sum(ring.torn for ring in rings),
    )


def is_alive(log: ShimFile, procfs: Path = Path("/proc")) -> bool | None:
    """Whether the process that wrote the log runs on this host: by number, start time and boot.

    In another process namespace its number is another one: with a fresh heartbeat and no such process nothing is certain.
    """
    try:
        boot = (procfs / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    if boot != text(log.head["boot_id"]):
        return None
    try:
        stat = (procfs / str(int(log.head["pid"])) / "stat").read_text("utf-8", "replace")
        fields = stat.rpartition(")")[2].split()
        if int(fields[19]) == int(log.head["process_start"]):
            return fields[0] not in "ZX"
    except (OSError, ValueError, IndexError):
        pass
    age = _beat_age(log)
    return None if age is not None and age < FRESH_S and int(log.live["state"]) == RECORDING else False


def _beat_age(log: ShimFile) -> float | None:
    beat = int(log.live["last_clock"]["realtime_ns"])
    return (time.time_ns() - beat) / 1e9 if beat > 0 else None


def _hooks(words: Any) -> tuple[str, ...]:
    return tuple(name for name, bits in _HOOKS.items() if any(int(words[1]) >> bit & 1 for bit in bits))


def _communicators(log: ShimFile, rings: Sequence[Any]) -> Iterator[CommunicatorStatus]:
    from forensics.ingest.shim_log.columns import labels
    from forensics.ingest.shim_log.communicators import current_communicators

    names = labels(log)
    for slot, comm in enumerate(current_communicators(log, rings)):
        state = int(comm["state"])
        if state == 0:
            continue
        kind = layout.OPERATIONS.get(int(comm["inside_kind"]))
        yield CommunicatorStatus(
            communicator=names[slot] or f"slot {slot}",
            group_rank=int(comm["rank"]),
            size=int(comm["ranks"]),
            state=layout.COMM_STATES[state] if state < len(layout.COMM_STATES) else f"number {state}",
            operations=max(int(comm["ops"]), int(comm["profiler_ops"])),
            finished=int(comm["ops_done"]) if comm["profiler_ops"] else None,
            last_kind=kind,
            inside=kind if comm["inside"] else None,
        )
