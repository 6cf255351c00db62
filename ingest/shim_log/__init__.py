"""The log of the collector inside a training process, `libforensics_shim.so` (docs/formats/shim-log.md).

Written by `native/ring/`, layout 1. Its records are read as arrays over the file's bytes, never one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.bundle.artefact import Artefact
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem
from forensics.ingest.shim_log.layout import MAGIC

_OFF = re.compile(rb"FRXSHIM-OFF 1 reason=(\d{1,3}) errno=(\d{1,5})(?: of=([ -~]{1,400}))?\s*")
_OF = re.compile(r"(?P<host>[\w-][\w.-]{0,255})\.(?P<rank>\d{1,7}|x)\.\d{1,10}\.\d{1,20}")
_NAME = re.compile(r"\.\d+\.\d+(?:-\d+)?\.(?:frx|tmp|off)$")


def sniff(head: bytes, path: str) -> int:
    """By its magic; by its name when the magic is gone, so that a damaged log is stated as one."""
    if head.startswith(MAGIC) or _OFF.match(head):
        return 100
    return 60 if _NAME.search(path) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Operations, communicators, flows, queue pairs, clocks, coverage; problems for what cannot be trusted."""
    from forensics.ingest.shim_log.file import ShimFile, read_file

    with artefact.open() as stream:
        head = stream.read(512)
    note = _OFF.match(head)
    if note:
        yield from _switched_off(int(note[1]), int(note[2]), (note[3] or b"").decode())
        return
    with artefact.open() as stream:
        for item in read_file(stream):
            if isinstance(item, ShimFile):
                yield Identity(rank=item.rank, host=item.host)
                yield from _facts(item, artefact.newest_ns)
            else:
                yield item


def _switched_off(reason: int, error: int, name: str) -> Iterator[Item]:
    """A process whose log could not be made left a line that says why, and the name that the log would have had."""
    from forensics.ingest.shim_log.coverage import note_text, reason_text

    of = _OF.fullmatch(name)
    if of is not None:
        yield Identity(rank=int(of["rank"]) if of["rank"] != "x" else None, host=of["host"])
    words = reason_text(reason, error) or "reason unknown"
    yield Batch("coverage", {"scope": ["rank"], "kind": ["shim_log"], "status": ["not_found"], "reason": [words]})
    said = note_text(reason, error)
    yield Problem(f"the process {said}" if said.startswith("recorded") else said, "line=1")


def _facts(log: object, newest_ns: int | None) -> Iterator[Item]:
    from forensics.ingest.shim_log.clock import read_clock
    from forensics.ingest.shim_log.communicators import communicator_batches
    from forensics.ingest.shim_log.coverage import clock_batch, coverage_batches
    from forensics.ingest.shim_log.file import ShimFile
    from forensics.ingest.shim_log.flows import flow_batches, last_tick
    from forensics.ingest.shim_log.operations import call_batches
    from forensics.ingest.shim_log.queue_pairs import queue_pair_batches
    from forensics.ingest.shim_log.rings import newest, read_rings

    assert isinstance(log, ShimFile)
    clock, readings = read_clock(log)
    whole = rings = read_rings(log)
    if newest_ns is not None and clock.ns_per_tick is not None:
        rings = newest(whole, last_tick(log, whole) - int(newest_ns / clock.ns_per_tick))
    read = clock_batch(log, readings)
    if read is not None:
        yield read
    if clock.ns_per_tick is None:
        yield Problem("fewer than two clock readings: its times are unknown", "clocks")
    yield from coverage_batches(log, clock, rings)
    yield from call_batches(log, clock, rings, whole)
    yield from communicator_batches(log, clock, rings)
    yield from flow_batches(log, clock, rings, whole)
    yield from queue_pair_batches(log, clock, rings)


INGESTER = Ingester("shim_log", "shim_log", sniff, rows)
