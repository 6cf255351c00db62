"""Reads the artefacts of a bundle in path order: in this process, or one process for each core when there is much to read."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context

from forensics.bundle.artefact import Artefact
from forensics.case.reading import Reading
from forensics.case.shared_facts import Met
from forensics.case.unchanged import read_in_turn, repeats, with_repeated
from forensics.collect.confinement import end_with
from forensics.cores import usable_cores
from forensics.ingest import discover
from forensics.ingest._shared.packed import Types

LARGE_BYTES = 32 << 20
"""Below this the start of the processes costs more than they save."""
_AHEAD = 4
"""Tasks a process may be ahead of the one that is written: bounds the readings that wait in memory."""
_MOST_OF_A_TASK, _BYTES_OF_A_TASK = 32, 128 << 10
"""Small artefacts are read several in a task, which takes as long as one of them: up to so many, or so many stored bytes."""

_work: tuple[Sequence[Artefact], Mapping[str, Types]] = ((), {})
_sent = Met()
_several: frozenset[str] = frozenset()
"""Digests of artefacts of equal bytes."""


@contextmanager
def readings(artefacts: Sequence[Artefact], types: Mapping[str, Types]) -> Iterator[Iterator[Reading]]:
    """The reading of every artefact, in order. Processes are started at once: do so before anything has threads."""
    processes = min(usable_cores(), len(artefacts))
    if processes < 2 or sum(artefact.stored_bytes for artefact in artefacts) < LARGE_BYTES or sys.platform != "linux":
        yield _read_here(artefacts, types)
        return
    discover()  # before the fork, so that it is imported once
    # A fork inherits the artefacts, whose openers cannot be sent to another process.
    given = (os.getpid(), artefacts, types, of_equal_bytes(artefacts))
    pool = ProcessPoolExecutor(processes, get_context("fork"), _begin_with, given)
    try:
        read = _in_order(pool, tasks(artefacts), artefacts, types, processes * _AHEAD)
        yield with_repeated(zip(artefacts, read, strict=False), types)
    finally:
        pool.shutdown(cancel_futures=True)


def tasks(artefacts: Sequence[Artefact]) -> Iterator[range]:
    """Numbers of artefacts that are read in one task, in order: large ones alone."""
    begin, size = 0, 0
    for index, artefact in enumerate(artefacts):
        if index > begin and (size + artefact.stored_bytes > _BYTES_OF_A_TASK or index - begin == _MOST_OF_A_TASK):
            yield range(begin, index)
            begin, size = index, 0
        size += artefact.stored_bytes
    if begin < len(artefacts):
        yield range(begin, len(artefacts))


def _in_order(
    pool: ProcessPoolExecutor, waiting: Iterator[range], artefacts: Sequence[Artefact], types: Mapping[str, Types], ahead: int
) -> Iterator[Reading | None]:
    """Readings as they are due, as `read_in_turn` gives them; when a process was killed, this one reads the rest."""
    done = 0
    try:
        started = deque(pool.submit(_read, task) for task in islice(waiting, ahead))
        while started:
            found = started.popleft().result()
            started.extend(pool.submit(_read, task) for task in islice(waiting, 1))
            for reading in found:
                done += 1
                yield reading
    except BrokenProcessPool:
        yield from read_in_turn(artefacts[done:], types)


def _read_here(artefacts: Sequence[Artefact], types: Mapping[str, Types]) -> Iterator[Reading]:
    return with_repeated(zip(artefacts, read_in_turn(artefacts, types), strict=True), types)


def of_equal_bytes(artefacts: Sequence[Artefact]) -> frozenset[str]:
    """Digests that several artefacts have which do not just repeat each other."""
    counts = Counter(
        artefact.sha256
        for artefact, before in zip(artefacts, (None, *artefacts), strict=False)
        if artefact.sha256 is not None and not repeats(artefact, before)
    )
    return frozenset(digest for digest, count in counts.items() if count > 1)


def _begin_with(parent: int, artefacts: Sequence[Artefact], types: Mapping[str, Types], several: frozenset[str]) -> None:
    """Begin a process that ends with its parent: else it waits for tasks for ever, for it holds both ends of their pipe."""
    end_with(parent)
    _begin(artefacts, types, several)


def _begin(artefacts: Sequence[Artefact], types: Mapping[str, Types], several: frozenset[str]) -> None:
    """Runs once in each process; an interrupt is the parent's to handle."""
    global _work, _sent, _several
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _work, _sent, _several = (artefacts, types), Met(), several


def _read(task: range) -> list[Reading | None]:
    """The readings of a task, as `read_in_turn` gives them."""
    artefacts, types = _work
    chosen = artefacts[task.start : task.stop]
    found = zip(chosen, read_in_turn(chosen, types), strict=True)
    return [None if reading is None else _unsent(artefact, reading) for artefact, reading in found]


def _unsent(artefact: Artefact, reading: Reading) -> Reading:
    """The reading. Call paths that this process sent before are left out: an earlier artefact brings them.

    Of copies everything is sent, for whoever drops one of them need not drop the later one.
    """
    return reading if artefact.sha256 in _several else replace(reading, batches=_sent.without_known(reading.batches))
