"""Reads a log of a rank, of a launcher or of NCCL, line by line: what happened, and how far each process got.

A log mixes what Python, torch, NCCL and the launcher write, often of several ranks; every line is shown to all readers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs.barriers import Barriers
from forensics.ingest._job_logs.desync import DesyncReports
from forensics.ingest._job_logs.events import PATTERNS, Tracebacks, may_be_event, uncaught
from forensics.ingest._job_logs.horovod import HorovodStalls
from forensics.ingest._job_logs.launchers import LauncherEnds
from forensics.ingest._job_logs.line_origin import Origin, Origins
from forensics.ingest._job_logs.nccl_lines import NcclLines, queue_pair_columns
from forensics.ingest._job_logs.nodes import Nodes
from forensics.ingest._job_logs.patterns import iso_time, matches
from forensics.ingest._job_logs.positions import LogPosition, batch
from forensics.ingest._job_logs.recorder_analysis import RecorderAnalysis
from forensics.ingest._job_logs.torchrun import FailureTable
from forensics.ingest._job_logs.watchdog_lines import WatchdogLines
from forensics.ingest._shared.content import Lines
from forensics.ingest.interface import Batch, Item, Problem

MAX_EVENTS = 200_000
MAX_TEXT = 4096
# A look that is cheaper than the patterns; a log is mostly lines of training.
_POSITION_WORDS = (" NCCL ", " work", "Watchdog caught", "[PG ", "[Rank ")
_SHORTEST = min(map(len, _POSITION_WORDS))
_MEMBER = "group member "
_LAUNCHER = "launcher"


@dataclass(slots=True)
class _Events:
    """Rows of `log_events` while a file is read; ranks that only labels tell are filled in at its end."""

    columns: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    labels: list[str | None] = field(default_factory=list)

    def add(
        self, number: int, kind: str, subject: str | None, text: str, rank: int | None, host: str | None, label: str | None
    ) -> None:
        """One understood line."""
        values = {"locator": number, "time_ns": iso_time(text), "rank": rank, "host": host}
        for name, value in {**values, "kind": kind, "subject": subject, "text": text}.items():
            self.columns[name].append(value)
        self.labels.append(label)

    def __len__(self) -> int:
        return len(self.labels)


class _Reader:
    """All readers of one file, and what they found."""

    def __init__(self, artefact: Artefact) -> None:
        self.artefact = artefact
        self.events = _Events()
        self.origins = Origins()
        self.watchdog = WatchdogLines()
        self.nccl = NcclLines()
        self.nodes = Nodes()
        self._horovod = HorovodStalls()
        self._barriers = Barriers()
        self._desync = DesyncReports()
        self._analysis = RecorderAnalysis()
        self._tracebacks = Tracebacks()
        self._table = FailureTable()
        self._launchers = LauncherEnds()
        self._cancelled = False

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        origin = self.origins.feed(line)
        host = None
        self.nodes.feed(number, line, origin.rank)
        # What ranks did once the job was being ended says nothing of why it stood still.
        if not self._cancelled and len(line) > _SHORTEST and any(word in line for word in _POSITION_WORDS):
            time_ns = iso_time(line)
            origin = self._member(line, origin)
            self.watchdog.feed(number, line, origin.rank, origin.label, time_ns)
            front = self.nccl.feed(number, line, origin.rank, origin.label, time_ns)
            host = front["host"] if front else None
        if not self._cancelled:
            for reports in (self._horovod, self._barriers, self._desync, self._analysis):
                reports.feed(number, line)
        self._spanning(number, line, origin)
        if may_be_event(line):
            for known, _, subject in matches(PATTERNS, line[origin.text :]):
                self._cancelled = self._cancelled or known.kind == "job_cancelled"
                self._event(number, known.kind, subject and subject.rstrip(":"), line, origin, host)

    def _member(self, line: str, origin: Origin) -> Origin:
        """The number in a group is the rank, where nothing else tells one and the whole file speaks of no other group."""
        within = self.watchdog.member(line, origin.rank)
        unknown = within is not None and origin.rank is None and origin.label is None
        return replace(origin, label=f"{_MEMBER} {within}") if unknown else origin

    def _spanning(self, number: int, line: str, origin: Origin) -> None:
        raised = self._tracebacks.feed(line)
        if raised is not None:
            if raised.frames:
                self._event(number, "traceback", raised.exception, "\n".join(raised.frames), origin)
            self._event(number, "exception", raised.exception, line, origin)
        elif (headless := uncaught(line)) is not None:
            self._event(number, "exception", headless, line, origin)
        for failed in self._table.feed(line):
            self.events.add(number, failed.kind, failed.subject, line, failed.rank, self.artefact.host, None)
        for ended in self._launchers.feed(line):
            self.events.add(number, "process_exit", ended.subject, line, ended.rank, self.artefact.host, _LAUNCHER)

    def _event(self, number: int, kind: str, subject: str | None, line: str, origin: Origin, host: str | None = None) -> None:
        self.events.add(number, kind, subject, line, origin.rank, host or self.artefact.host, origin.label)

    def _members(self, own: int | None) -> dict[str, int]:
        """Rank of each label that is a number within a group."""
        if self.watchdog.has_groups or own is not None:
            return {}
        labels = {label for label in self.events.labels if label and label.startswith(_MEMBER)}
        return {label: int(label.removeprefix(_MEMBER)) for label in labels}

    def _reports(self) -> Iterator[LogPosition]:
        """What libraries say of who is missing; numbers within a group tell ranks only where no other group is spoken of."""
        yield from self._horovod.positions
        yield from self._analysis.positions
        if not self.watchdog.has_groups:
            yield from self._barriers.positions
            yield from self._desync.positions

    def batches(self) -> Iterator[Batch]:
        """Everything that was found, once the whole file was read."""
        # A file of one rank may hold lines of one process only: several processes are several ranks.
        own = self.artefact.rank if self.nccl.processes <= 1 else None
        ranks = {**self.origins.ranks(), **self._members(own)}
        if self.nodes.why:
            self.events.add(self.nodes.locator, "several_nodes", self.nodes.why, self.nodes.why, None, None, _LAUNCHER)
        events = self.events
        if events.labels:
            stated = zip(events.columns["rank"], events.labels, strict=True)
            events.columns["rank"] = [
                ranks.get(label or "", None if label == _LAUNCHER else own) if rank is None else rank for rank, label in stated
            ]
            yield Batch("log_events", events.columns)
        told = batch(self._reports(), {}, self.artefact.host, None)
        if told is not None:
            yield told
        found = batch([*self.watchdog.positions, *self.nccl.positions], ranks, self.artefact.host, own)
        if found is not None:
            yield found
        if self.nccl.addresses:
            values, hosts = zip(*self.nccl.addresses, strict=True)
            same: dict[str, list[Any]] = {"key": ["node.address"], "confidence": ["read"], "rank": [None]}
            known = {name: one * len(values) for name, one in same.items()}
            yield Batch("job_config", {**known, "value": list(values), "host": list(hosts)})
        if self.nccl.queue_pairs:
            by_pid = {
                position.pid: position.rank for position in self.nccl.positions if position.pid and position.rank is not None
            }
            yield Batch("queue_pairs", dict(queue_pair_columns(self.nccl.queue_pairs, by_pid, own)))


def rows(artefact: Artefact) -> Iterator[Item]:
    """Events in line order, the newest position of each process in each communicator, queue pairs."""
    reader = _Reader(artefact)
    lines = Lines(artefact)
    for number, whole in lines:
        reader.feed(number, whole[:MAX_TEXT].rstrip())
        if len(reader.events) >= MAX_EVENTS:
            yield Problem(f"more than {MAX_EVENTS} events; the rest was left out", f"line={number}")
            break
    yield from reader.batches()
    if lines.problem is not None:
        yield lines.problem
