"""Understood log lines of ranks and hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.log_evidence import Logged

_OF_ITSELF = ("exception", "fatal_error", "worker_exit", "watchdog_stuck", "gil_not_free", "completion_error", "nic_event")


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One understood log line of a rank or a host; `source` is `path#line=N`."""

    kind: str
    subject: str | None
    text: str
    time_ns: int | None
    source: str


@dataclass(frozen=True, slots=True)
class LogEvents:
    """Events by rank, and those of hosts, in the order of their lines."""

    by_rank: Mapping[int, tuple[LogEvent, ...]] = field(default_factory=dict)
    of_hosts: tuple[LogEvent, ...] = ()

    def of(self, rank: int, kind: str) -> tuple[LogEvent, ...]:
        """Events of one kind in the log of a rank."""
        return tuple(event for event in self.by_rank.get(rank, ()) if event.kind == kind)

    def last_words(self, ranks: Iterable[int]) -> Iterator[tuple[int, LogEvent]]:
        """The last event in the log of each rank that tells of itself, and not only that others wait."""
        for rank in ranks:
            said = [event for event in self.by_rank.get(rank, ()) if event.kind in _OF_ITSELF]
            if said:
                yield rank, said[-1]

    def ranks(self, kind: str) -> frozenset[int]:
        """Ranks whose log has an event of this kind."""
        return frozenset(rank for rank in self.by_rank if self.of(rank, kind))


Logs = NewType("Logs", bool)
"""Whether any log tells anything."""


@reduction
def log_events(connection: DuckDBPyConnection) -> LogEvents:
    """Read the events of a case."""
    rows = rows_of(
        connection,
        "log_events",
        """
        SELECT l.rank, l.kind, l.subject, l.text, l.time_ns, s.path, l.locator
        FROM log_events l JOIN sources s USING (source_id) ORDER BY s.path, l.locator
        """,
    )
    by_rank: dict[int, list[LogEvent]] = defaultdict(list)
    of_hosts: list[LogEvent] = []
    for rank, kind, subject, text, time_ns, path, locator in rows:
        event = LogEvent(kind, subject, text, time_ns, f"{path}#line={locator}")
        (of_hosts if rank is None else by_rank[rank]).append(event)
    return LogEvents({rank: tuple(events) for rank, events in sorted(by_rank.items())}, tuple(of_hosts))


@reduction
def logs(events: LogEvents, heard: Logged) -> Logs:
    """Events, or numbers of calls."""
    return Logs(bool(events.by_rank or events.of_hosts or heard.groups or heard.reports))
