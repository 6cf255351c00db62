"""Flight Recorder dumps that the watchdog already wrote: a file `<prefix><rank>` for each rank.

The prefix comes from the environment of the process, else it is one of torch's defaults, which moved: `/tmp/nccl_trace_rank_`
up to about torch 2.6, later `comm_lib_trace_rank_` or `nccl_trace_rank_` in the cache folder of the user. A file that is
older than the process is of an earlier run and is not taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from forensics.bundle.layout import Status, member_name, rank_path
from forensics.collect.opening import NotAPlainFileError, RefusedError, check_owner, open_plain_file
from forensics.collect.record import Run, failure
from forensics.collect.target import Context, Target, visible_path

ID = "fr.files"
PREFIX_VARIABLES = (
    "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_HCCL_DEBUG_INFO_TEMP_FILE",
    "TORCHCOMM_FR_DUMP_TEMP_FILE",
)
_SUFFIXES = ("", ".json", ".pickle", ".pkl")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class DumpPlace:
    """A file a dump may be in: its name inside the process's file system and as this process can open it."""

    name: str
    path: Path


def dump_places(context: Context, target: Target) -> list[DumpPlace]:
    """Where the dumps of a rank may be, the configured places first."""
    witness = target.pid if target.pid is not None and target.state == "alive" else target.witness
    if witness is None:
        return []
    names = [f"{prefix}{target.rank}{suffix}" for prefix in prefixes(target.environ) for suffix in _SUFFIXES]
    return [DumpPlace(name, visible_path(context.procfs, witness, name)) for name in dict.fromkeys(names)]


def prefixes(environ: Mapping[str, str]) -> list[str]:
    """Prefixes of dump files: the configured ones, and torch's defaults."""
    configured = [environ[name] for name in PREFIX_VARIABLES if environ.get(name)]
    cache = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else None)
    defaults = [f"{cache}/torch/{stem}" for stem in ("comm_lib_trace_rank_", "nccl_trace_rank_")] if cache else []
    return [*configured, *defaults, "/tmp/nccl_trace_rank_"]


def collect_files(context: Context, target: Target, sample: int) -> Iterator[Run]:
    """Every dump of one rank that its run has written."""
    places = dump_places(context, target)
    if not places:
        yield Run(ID, target.rank, Status.NOT_FOUND, "no living process of the job states where dumps are written")
        return
    taken = 0
    refused: dict[str, Status] = {}
    for place in places:
        try:
            yield copy_dump(context, target, place, ID, f"fr/{member_name(Path(place.name).name)}")
            taken += 1
        except (FileNotFoundError, NotADirectoryError):
            continue
        except RefusedError as error:
            refused[str(error)] = Status.NOT_FOUND
        except OSError as error:
            status, reason = failure(error, Path(place.name).parent.as_posix())
            refused[reason] = status
    if not taken:
        where = ", ".join(f"{prefix}<rank>" for prefix in dict.fromkeys(prefixes(target.environ)))
        reason = "; ".join(refused) or f"the watchdog has written no dump (looked for {where})"
        denied = Status.PERMISSION in refused.values()
        yield Run(ID, target.rank, Status.PERMISSION if denied else Status.NOT_FOUND, reason, pid=target.pid)


def copy_dump(context: Context, target: Target, place: DumpPlace, collector: str, member: str) -> Run:
    """Copy one dump. Raises OSError when it cannot be read, or an error of this module when it must not be taken."""
    try:
        descriptor = open_plain_file(place.path)
    except NotAPlainFileError as error:
        raise RefusedError(f"{place.name} is not a plain file") from error
    with os.fdopen(descriptor, "rb") as stream:
        before = os.fstat(descriptor)
        _check(before, place, target)
        chunks = iter(lambda: stream.read(_CHUNK), b"")
        written = context.staging.write_stream(rank_path(target.rank, member), chunks, context.settings.recorder_bytes)
        after = os.fstat(descriptor)
    reason = None
    if written.truncated:
        reason = f"{place.name}: cut at {context.settings.recorder_bytes} bytes"
    elif (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        reason = f"{place.name} was still being written"
    status = Status.PARTIAL if reason else Status.OK
    run = Run(collector, target.rank, status, reason, pid=target.pid, captured_ns=after.st_mtime_ns)
    return run.stored(written)


def _check(found: os.stat_result, place: DumpPlace, target: Target) -> None:
    check_owner(found, place.name, target.uid)
    if found.st_mtime_ns < target.since_ns:
        written = datetime.fromtimestamp(found.st_mtime, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        raise RefusedError(f"{place.name} is stale: written {written}, before the process started")
