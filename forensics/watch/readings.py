"""One reading of a living rank, as cheap as can be had: its shim log, else its Flight Recorder, else its stack, else CPU time.

Each rank is read in a child that is given up at its deadline: the memory of a process can block its reader, and a worker
server its client. A reading reads counters only; the evidence is for the collection that follows.
"""

from __future__ import annotations

import io
import os
import select
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

import orjson

from forensics.collect.child import Child, Emit
from forensics.collect.collectors.command import start_program
from forensics.collect.collectors.fr_live import VARIABLE
from forensics.collect.collectors.py_spy import find_py_spy
from forensics.collect.collectors.shim_logs import find_job, loaded_by, own_log
from forensics.collect.collectors.worker_server import NotAWorkerServer, answer, handlers, socket_places
from forensics.collect.confinement import why_unconfined
from forensics.collect.processes import ProcFs
from forensics.collect.scan import Process
from forensics.watch.rhythm import NOTHING, Reading

SHIM, RECORDER, STACK, CPU = "shim log", "flight recorder", "stack", "cpu time"
_LOG_HEAD = 8 << 20
"""The tables of communicators and queue pairs lie before the records (docs/formats/shim-log.md)."""
_DUMP_BYTES = 256 << 20
_RECORDERS = ("dump_nccl_trace_json", "fr_trace_json")
_STACK_BYTES = 4 << 20
_MOST_STACKS = 3
"""Ranks without counters of which a stack is taken: each costs 30 ms of CPU time, counters a third of that."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a reading may use and how long it may take, in seconds."""

    procfs: ProcFs = field(default_factory=ProcFs)
    py_spy: str | None = field(default_factory=find_py_spy)
    answer_s: float = 5.0
    ask_sockets: bool = False


def read_ranks(processes: Mapping[int, Process], means: Means) -> list[Reading]:
    """One reading of each rank, in their order; ranks that gave nothing in time say so."""
    children = {}
    for number, (rank, process) in enumerate(processes.items()):
        work = _work(rank, process, means, number < _MOST_STACKS)
        children[rank] = Child(work, means.answer_s * 2)
    found = {row["rank"]: Reading(**row) for row in _received(list(children.values()))}
    now = time.monotonic()
    return [found.get(rank) or Reading(rank, now, NOTHING) for rank in processes]


def _work(rank: int, process: Process, means: Means, with_stack: bool) -> Callable[[Emit], None]:
    return lambda emit: emit(asdict(read_rank(rank, process, means, with_stack)))


def _received(children: Sequence[Child]) -> Iterator[Any]:
    """What the children send until all have ended or were given up."""
    while waiting := [child for child in children if not child.ended]:
        select.select([child.descriptor for child in waiting], [], [], 0.1)
        for child in waiting:
            yield from (row for row in child.receive() if "rank" in row)
            child.press(time.monotonic())
    for child in children:
        child.reap()


def read_rank(rank: int, process: Process, means: Means, with_stack: bool = True) -> Reading:
    """The first of the sources that answers."""
    for read in (_from_shim, _from_recorder, *((_from_stack, _from_cpu) if with_stack else ())):
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, SubprocessError, NotAWorkerServer):
            found = read(process, means)
            if found is not None:
                return Reading(rank, time.monotonic(), **found)
    return Reading(rank, time.monotonic(), NOTHING)


def _from_shim(process: Process, means: Means) -> dict[str, Any] | None:
    environ = process.environ or {}
    if not loaded_by(environ):
        return None
    log = own_log(means.procfs, process.pid, find_job(means.procfs, process.pid, environ, process.uid))
    return shim_counts(log.path) if log is not None else None


def shim_counts(path: Path) -> dict[str, Any] | None:
    """Operations and bytes that the tables of a shim log count; None before the first communicator. Raises OSError."""
    # numpy starts threads, and the process that forks the readings must have none
    from forensics.ingest.shim_log import layout
    from forensics.ingest.shim_log.file import ShimFile, read_file

    with path.open("rb") as stream:
        head = io.BytesIO(stream.read(_LOG_HEAD))
    log = next((item for item in read_file(head) if isinstance(item, ShimFile)), None)
    comms = log.tables.get(layout.COMMS) if log is not None else None
    if log is None or comms is None or not comms["state"].any():
        return None
    used = comms[comms["state"] != 0]
    completed = int((used["ops_done"] * (used["profiler_ops"] != 0) + used["ops"] * (used["profiler_ops"] == 0)).sum())
    pairs = log.tables.get(layout.QUEUE_PAIRS)
    moved = int(pairs["completed_bytes"].sum()) if pairs is not None and pairs["state"].any() else None
    return {"source": SHIM, "completed": completed, "moved_bytes": moved}


def _from_recorder(process: Process, means: Means) -> dict[str, Any] | None:
    configured = (process.environ or {}).get(VARIABLE)
    if not configured and not means.ask_sockets:
        return None
    for place in socket_places(means.procfs, process.pid, configured):
        if not (place.configured or means.ask_sockets):
            continue
        with suppress(NotAWorkerServer):
            offered = handlers(place.path, process.pid, means.answer_s)
            dumps = [_dump(place.path, process.pid, name, means) for name in _RECORDERS if name in offered]
            return {"source": RECORDER, "completed": sum(map(completed_calls, dumps))} if dumps else None
    return None


def _dump(path: Path, pid: int, handler: str, means: Means) -> Any:
    """A dump as a document; without its entries where the recorder knows that wish (NCCL's does, torch 2.5)."""
    with answer(path, pid, "POST", f"/handler/{handler}?includecollectives=false", means.answer_s) as (code, chunks):
        content = bytearray()
        for chunk in chunks:
            content += chunk
            if code != 200 or len(content) > _DUMP_BYTES:
                raise NotAWorkerServer(f"{handler} answered {code}, {len(content)} bytes")
    return orjson.loads(content)


def completed_calls(dump: Mapping[str, Any]) -> int:
    """Calls that a recorder counts: those completed in all groups, else those it has kept so far."""
    groups: Iterable[Mapping[str, Any]] = (dump.get("pg_status") or {}).values()
    counts = [max(0, int(group.get("last_completed_collective", -1))) for group in groups]
    if any(counts):
        return sum(counts)
    return max((int(entry.get("record_id", -1)) + 1 for entry in dump.get("entries") or ()), default=0)


def _from_stack(process: Process, means: Means) -> dict[str, Any] | None:
    """The stack of the main thread; py-spy may only read, so without a system call filter it is not started."""
    if means.py_spy is None or why_unconfined(means.py_spy) is not None:
        return None
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        argv = [means.py_spy, "dump", "--json", "--nonblocking", "--pid", str(process.pid)]
        if start_program(argv, output, errors, forbid=True).wait(means.answer_s) != 0:
            return None
        output.seek(0)
        return {"source": STACK, "stack": _main_stack(orjson.loads(output.read(_STACK_BYTES)))}


def _main_stack(threads: Sequence[Mapping[str, Any]]) -> str:
    main = next((one for one in threads if one["thread_name"] == "MainThread"), threads[0])
    return ";".join(f"{frame['name']}:{frame['line']}" for frame in reversed(main["frames"]))


def _from_cpu(process: Process, means: Means) -> dict[str, Any] | None:
    stat = means.procfs.stat(process.pid)
    return {"source": CPU, "cpu_s": (stat.utime + stat.stime) / os.sysconf("SC_CLK_TCK")}
