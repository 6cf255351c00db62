"""Reads a log of a rank, of a launcher or of NCCL: what happened, and how far each process got.

A log mixes what Python, torch, NCCL and the launcher write, often of several ranks: each line is for all readers that know it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs import (
    alert_texts,
    barriers,
    calls,
    comm_findings,
    coordination,
    desync,
    device_tables,
    events,
    hccl,
    headings,
    horovod,
    identities,
    launchers,
    lost_daemons,
    milestones,
    mpi_fronts,
    nccl_lines,
    nccl_tests,
    nodes,
    norm_tables,
    pasted_tables,
    pods,
    progress_lines,
    ray_collectives,
    recorder_analysis,
    served,
    stack_dumps,
    stage_times,
    stated_versions,
    stated_world,
    straggler_reports,
    torchrun,
    tracebacks,
    training_lines,
    watchdog_lines,
)
from forensics.ingest._job_logs.event_owners import LAUNCHER, EventOwners
from forensics.ingest._job_logs.event_rows import Events
from forensics.ingest._job_logs.line_origin import Origin, Origins
from forensics.ingest._job_logs.patterns import matches, mentions
from forensics.ingest._job_logs.positions import LogPosition, batch
from forensics.ingest._job_logs.selection import SelectedLines
from forensics.ingest._job_logs.wanted_words import wanted
from forensics.ingest._job_logs.word_places import Words
from forensics.ingest.interface import Batch, Item, Problem

MAX_EVENTS = 200_000
MAX_TEXT = 4096
_POSITION_WORDS = (*watchdog_lines.WORDS, *nccl_lines.WORDS)
_MEMBER = "group member "


class _Reader:
    """All readers of one file, and what they found."""

    def __init__(self, artefact: Artefact, is_selective: bool) -> None:
        self.artefact, self._is_selective = artefact, is_selective
        self.events = Events()
        self.origins = Origins()
        self.watchdog = watchdog_lines.WatchdogLines()
        self.nccl = nccl_lines.NcclLines()
        self.nodes = nodes.Nodes()
        pasted = norm_tables.NormTables(), lost_daemons.LostDaemons(), alert_texts.AlertTexts()
        self._by_table = (nccl_tests.FailedTests(), *pasted)
        self._horovod, self._hccl = horovod.HorovodStalls(), hccl.Hccl()
        self._barriers, self._coordination = barriers.Barriers(), coordination.TimedOutBarriers()
        self._desync, self._identities = desync.DesyncReports(), identities.Identities()
        self._devices = device_tables.DeviceTables()
        self._fingerprints, self._ray = calls.Fingerprints(), ray_collectives.RayCollectives()
        self._analysis, self._comm_findings = recorder_analysis.RecorderAnalysis(), comm_findings.CommFindings()
        reports = (self._horovod, self._coordination, self._desync, self._analysis, self._comm_findings)
        self._who_came = (*reports, self._fingerprints, self._ray)
        self._tracebacks, self._heading = tracebacks.Tracebacks(), headings.Heading()
        self._table, self._pasted = torchrun.FailureTable(), pasted_tables.PastedTables(artefact.stored_bytes)
        self._launchers, self._starts = launchers.LauncherEnds(), launchers.Starts()
        self._pods, self._served = pods.Pods(), served.Served()
        self._world, self._versions = stated_world.StatedWorld(), stated_versions.StatedVersions()
        self._training = training_lines.TrainingLines()
        self._stragglers, self._times = straggler_reports.StragglerReports(), stage_times.StageTimes()
        self._progress = progress_lines.ProgressLines(artefact.stored_bytes, artefact.rank)
        self._milestones, self._stacks = milestones.Milestones(artefact.stored_bytes), stack_dumps.StackDumps()
        tables = (self._stragglers, self._table, self._launchers, self._pods, self._times, self._devices)
        self._several_lines = (*tables, self._coordination, self._ray, *self._by_table[1:])
        self._cancelled, self._start_line = False, 0
        # What stands in front of the lines of a process: a label of its rank, or only of its node.
        self._outer: dict[str, str | None] = {}

    @property
    def trigger(self) -> Words | None:
        """Until several nodes, and several processes, are known, also lines that speak of nothing else are wanted."""
        return wanted(self.nodes.why is not None, self.nccl.processes > 1) if self._is_selective else None

    def is_open(self, number: int) -> bool:
        """Whether a traceback, a table or a list goes on."""
        spans = self._horovod.is_listing or self.nodes.is_open(number) or any(each.is_open for each in self._several_lines)
        return spans or self._stacks.is_open(number) or self._tracebacks.is_open(number)

    def survey(self, number: int, block: bytes) -> None:
        """Labels count wherever they stand, and progress is what most lines tell."""
        self._pasted.survey(number, block)
        self.origins.survey(block)
        self.nodes.survey(block)
        self._progress.survey(number, block, self.origins)
        self._milestones.survey(number, block)
        self._served.survey(number, block)

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        bare = (origin := self.origins.feed(line)).bare
        self.nodes.feed(number, bare, origin.rank)
        self._identities.feed(bare, origin.label)
        self._devices.feed(bare)
        # What ranks did once the job was being ended says nothing of why it stood still.
        if not self._cancelled and mentions(bare, _POSITION_WORDS):
            origin = self._member(origin)
            self.watchdog.feed(number, bare, origin.rank, origin.label, origin.time_ns)
            front = self.nccl.feed(number, bare, origin.rank, origin.label, origin.time_ns)
            # Of a call nothing else is said; a job notes millions of them.
            if self.nccl.was_call and front and front.start() == origin.text and not self.is_open(number):
                return
            if front:
                label = nccl_lines.process_label(front["host"], int(front["pid"]))
                self._outer.setdefault(label, origin.label)
                origin = replace(origin, host=front["host"], label=label)
        if not self._cancelled:
            self._barriers.feed(number, bare, origin.rank)
            for reports in self._who_came:
                reports.feed(number, bare)
        if self._starts.begins(bare) or stack_dumps.SERVER_START in bare:
            self.events.close_attempt()
            self._stacks.forget()
            self._start_line = number
        self._world.feed(bare)
        self._versions.feed(bare)
        self._training.feed(bare)
        self._stragglers.feed(number, bare[origin.text :])
        self._times.feed(number, line, origin)
        self._stacks.feed(number, line, origin)
        self._spanning(number, line, origin)
        for said in () if self._cancelled else self._hccl.feed(number, bare, origin.rank):
            self._event(number, said.kind, said.subject, line, replace(origin, rank=said.rank))
        for failed in (found for each in self._by_table for found in each.feed(bare[origin.text :])):
            self._event(number, failed.kind, failed.subject, failed.subject, replace(origin, rank=failed.rank))
        if mentions(bare, mpi_fronts.WORDS) and (process := mpi_fronts.stated(origin)):
            self._outer.setdefault(process.origin.label or "", origin.label)
            self._event(number, process.kind, process.subject, line, process.origin)
        if events.may_be_event(bare):
            for known, said_at, subject in matches(events.PATTERNS, bare[origin.text :]):
                self._cancelled = self._cancelled or known.kind == "job_cancelled"
                whose = self._failed(known.kind, subject, origin.stated(said_at.groupdict().get("rank")))
                self._event(number, known.kind, subject and subject.rstrip(":"), line, whose)

    def _failed(self, kind: str, subject: str | None, origin: Origin) -> Origin:
        """Whose an event is: agents tell ranks of their node, which is numbered anew later; behind prompts others write."""
        if kind == "debugger_prompt" and not origin.text:
            return replace(origin, rank=None, label=None)
        known = kind == "process_exit" and origin.rank is None
        rank = self._identities.failed_of_agent(subject, origin.label) if known else None
        return origin if rank is None else replace(origin, rank=rank)

    def _member(self, origin: Origin) -> Origin:
        """The number in a group is the rank, where at most a pod is known and the whole file speaks of no other group."""
        within = self.watchdog.member(origin.bare, origin.rank)
        unknown = within is not None and origin.rank is None and (origin.label or "pod ").startswith("pod ")
        return replace(origin, label=f"{_MEMBER}{within} {origin.label}") if unknown else origin

    def _spanning(self, number: int, line: str, origin: Origin) -> None:
        raised = self._tracebacks.feed(number, origin)
        headed = self._heading.feed(number, line, origin)
        if raised is not None:
            self._raised(number, line, raised.whose(origin), raised, headed)
        elif (headless := tracebacks.headless(origin)) is not None:
            self._event(number, *headless, line, origin)
        for failed in self._table.feed(origin.bare[origin.text :]):
            self.origins.note_local(failed.local_rank, failed.rank)
            self._event(number, failed.kind, failed.subject, line, replace(origin, rank=failed.rank, label=None, host=None))
        for ended in (*self._launchers.feed(origin.unlabelled), *self._pods.feed(number, origin.bare)):
            whose = replace(origin, rank=ended.rank, label=ended.label or LAUNCHER, host=None)
            self._event(number, "process_exit", ended.subject, line, whose)

    def _raised(self, number: int, line: str, whose: Origin, raised: tracebacks.Raised, headed: tuple[int, ...]) -> None:
        is_headed = bool(headed) and whose.rank is None and whose.label is None
        is_end = raised.is_end or (is_headed and self._heading.is_end)
        owners = [replace(whose, rank=rank) for rank in headed] if is_headed else [whose]
        for each in () if raised.is_survived else owners:
            if raised.frames:
                self._event(number, "traceback", raised.exception, "\n".join(raised.frames), each)
            self._event(number, "fatal_error" if is_end else "exception", raised.exception, line, each)

    def _event(self, number: int, kind: str, subject: str | None, line: str, origin: Origin) -> None:
        host = origin.host or nodes.host_of_kernel(kind, line, self.nodes.kernel_of) or self.artefact.host
        self.events.add(number, kind, self.nodes.with_host(kind, subject, host), line, host, origin)

    def _own_rank(self) -> int | None:
        """That of the file; it has none where several processes, or another one than the mere number in its name, write."""
        rank = self.artefact.rank
        others = self.events.others_than(self.artefact, self.origins.fronts)
        return rank if self.nccl.processes <= 1 and not self.watchdog.has_several_members and not others else None

    def _members(self, own: int | None) -> dict[str, int]:
        """Rank of each label that is a number within a group."""
        if self.watchdog.has_groups or own is not None:
            return {}
        labels = {label for label in self.events.labels if label and label.startswith(_MEMBER)}
        members = {label: int(label.removeprefix(_MEMBER).partition(" ")[0]) for label in labels}
        return members if len({*members.values()}) == len(members) else {}

    def _reports(self) -> Iterator[LogPosition]:
        """What libraries say of who is missing; numbers within a group tell ranks only where no other group is spoken of."""
        yield from () if self._horovod.has_passed(self._progress.resumed) else self._horovod.positions
        yield from self._analysis.positions
        yield from self._hccl.positions
        yield from self._comm_findings.positions
        yield from self._milestones.positions
        yield from self._progress.unresumed((*self._coordination.positions, *self._ray.positions))
        if not self.watchdog.has_groups:
            yield from self._barriers.positions
            yield from self._desync.positions

    def batches(self) -> Iterator[Batch]:
        """Everything that was found, once the whole file was read."""
        own, in_lines = self._own_rank(), self.events.stated_ranks
        processes = {} if own is not None else self.nccl.ranks(self.nodes.why is not None)
        by_process = {nccl_lines.process_label(*process): rank for process, rank in processes.items()}
        for label, rank in self._pods.ranks.items():
            self.origins.note(label, rank)
        ranks = {
            **by_process,
            **self._pods.ranks,
            **self.origins.ranks(self.nodes.why is None or self._identities.is_of_one_node, self._world.size),
            **self._members(own),
        }
        ranks |= {label: ranks[outer] for label, outer in self._outer.items() if label not in ranks and outer in ranks}
        actors = {label: self._identities.processes.of_label(label) for label in {*self.events.labels} - ranks.keys() if label}
        ranks |= {label: rank for label, rank in actors.items() if rank is not None}
        self._identities.add_processes(processes, ranks)
        for (pid, address), rank in self._launchers.actors.items():
            self._identities.processes.note(int(pid), address, rank)
        self._identities.processes.add_ends(subject for _, _, subject in self.events.of_kind("process_exit"))
        if why := self.nodes.why or self.events.of_node(self.artefact):
            self.events.add(self.nodes.locator, "several_nodes", why, why, None, Origin(None, LAUNCHER, "", 0))
        (found := self.events).add_lost(self._identities.of_node)
        for each in (self._coordination, self._pods.rows, self._milestones, self._pasted):
            each.add_to(found)
        self._served.add_to(self.events, self.origins.servers, self.origins.workers)
        resumed = self._progress.resumed(found.ends(), found.stalls(), found.errors()) or 0
        begin = max(resumed, found.begin_after_gap() or 0, self._start_line)
        found.close_attempt(begin)
        found.close_attempt(found.begin_of_ranks(), "process_exit")
        if self._horovod.has_passed(self._progress.resumed):
            found.close_attempt(only="stall_report")
        if found.labels:
            columns = (found.columns[name] for name in ("kind", "subject", "host"))
            world = self._world.size if self.nodes.why is None else None
            owners = EventOwners(ranks, own, self._identities, self._devices, self.nccl, found, world)
            stated = zip(found.columns["rank"], found.labels, *columns, strict=True)
            found.columns["rank"] = [owners.rank(*said) if rank is None else rank for rank, *said in stated]
            yield Batch("log_events", found.columns)
        positions = (each for each in (*self.watchdog.positions, *self.nccl.rows) if each.locator >= begin)
        fingerprints = {} if self.watchdog.has_groups else self._fingerprints.by_rank
        reported = batch(self._reports(), {}, self.artefact.host, None), batch(positions, ranks, self.artefact.host, own)
        compared = calls.batch(self.nccl.calls, fingerprints, self._analysis.calls)
        yield from (each for each in (*reported, compared) if each is not None)
        yield from (*self._world.batches(), *self.origins.batches())
        yield from self._identities.batches(own if in_lines == {own} and not self.artefact.has_stated_rank else None)
        for stated_once in (self._versions, self._training, self._stragglers):
            yield from stated_once.batches()
        yield from self._times.batches(ranks, own)
        yield from self._progress.batches(ranks, own)
        yield from self._stacks.batches(self.artefact, begin, own, ranks, self._progress.resumed)
        yield from self.nccl.batches(own)


def rows(artefact: Artefact, is_selective: bool = True) -> Iterator[Item]:
    """Events in line order, the newest position of each process in each communicator, queue pairs.

    `is_selective` passes over lines that no reader knows, which changes nothing but the time it takes.
    """
    reader = _Reader(artefact, is_selective)
    lines = SelectedLines(artefact, reader)
    for number, whole in lines:
        reader.feed(number, whole[:MAX_TEXT].rstrip())
        if len(reader.events) >= MAX_EVENTS:
            yield Problem(f"more than {MAX_EVENTS} events; the rest was left out", f"line={number}")
            break
    yield from reader.batches()
    if lines.problem is not None:
        yield lines.problem
