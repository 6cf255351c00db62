"""Head and tail of the log files that a rank has open as standard output and error, without secrets.

The file that NCCL was asked to write its log into (NCCL_DEBUG_FILE) is taken as well, while the rank has it open.
A file that several ranks write is taken once, for the host: its lines cannot be laid to one rank. The log of a dead rank
is looked for where the logs of the living ranks are, with its own number in the name.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from forensics.bundle.layout import Status, member_name, rank_path
from forensics.bundle.redaction import redact_stream
from forensics.collect.collectors.proc_tasks import gone
from forensics.collect.opening import NotAPlainFileError, open_plain_file
from forensics.collect.permissions import why_denied
from forensics.collect.processes import ProcFs
from forensics.collect.record import Run, failure
from forensics.collect.target import Context, Target, visible_path

ID = "log.files"
_STREAMS = {1: "stdout", 2: "stderr"}
_CHUNK = 1 << 16
_DELETED = " (deleted)"
_PLACES = {"%h": "[^/]*", "%p": "[0-9]+", "%%": "%"}


@dataclass(frozen=True, slots=True)
class LogSource:
    """One log file: how to open it, its name for people, its member in the bundle, and what is to be said of it."""

    path: Path
    name: str
    member: str
    owner: int | None = None
    note: str | None = None
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class RankLogs:
    """The log files that one rank has open."""

    rank: int
    local_rank: int | None
    paths: tuple[str, ...]


def open_logs(procfs: ProcFs, pid: int) -> dict[int, str]:
    """What a process has as standard output and error, as the kernel names it. Raises OSError without permission."""
    found: dict[int, str] = {}
    for number in _STREAMS:
        try:
            found[number] = procfs.link(pid, f"fd/{number}")
        except FileNotFoundError:
            continue
    return found


def is_file(target: str) -> bool:
    """Whether an open descriptor may be a plain file, by the name the kernel gives it."""
    return target.startswith("/") and not target.startswith(("/dev/", "/memfd:"))


def collect_logs(context: Context, target: Target, sample: int) -> Iterator[Run]:
    """The logs of one rank."""
    writer = _writer(target)
    if writer is None:
        yield from _guessed(context, target)
        return
    try:
        streams = open_logs(context.procfs, writer)
    except PermissionError:
        reason = why_denied(context.procfs, writer, "see the open files")
        yield Run(ID, target.rank, Status.PERMISSION, reason, pid=target.pid)
        return
    if not context.procfs.is_alive(writer):
        yield Run(ID, target.rank, Status.NOT_FOUND, gone(target), pid=target.pid)
        return
    files = {number: name for number, name in streams.items() if is_file(name)}
    for name in sorted({name for name in files.values() if name in target.shared_logs}):
        reason = f"several ranks write {name}; it is {target.shared_logs[name]}"
        yield Run(ID, target.rank, Status.OK, reason, pid=target.pid)
    own = {number: name for number, name in files.items() if name not in target.shared_logs}
    for source in _sources(context, target, writer, own):
        yield copy_log(context, target.rank, source)
    for source in _nccl_sources(context, target, writer, files):
        yield copy_log(context, target.rank, source)
    if not files:
        kinds = ", ".join(f"{_STREAMS[number]} is {_kind(name)}" for number, name in streams.items()) or "both are closed"
        yield Run(ID, target.rank, Status.NOT_FOUND, f"no log file: {kinds}", pid=target.pid)


def _writer(target: Target) -> int | None:
    """The process whose descriptors lead to the logs: the rank, else a child that the dead rank left behind."""
    if target.pid is not None and target.state == "alive":
        return target.pid
    return target.extra[0] if target.extra else None


def _sources(context: Context, target: Target, pid: int, files: Mapping[int, str]) -> Iterator[LogSource]:
    """One source for each distinct file; opened through the descriptor, so that a deleted file is still read."""
    taken: set[str] = set()
    first = {name: number for number, name in sorted(files.items(), reverse=True)}
    for name, number in sorted(first.items(), key=lambda one: one[1]):
        member = member_name(Path(name.removesuffix(_DELETED)).name)
        member = f"{_STREAMS[number]}.{member}" if member in taken else member
        taken.add(member)
        yield LogSource(context.procfs.path(pid, f"fd/{number}"), name, rank_path(target.rank, f"logs/{member}"))


def _nccl_sources(context: Context, target: Target, pid: int, known: Mapping[int, str]) -> Iterator[LogSource]:
    """Open files that NCCL_DEBUG_FILE names; its `%h` is the host as NCCL calls it, `%p` the process as it sees itself.

    Both may differ in a container, so the pattern is laid over what is open instead of being filled in.
    """
    pattern = target.environ.get("NCCL_DEBUG_FILE", "")
    name = Path(pattern).name
    if not name or is_stream(pattern):
        return
    parts = (_PLACES.get(part, re.escape(part)) for part in re.split(r"(%[hp%])", name))
    wanted = re.compile("".join(parts))
    try:
        opened = context.procfs.descriptors(pid)
    except OSError:
        return
    taken = set(known.values())
    for number, path in sorted(opened.items()):
        base = Path(path.removesuffix(_DELETED)).name
        if is_file(path) and path not in taken and wanted.fullmatch(base):
            taken.add(path)
            member = rank_path(target.rank, f"logs/nccl.{member_name(base)}")
            yield LogSource(context.procfs.path(pid, f"fd/{number}"), path, member)


def is_stream(pattern: str) -> bool:
    """Whether NCCL_DEBUG_FILE names a standard stream of the process, whose file is taken anyway."""
    return pattern.strip().lower() in ("stdout", "stderr") or pattern.startswith("/dev/")


def _guessed(context: Context, target: Target) -> Iterator[Run]:
    """The log of a rank without a process, where the names of the other ranks' logs say it must be."""
    if target.witness is None or not target.guessed_logs:
        reason = "the rank has no process, and the logs of the other ranks do not show the name of its own"
        yield Run(ID, target.rank, Status.NOT_FOUND, reason)
        return
    missing: list[str] = []
    for name in target.guessed_logs:
        path = visible_path(context.procfs, target.witness, name)
        note = f"named after the log of rank {target.witness_rank}, with this rank's number"
        member = rank_path(target.rank, f"logs/{member_name(Path(name).name)}")
        source = LogSource(path, name, member, target.uid, note, target.since_ns)
        try:
            yield copy_log(context, target.rank, source)
        except FileNotFoundError:
            missing.append(name)
    if len(missing) == len(target.guessed_logs):
        reason = f"the rank has no process, and there is no {' or '.join(missing)}"
        yield Run(ID, target.rank, Status.NOT_FOUND, reason)


