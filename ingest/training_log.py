"""Logs of a rank or of its launcher: exceptions, lost peers, watchdog timeouts, exits (docs/formats/training-log.md)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._content import Lines
from forensics.ingest._log_events import PATTERNS, TRACEBACK, WORTH_A_LOOK, Failures, Tracebacks
from forensics.ingest._log_patterns import iso_time, matches
from forensics.ingest._values import rank_number
from forensics.ingest.interface import Batch, Ingester, Item, Problem

MAX_EVENTS = 200_000
MAX_TEXT = 4096

_RANK = re.compile(r"\[rank(\d{1,7})\]")
_LOG_NAME = re.compile(r"(?:^|[/._-])(?:log|logs|out|err|stdout|stderr|output|slurm)(?:[/._-]|\d|$)", re.IGNORECASE)
_OTHER_NAME = re.compile(r"\.(?:py|pyc|sh|json|jsonl|ya?ml|xml|csv|md|toml|cfg|ini|html)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Event:
    """One understood line; `rank` is what the line itself says."""

    line: int
    kind: str
    subject: str | None
    text: str
    rank: int | None


def sniff(head: bytes, path: str) -> int:
    """Text that is called like a log or reads like one; low, so that every other format goes first."""
    if not head or b"\0" in head or head[:1] in (b"{", b"\x80"):
        return 0
    sample = head.decode("utf-8", "replace")
    if sample.count("\ufffd") > 1 + len(sample) // 50:
        return 0
    named = _LOG_NAME.search(path) and not _OTHER_NAME.search(path)
    return 5 if named or TRACEBACK in sample or _RANK.search(sample) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Events in line order; lines that are not understood leave nothing."""
    columns: dict[str, list[Any]] = defaultdict(list)
    lines = Lines(artefact)
    for event in _events(lines):
        columns["locator"].append(event.line)
        columns["time_ns"].append(iso_time(event.text))
        columns["rank"].append(artefact.rank if event.rank is None else event.rank)
        columns["kind"].append(event.kind)
        columns["subject"].append(event.subject)
        columns["text"].append(event.text)
        if len(columns["kind"]) == MAX_EVENTS:
            yield Problem(f"more than {MAX_EVENTS} events; the rest was left out", f"line={event.line}")
            break
    if columns:
        yield Batch("log_events", columns)
    if lines.problem is not None:
        yield lines.problem


def _events(lines: Lines) -> Iterator[_Event]:
    """Understood lines; only `[rank3]` is a global rank, `[PG 1 Rank 0]` counts within the group."""
    tracebacks = Tracebacks()
    failures = Failures()
    for number, whole in lines:
        line = whole[:MAX_TEXT].rstrip()
        stated = _RANK.search(line)
        rank = rank_number(stated[1]) if stated else None
        exception = tracebacks.feed(line)
        if exception is not None:
            yield _Event(number, "exception", exception, line, rank)
        failure = failures.feed(line)
        if failure is not None:
            yield _Event(number, "process_exit", failure[1], line, failure[0])
        if WORTH_A_LOOK.search(line):
            for known, _, subject in matches(PATTERNS, line):
                yield _Event(number, known.kind, subject and subject.rstrip(":"), line, rank)


INGESTER = Ingester("training_log", "training_log", sniff, rows)
