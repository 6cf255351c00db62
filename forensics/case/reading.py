"""Reads one artefact: the ingester that knows it, its facts as packed columns, and what could not be read."""

from __future__ import annotations

import gc
import re
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from types import FrameType
from typing import Any, BinaryIO

from forensics.bundle import limits
from forensics.bundle.artefact import Artefact
from forensics.bundle.streams import first_bytes
from forensics.case.alignment import plain_label
from forensics.ingest import SNIFF_BYTES, choose
from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.manuals import is_manual, may_be_manual
from forensics.ingest._shared.packed import Packed, PackedBatch, Types, pack, texts
from forensics.ingest._shared.process_ranks import process_rank_batches
from forensics.ingest._shared.programs import LARGEST_PROGRAM, is_program, may_be_program
from forensics.ingest._shared.prompts import prompt_host
from forensics.ingest._shared.transcripts import SCANNED_BYTES, processes_in
from forensics.ingest.interface import LAST_RESORT, Batch, Identity, Ingester, Problem

_UNKNOWN = Identity()
_AGAIN_S = 10
_LINE = re.compile(r"line=(\d{1,9})")
# What is saved by a command at a prompt is of that host; a log may be shown on another one.
_BY_COMMAND = frozenset(
    {
        "python_stacks",
        "process_facts",
        "processes",
        "kernel_log",
        "nvidia_smi",
        "gpu_table",
        "ib_counters",
        "memory_use",
        "nccl_ras",
    }
)
_LOG = "training_log"
_JOB_WORD, _JOB = b"SLURM_JOB", re.compile(rb"\bSLURM_JOB_?ID=(\d{1,12})\b")
# Versions and settings stand in any text.
_OF_ANY_TEXT = frozenset({"job_config"})


@dataclass(frozen=True, slots=True)
class Reading:
    """What one artefact gave: made from the artefact alone, so that artefacts can be read in any order and process.

    `parser` and `kind` are the ingester's; None when there is none for this content, for which `reason` says why.
    """

    parser: str | None
    kind: str | None
    batches: Sequence[Batch | PackedBatch] = ()
    problems: Sequence[Problem] = ()
    identity: Identity = _UNKNOWN
    reason: str | None = None


def read_artefact(artefact: Artefact) -> Reading:
    """Choose the ingester by content and collect what it finds; nothing in the evidence makes this raise."""
    ingester: Ingester | None = None
    batches: list[Batch] = []
    problems: list[Problem] = []
    identity, head, beginning = _UNKNOWN, b"", b""
    try:
        with _within_seconds(limits.budget().seconds):
            with artefact.open() as stream:
                head = beginning = first_bytes(stream, SNIFF_BYTES)
                if may_be_program(head) or may_be_manual(head, artefact.path):
                    beginning += _rest(stream, LARGEST_PROGRAM - len(beginning))
                    if reason := _only_quotes(beginning, artefact.path):
                        return Reading(None, None, reason=reason)
                ingester = choose(head, artefact.path)
                if ingester is not None and (ingester.kind == _LOG or _is_by_command(ingester.kind, head)):
                    beginning += _rest(stream, max(0, SCANNED_BYTES - len(beginning)))
            if ingester is None:
                return Reading(None, None, reason=_why_unknown(head))
            for item in ingester.rows(artefact):
                if isinstance(item, Batch):
                    batches.append(item)
                elif isinstance(item, Problem):
                    problems.append(item)
                else:
                    identity = item
            if ingester.kind == _LOG:
                # The processes of a job are not all of the host of its log.
                batches += process_rank_batches(processes_in(beginning, None))
                batches += config_batches({"job.id": _job_of(beginning)})
            if all(batch.table in _OF_ANY_TEXT for batch in batches) and ingester.sniff(head, artefact.path) == LAST_RESORT:
                return Reading(None, None, reason=_why_unknown(head))
    except OSError as error:
        problems.append(Problem(f"cannot be read: {error.strerror or error}", fatal=True))
    except Exception as error:  # a defect of one ingester must not cost the evidence of the others
        problems.append(Problem(f"its ingester failed: {type(error).__name__}: {error}", fatal=True))
    name, kind = (ingester.name, ingester.kind) if ingester is not None else (None, None)
    if kind in _BY_COMMAND and identity.host is None and artefact.host is None:
        identity = replace(identity, host=prompt_host(head))
    if _is_by_command(kind, head):
        batches += process_rank_batches(processes_in(beginning, identity.host or artefact.host))
    return _placed(Reading(name, identity.kind or kind, batches, problems, identity), artefact.lines_before)