def copy_log(context: Context, rank: int | None, source: LogSource) -> Run:
    """Head and tail of one log. Raises FileNotFoundError when it does not exist."""
    counts: Counter[str] = Counter()
    try:
        descriptor = open_plain_file(source.path)
    except FileNotFoundError:
        raise
    except NotAPlainFileError:
        return Run(ID, rank, Status.NOT_FOUND, f"{source.name} is not a plain file")
    except OSError as error:
        return Run(ID, rank, *failure(error, source.name))
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if refusal := _refusal(found, source):
            return Run(ID, rank, Status.NOT_FOUND, f"{source.name} {refusal}")
        head, tail = context.settings.log_head, context.settings.log_tail
        chunks = redact_stream(_head_and_tail(stream, found.st_size, head, tail), counts)
        written = context.staging.write_stream(source.member, chunks)
    cut = found.st_size > head + tail
    notes = [source.note, f"kept the first {head} and the last {tail} of {found.st_size} bytes" if cut else None]
    reason = "; ".join(filter(None, notes)) or None
    run = Run(ID, rank, Status.OK, reason, argv=(source.name,), truncated=cut, captured_ns=found.st_mtime_ns, redactions=counts)
    return run.stored(written)


def _refusal(found: os.stat_result, source: LogSource) -> str | None:
    if source.owner and found.st_uid != source.owner:
        return f"belongs to uid {found.st_uid}, not to uid {source.owner} of the job"
    if found.st_mtime_ns < source.since_ns:
        return "is older than the job"
    return None


def _head_and_tail(stream: BinaryIO, size: int, head: int, tail: int) -> Iterator[bytes]:
    """The whole file, or whole lines of its beginning and end with a marker between: half a line may hide half a key."""
    if size <= head + tail:
        yield from _read(stream, size)
        return
    first = b"".join(_read(stream, head))
    first = first[: first.rfind(b"\n") + 1] or first
    start = stream.seek(size - tail)
    start += len(stream.readline(min(tail, 1 << 20)))
    yield first
    yield f"--- {start - len(first)} bytes left out ---\n".encode()
    yield from _read(stream, size - start)


def _read(stream: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (chunk := stream.read(min(size, _CHUNK))):
        size -= len(chunk)
        yield chunk


def _kind(name: str) -> str:
    if name.startswith("/dev/null"):
        return "/dev/null"
    if name.startswith("/dev/"):
        return f"a terminal or device ({name})"
    return {"pipe": "a pipe", "socket": "a socket"}.get(name.partition(":")[0], name)


def infer_logs(rank: int, local_rank: int | None, others: Sequence[RankLogs]) -> tuple[str, ...]:
    """Log paths of a rank from those of other ranks, by putting its number for theirs.

    The place of the number is one at which every other rank has its own; with one other rank only, the last place.
    """
    found: dict[str, None] = {}
    by_rank = [(one.rank, one.paths) for one in others]
    by_local = [(one.local_rank, one.paths) for one in others if one.local_rank is not None]
    for number, known in ((rank, by_rank), (local_rank, by_local)):
        if number is not None and known:
            found.update(dict.fromkeys(_renumbered(number, known)))
    return tuple(found)


def _renumbered(number: int, known: Sequence[tuple[int, tuple[str, ...]]]) -> Iterator[str]:
    (own, paths), *rest = known
    for path in paths:
        places = list(re.finditer(rf"(?<!\d)0*{own}(?!\d)", path))
        for place in places if rest else places[-1:]:
            if all(_substitute(path, place, other) in theirs for other, theirs in rest):
                yield _substitute(path, place, number)


def _substitute(path: str, place: re.Match[str], number: int) -> str:
    """The path with another number at a place, padded with zeros to the same width."""
    return f"{path[: place.start()]}{number:0{len(place[0])}d}{path[place.end() :]}"
