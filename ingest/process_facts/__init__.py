"""Threads of processes: the collector's samples of /proc, and what people save by hand (docs/formats/process-facts.md)."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines, from_first_character, read_object
from forensics.ingest._shared.training_settings import setting_batches, settings
from forensics.ingest._shared.values import boolean, integer, objects, rank_number, strings, text
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem
from forensics.ingest.process_facts.launched import with_launcher
from forensics.ingest.process_facts.tables import MAX_ROWS, Seen, is_table, read_table

SCHEMA = "forensics.proc/1"
TIMER_SIGNALS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)
_MASK = re.compile(r"[0-9a-fA-F]{1,32}")
# Linux, include/uapi/linux/futex.h: FUTEX_WAIT and FUTEX_WAIT_BITSET, with the flag of the clock.
_FUTEX_WAITS, _FUTEX_COMMAND, _FUTEX_CLOCK_REALTIME = (0, 9), 0x7F, 0x100


_OF_A_DOCUMENT = re.compile(rb"\s*(?:[{<]|\[\s*\{)")


def sniff(head: bytes, path: str) -> int:
    """Names its schema; or is mostly a table of processes, or files of /proc/PID."""
    if b'"forensics.proc/' in head[:512]:
        return 95
    if b"\0" in head or _OF_A_DOCUMENT.match(head):
        return 0
    return 65 if is_table(head.decode("utf-8", "replace").splitlines()) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """One row a thread, and the collector's own errors as problems."""
    is_document = from_first_character(artefact.begin(512)).startswith(b"{")
    yield from _of_document(artefact) if is_document else _of_text(artefact)


def _of_text(artefact: Artefact) -> Iterator[Item]:
    """Rows without a rank, unless their environment tells it: a table of several is of a host, whatever its name says."""
    lines = Lines(artefact)
    columns: dict[str, list[Any]] = defaultdict(list)
    places: dict[str, list[Any]] = defaultdict(list)
    stated: dict[tuple[str, str], None] = {}
    for seen in _launched(read_table(lines, artefact.path)):
        if len(columns["pid"]) == MAX_ROWS:
            yield Problem(f"more than {MAX_ROWS} processes; the rest was left out", f"line={seen.line}")
            break
        for name in ("pid", "thread", "rank", "name", "state", "wchan", "switches", "tracer"):
            columns[name].append(getattr(seen, name))
        columns["kernel_stack"].append(seen.stack)
        columns["timed"].append(_is_timed(seen.caught))
        columns["deadline"].append(None)
        columns["waits_on"].append(None)
        columns["sample"].append((artefact.sample or 0) + seen.sample)
        columns["is_child"].append(None if seen.rank is None else False)
        stated.update(dict.fromkeys(seen.settings))
        if "local_rank" in seen.place and seen.pid == seen.thread:
            for name, value in {"locator": f"line={seen.line}", "pid": seen.pid, "method": "command"}.items():
                places[name].append(value)
            for name in ("local_rank", "node", "per_node"):
                places[name].append(seen.place.get(name))
    yield from setting_batches(settings(stated), rank=None)
    if lines.problem is not None:
        yield lines.problem
    if not columns["pid"]:
        yield Problem("no process could be read", "line=1", fatal=True)
        return
    if artefact.rank is not None and len(set(columns["pid"])) == 1:
        columns["rank"] = [artefact.rank] * len(columns["pid"])
        columns["is_child"] = [artefact.is_child or False] * len(columns["pid"])
    if places:
        yield Batch("process_ranks", dict(places) | {"rank": [None] * len(places["pid"])})
    yield Batch("processes", columns | {"time_ns": [artefact.captured_ns] * len(columns["pid"])})


def _launched(threads: Iterator[Seen]) -> Iterator[Seen]:
    """The threads, with what each table tells of the ranks that a launcher started."""
    for _, table in groupby(islice(threads, MAX_ROWS + 1), key=lambda seen: seen.sample):
        yield from with_launcher(list(table))


def _of_document(artefact: Artefact) -> Iterator[Item]:
    document = yield from read_object(artefact, SCHEMA)
    if document is None:
        return
    rank = rank_number(document.get("rank"))
    if rank is not None:
        yield Identity(rank=rank)
    columns: dict[str, list[Any]] = defaultdict(list)
    for process in objects(document.get("processes")):
        pid = integer(process.get("pid"))
        for thread in objects(process.get("threads")):
            columns["pid"].append(pid)
            columns["is_child"].append(boolean(process.get("is_child")))
            _add(columns, thread)
            columns["written_bytes"].append(integer(process.get("written_bytes")))
        for error in strings(process.get("errors")):
            yield Problem(f"collector: {error}", f"pid={pid}")
    count = len(columns["pid"])
    if count:
        columns["sample"] = [artefact.sample or 0] * count
        columns["time_ns"] = [integer(document.get("time_ns"))] * count
        yield Batch("processes", columns)


def _add(columns: dict[str, list[Any]], thread: dict[str, Any]) -> None:
    """One thread; a wait channel of `0` is the kernel's way to say that there is none or that it is not shown."""
    columns["thread"].append(integer(thread.get("tid")))
    columns["name"].append(text(thread.get("name")))
    columns["state"].append(text(thread.get("state")))
    wchan = text(thread.get("wchan"))
    columns["wchan"].append(None if wchan in ("0", "") else wchan)
    columns["kernel_stack"].append(text(thread.get("stack")))
    columns["cpu_ticks"].append(_sum([thread.get("utime_ticks"), thread.get("stime_ticks")]))
    columns["switches"].append(_sum([thread.get("voluntary_switches"), thread.get("involuntary_switches")]))
    columns["tracer"].append(integer(thread.get("tracer_pid")))
    columns["timed"].append(_is_timed(text(thread.get("signals_caught"))))
    columns["deadline"].append(_has_deadline(wchan, text(thread.get("syscall"))))
    columns["waits_on"].append("\n".join(strings(thread.get("waits_on"))) or None)


def _has_deadline(wchan: str | None, syscall: str | None) -> bool | None:
    """Whether a futex is waited for until a date of the wall clock; None where it is neither that nor without a limit.

    By the arguments of the call: its number is the host's.
    """
    fields = (syscall or "").split()
    if wchan is None or "futex" not in wchan or len(fields) < 7:
        return None
    try:
        operation, limit = int(fields[2], 16), int(fields[4], 16)
    except ValueError:
        return None
    if operation & _FUTEX_COMMAND not in _FUTEX_WAITS:
        return None
    return False if limit == 0 else True if operation & _FUTEX_CLOCK_REALTIME else None


def _is_timed(caught: str | None) -> bool | None:
    """Whether the process handles a signal that timers send; the kernel writes the signals as a mask in hexadecimal."""
    if caught is None or not _MASK.fullmatch(caught):
        return None
    return any(int(caught, 16) >> (number - 1) & 1 for number in TIMER_SIGNALS)


def _sum(values: Sequence[Any]) -> int | None:
    """The sum when every part is known."""
    numbers = [integer(value) for value in values]
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


INGESTER = Ingester("process_facts", "process_facts", sniff, rows, most=95)