def _only_quotes(content: bytes, path: str) -> str | None:
    """What a text is whose messages have not happened, by as much of it as such a text may have; None for any other."""
    if is_program(content):
        return "source code of a program"
    return "instructions that quote messages" if is_manual(content, path) else None


def _job_of(content: bytes) -> str | None:
    """The one job of Slurm that a log says it is of."""
    found = set(_JOB.findall(content)) if _JOB_WORD in content else set()
    return found.pop().decode() if len(found) == 1 else None


def _placed(reading: Reading, before: int | None) -> Reading:
    """The reading of a part of a file, with the lines that the whole file has."""
    if not before:
        return reading
    batches = [
        Batch(batch.table, {**batch.columns, "locator": [_moved(each, before) for each in batch.columns["locator"]]})
        if "locator" in batch.columns
        else batch
        for batch in reading.batches
    ]
    problems = [replace(problem, locator=_moved(problem.locator, before)) for problem in reading.problems]
    return replace(reading, batches=batches, problems=problems)


def _moved(locator: Any, before: int) -> Any:
    if isinstance(locator, int):
        return locator + before
    said = _LINE.fullmatch(locator) if isinstance(locator, str) else None
    return f"line={int(said[1]) + before}" if said else locator


def _rest(stream: BinaryIO, size: int) -> bytes:
    """What follows; empty where it cannot be read, of which the ingester warns."""
    with suppress(OSError):
        return first_bytes(stream, size)
    return b""


def _is_by_command(kind: str | None, head: bytes) -> bool:
    """Whether commands may stand above what was saved: as much of it is looked at as a session of a shell has."""
    return kind in _BY_COMMAND and head[:1] not in (b"{", b"\x80") and not head.startswith((b"[{", b"[\n"))


def _why_unknown(head: bytes) -> str:
    """Why no ingester was chosen: text that people saved is worth a word, what else lies beside it is not."""
    if not head:
        return "empty"
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        text = "" if error.start < len(head) - 4 else head[: error.start].decode("utf-8")
    return "text of no known form" if text and "\0" not in text else "no ingester for this format"


def read_packed(artefact: Artefact, types: Mapping[str, Types]) -> Reading:
    """The reading with its columns packed for the tables of a case, a tenth of the size of the values they were made of."""
    with _without_collection():
        if artefact.shard is not None:
            from forensics.case.shards.reading import read_shard

            return read_shard(artefact.shard, types)
        reading = read_artefact(artefact)
        batches = [_packed(batch, types.get(batch.table, {})) for batch in reading.batches]
        return replace(reading, batches=_labelled(batches))


def _packed(batch: Batch | PackedBatch, types: Types) -> PackedBatch:
    """Columns that the table lacks stay as they are: the writer refuses them."""
    columns = {name: pack(values, types[name]) if name in types else values for name, values in batch.columns.items()}
    return PackedBatch(batch.table, columns)


def _labelled(batches: Sequence[PackedBatch]) -> list[PackedBatch]:
    """Operations with the communicator's label as far as one rank can know it; alignment corrects what all ranks know."""
    views = [batch.columns for batch in batches if batch.table == "group_views"]
    pairs = (zip(texts(view.get("pg_name")), texts(view.get("description")), strict=False) for view in views)
    descriptions = dict(chain.from_iterable(pairs))
    labelled = []
    for batch in batches:
        names = batch.columns.get("pg_name")
        if batch.table == "operations" and isinstance(names, Packed) and "communicator" not in batch.columns:
            words = tuple(name if name is None else plain_label(name, descriptions.get(name)) for name in names.words or ())
            column = Packed(names.length, names.data, None, words)
            batch = PackedBatch(batch.table, {**batch.columns, "communicator": column})
        labelled.append(batch)
    return labelled


@contextmanager
def _within_seconds(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in a file that takes longer, and again where an ingester carries on."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return

    def expired(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(limits.exceeded("seconds"))

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the cyclic collector: it would look at each of a dump's million values many times, and none is in a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
