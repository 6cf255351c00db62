"""Rows of `log_events` while a file is read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs.ended import DESCRIBED
from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._job_logs.monitor_lines import KILLED_BY_MONITOR
from forensics.ingest._job_logs.nodes import is_of_worker

_EARLIER = "earlier_"
_LOCAL = re.compile(r" local_rank=(\d{1,7})\b")
_OF_AGENT = re.compile(r" pid=(\d{1,9}) local_rank=\d")
_TASK, _BEGUN = re.compile(r"task=(\d{1,7})\b"), re.compile(r"rank=(\d{1,7}) of=")
_SENT = re.compile(r"pid=(\d{1,9}) ")
# How many lines above the process that failed an agent closes the others, and how many ends are looked at.
_NEAR, _MOST_ENDS = 256, 64
_OF_JAX = "Barrier timed out. "
_PASSED = re.compile(r"(?:^|[\s=])\d{1,6} passed(?:, \d{1,6} [a-z]{4,10})* in \d[\d.]{0,11}s(?: \([\d:]{4,9}\))?(?: =+)?\s*$")
_FAILED = re.compile(r"\d (?:failed|errors?)\b")
# No watchdog waits for so long: what is dated earlier is of another job, or of an earlier attempt.
_NO_WAIT_NS = 24 * 3600 * 1_000_000_000


@dataclass(slots=True)
class Events:
    """Rows of `log_events` while a file is read; ranks that only labels tell are filled in at its end."""

    columns: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    labels: list[str | None] = field(default_factory=list)

    def add(self, number: int, kind: str, subject: str | None, text: str, host: str | None, origin: Origin) -> None:
        """One understood line."""
        values = {"locator": number, "time_ns": origin.time_ns, "rank": origin.rank, "host": host}
        for name, value in {**values, "kind": kind, "subject": subject, "text": text}.items():
            self.columns[name].append(value)
        self.labels.append(origin.label)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def stated_ranks(self) -> frozenset[int]:
        """Ranks that lines state."""
        return frozenset(rank for rank in self.columns["rank"] if rank is not None)

    def others_than(self, artefact: Artefact, fronts: Collection[int]) -> frozenset[int]:
        """Ranks that lines state beside that of the file, and numbers from 1 on by which a launcher that writes here counted.

        Where a name says whose the file is, ranks that lines state may be quoted, but for those that torch puts in front and
        that a launcher saw end; where a manifest does, only an agent that closed other processes shows that several write.
        """
        closed = {1} if self._closed_others() else set()
        if artefact.rank_method == "manifest":
            return frozenset(closed)
        ended = {rank for rank, kind in zip(self.columns["rank"], self.columns["kind"], strict=True) if kind == "process_exit"}
        stated = {*fronts, *ended} if artefact.has_stated_rank else self.stated_ranks
        return (frozenset(stated) - {artefact.rank, None}) | self.counted | closed

    @property
    def counted(self) -> frozenset[int]:
        """Numbers from 1 on by which a launcher counted processes of its host that ended."""
        found = (_LOCAL.search(subject) for _, _, subject in self.of_kind("process_exit"))
        return frozenset(int(said[1]) for said in found if said and int(said[1]))

    def of_node(self, artefact: Artefact) -> str | None:
        """What shows that a file called by a number holds what the agent of a node wrote: it may be the number of the node."""
        if is_of_worker(artefact.path) and self._has_local_ends():
            return f"a log called by a worker that is not the first one: {artefact.path.rpartition('/')[2]}"
        number = artefact.rank if artefact.rank_method == "path" else None
        what = f"counts local rank {min(self.counted)}" if self.counted else "holds lines of an agent of several processes"
        return f"a log called by number {number} {what}" if number and (self.counted or self._closed_others()) else None

    def _has_local_ends(self) -> bool:
        """Whether a launcher tells of processes by their number on their node."""
        return any(_LOCAL.search(subject) for _, _, subject in self.of_kind("process_exit"))

    def _closed_others(self) -> bool:
        """Whether an agent closed a process for another one that failed: then there is a number 1."""
        closed = [(line, said[1]) for line, _, subject in self.of_kind("signal_sent") if (said := _SENT.match(subject))]
        failed = [(line, said[1]) for line, _, subject in self.of_kind("process_exit") if (said := _OF_AGENT.search(subject))]
        return any(
            0 <= end - line <= _NEAR and pid != other for end, pid in failed[:_MOST_ENDS] for line, other in closed[:_MOST_ENDS]
        )

    def hosts_of(self, kind: str) -> frozenset[str | None]:
        """Hosts that events of a kind are of."""
        return frozenset(host for host, known in zip(self.columns["host"], self.columns["kind"], strict=True) if known == kind)

    def of_kind(self, kind: str) -> list[tuple[int, str, str]]:
        """Line, text and subject of all events of one kind."""
        said = zip(*(self.columns[name] for name in ("locator", "text", "subject", "kind")), strict=True)
        return [(line, text, subject or "") for line, text, subject, known in said if known == kind]

    def add_lost(self, ranks_of: Callable[[str], Collection[int]]) -> None:
        """A node that was lost took each of its ranks with it, where they are known."""
        for line, text, address in self.of_kind("node_failed"):
            for rank in sorted(ranks_of(address)):
                self.add(line, "node_failed", address, text, address, Origin(rank, None, "", 0))

    def close_attempt(self, before: float = inf, only: str | None = None) -> None:
        """What was read before a line, all or one kind, is of an attempt, or a stall, that is over: it shows nothing more."""
        self.columns["kind"] = [
            f"{_EARLIER}{kind}" if not kind.startswith(_EARLIER) and line < before and only in (None, kind) else kind
            for kind, line in zip(self.columns["kind"], self.columns["locator"], strict=True)
        ]

    def begin_of_ranks(self) -> int:
        """The line in which the first of several ranks begins, where all tasks that ended above it begin below it; else 0.

        What a script runs before its job, as to prepare a container, has a task 0 too.
        """
        begun = {
            int(said[1]): line for line, _, subject in reversed(self.of_kind("rank_taken")) if (said := _BEGUN.match(subject))
        }
        ended = [(line, _TASK.match(subject)) for line, _, subject in self.of_kind("process_exit")]
        first = min(begun.values(), default=0) if len(begun) > 1 else 0
        former = [task for line, task in ended if line < first]
        return first if all(task is not None and int(task[1]) in begun for task in former) else 0

    def set_aside(self, kind: str, subject: str) -> None:
        """What was said so shows nothing, as what is of an attempt that is over."""
        said = zip(self.columns["kind"], self.columns["subject"], strict=True)
        self.columns["kind"] = [f"{_EARLIER}{kind}" if each == (kind, subject) else each[0] for each in said]

    def begin_after_gap(self) -> int | None:
        """The line of the first event after the last gap that no job waits through, or of the last tests that all passed.

        What tests print of hangs and errors is what they expect.
        """
        passed = [line for line, text, _ in self.of_kind("tests_passed") if _PASSED.search(text) and not _FAILED.search(text)]
        dated = [
            (line, at) for line, at in zip(self.columns["locator"], self.columns["time_ns"], strict=True) if at is not None
        ]
        later = [line for (_, before), (line, at) in pairwise(dated) if at - before > _NO_WAIT_NS]
        return max((*later[-1:], *passed[-1:]), default=None)

    def stalls(self) -> list[int]:
        """The lines in which watchdogs or monitors gave up: they end their processes."""
        ended = [line for line, _, subject in self.of_kind("stall_report") if subject == KILLED_BY_MONITOR]
        return [line for line, _, _ in self.of_kind("watchdog_timeout")] + ended

    def errors(self) -> list[int]:
        """The lines of exceptions, of which nobody knows here whether the program survived them."""
        return [line for kind in ("exception", "fatal_error") for line, _, _ in self.of_kind(kind)]

    def ends(self) -> list[int]:
        """The lines in which processes ended, or what JAX waited for, which may come; pods are described anywhere."""
        ended = [line for line, _, subject in self.of_kind("process_exit") if DESCRIBED not in subject]
        ended += [line for line, text, _ in self.of_kind("stall_report") if "Megascale " in text]
        return ended + [line for line, text, _ in self.of_kind("barrier_timeout") if _OF_JAX in text]
