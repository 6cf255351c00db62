"""Sentences of evidence, each with the place it was read; rules put them together, none of them draws a conclusion."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from forensics.model import Component, Evidence, Family, Since, StageName, StageRef, WaitKind
from forensics.rank_ranges import format_ranks
from forensics.rules.reductions.calls.positions import DIRECT, Communicators, labelled
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.progress.log_silence import LogSilence
from forensics.rules.reductions.ranks.kernel_lines import KernelLines, LostStorage
from forensics.rules.reductions.ranks.memory import ShortMemory
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.activity import Activity, wait_of_wchan
from forensics.rules.reductions.stacks.call_paths import CallPaths, application_frame, called_by
from forensics.rules.reductions.stacks.recorded_stages import stage_of_path
from forensics.rules.reductions.stacks.samples import Sample, StacksByRank, activity_of, same_place
from forensics.rules.reductions.waits.brackets import StagesBetween
from forensics.rules.reductions.waits.combined_positions import Positions
from forensics.rules.reductions.waits.graph import Wait, WaitGraph

SHOWN_WAITS = 3
_MOST_RANGES = 12
_SHOWN_SERVERS = 2
_UNINTERRUPTIBLE = "D"
_NEVER_NS = 2**63
_PIPELINE = re.compile(r"pipe|(?:^|[^a-z])pp(?:[^a-z]|$)", re.IGNORECASE)


def ranks_text(ranks: Collection[int]) -> str:
    """Write `rank 3` or `ranks 0-2`."""
    return f"{'rank' if len(set(ranks)) == 1 else 'ranks'} {format_ranks(ranks, _MOST_RANGES)}"


def counted(number: int, noun: str) -> str:
    """Write `1 communicator` or `3 communicators`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def wait_text(wait: Wait) -> str:
    """Name the operation of a wait: `all_reduce 7 of 0:default_pg`."""
    if not wait.communicator:
        return "a call that no recorder describes"
    kinds = sorted({op.kind for op in wait.waiting.values() if op is not None})
    if wait.peers:
        return f"{'/'.join(kinds)} {wait.sequence} from rank {wait.peers[0]} to rank {wait.peers[1]}"
    return f"{'/'.join(kinds) or 'operation'} {wait.sequence} of {wait.communicator}"


def left_nothing(ranks: Collection[int]) -> Evidence:
    """Say against a finding that others wait for ranks of which nothing is seen."""
    return Evidence(f"{ranks_text(ranks)} left nothing to see, and may be what the others wait for", None, supports=False)


def child(sample: Sample, rank: int) -> Evidence:
    """Say where a child process of the rank was."""
    return Evidence(f"child process {sample.pid} of rank {rank} at {sample.activity.describe()}", sample.source)


def _first_source(wait: Wait) -> str | None:
    return next((op.source for _, op in sorted(wait.waiting.items()) if op is not None), None)


@reduction
@dataclass(frozen=True, slots=True)
class CallStages:
    """What shows the stage of a call: where it was made, who is in its communicator, and where the hosts are.

    Hosts run ahead of devices.
    """

    paths: CallPaths
    groups: Communicators
    stacks: StacksByRank

    def of_wait(self, wait: Wait, ranks: Collection[int], ahead: Collection[int] = ()) -> StageName:
        """The one stage in which these ranks made the call they are in; unknown when they differ or nothing tells.

        Where the hosts of those `ahead` stand shows the stage of a later call.
        """
        calls = [call.call_path for rank, call in sorted(wait.waiting.items()) if call is not None and rank in ranks]
        passed = StageName.UNKNOWN if self._stages(calls) - {StageName.UNKNOWN} else self._passed_on(wait)
        return self.agreed(calls, [rank for rank in ranks if rank not in ahead]) if passed is StageName.UNKNOWN else passed

    def agreed(self, calls: Iterable[int | None], ranks: Collection[int]) -> StageName:
        """The one stage of some call paths; where these tell none, of the places of the hosts.

        Hosts run ahead of devices: where paths are recorded, only those count that stand at the line that makes such a call.
        """
        paths = [self.paths[call] for call in calls if call is not None and call in self.paths]
        places = (found for rank in ranks if (found := activity_of(self.stacks, rank)))
        at_call = {found.stage for found in places if not paths or any(called_by(path, found.path) for path in paths)}
        stages = ({stage_of_path(path) for path in paths} - {StageName.UNKNOWN}) or at_call - {StageName.UNKNOWN}
        return stages.pop() if len(stages) == 1 else StageName.UNKNOWN

    def _stages(self, calls: Iterable[int | None]) -> set[StageName]:
        return {stage_of_path(self.paths[call]) for call in calls if call is not None and call in self.paths}

    def _passed_on(self, wait: Wait) -> StageName:
        """Along a pipeline activations go up and gradients come down; round its end they go on in the same direction."""
        group = labelled(self.groups, wait.communicator)
        if not wait.peers or group is None or not _PIPELINE.search(group.label) or not set(wait.peers) <= set(group.members):
            return StageName.UNKNOWN
        sender, receiver = (group.members.index(rank) for rank in wait.peers)
        count = len(group.members)
        if count == 2:
            return StageName.FORWARD if sender < receiver else StageName.BACKWARD
        steps = {1: StageName.FORWARD, count - 1: StageName.BACKWARD}
        return steps.get((receiver - sender) % count, StageName.UNKNOWN)


@reduction
@dataclass(frozen=True, slots=True)
class EvidenceText:
    """Sentences on ranks and waits, from what a case knows of them."""

    roster: Roster
    stacks: StacksByRank
    graph: WaitGraph
    placed: Positions
    between: StagesBetween
    stages: CallStages
    kernel: KernelLines
    storage: LostStorage
    memory: ShortMemory
    log: LogSilence

    def waiters(self, rank: int) -> Iterator[Evidence]:
        """Say who waits for `rank` and what it did last in that communicator; the earliest waits, the rest is counted."""
        waits = sorted(
            self.graph.waiting_for(rank), key=lambda w: (w.peers is not None, w.since_ns or _NEVER_NS, w.communicator)
        )
        for wait in waits[:SHOWN_WAITS]:
            verb = "waits" if len(wait.waiting) == 1 else "wait"
            who = f"{ranks_text(wait.waiting)} {verb}"
            if wait.communicator:
                source = _first_source(wait) or self._counter_source(wait, rank)
                yield Evidence(f"{who} in {wait_text(wait)}; {self._last_issued(wait, rank)}", source)
            else:
                where = "for their devices" if self._at_devices(wait) else "in communication or for a store"
                seen = f"{who} {where}, as their stacks show; rank {rank} does not"
                yield Evidence(seen, self._stack_source(min(wait.waiting)))
                if self.log.silence_ns:
                    yield Evidence(self.log.reason, self.log.source)
        if len(waits) > SHOWN_WAITS:
            rest = counted(len(waits) - SHOWN_WAITS, "more operation")
            yield Evidence(f"{rest} wait for rank {rank}", _first_source(waits[SHOWN_WAITS]))

    def _counter_source(self, wait: Wait, rank: int) -> str | None:
        """Where a dump without calls counts those of a group."""
        position = self.placed.of(wait.communicator).positions.get(rank) if wait.is_counted else None
        return position.source if position else None

    def _at_devices(self, wait: Wait) -> bool:
        """Whether all that wait do so for their devices."""
        return all(rank in self.stacks and self.stacks[rank].at_device for rank in wait.waiting)

    def _last_issued(self, wait: Wait, rank: int) -> str:
        if wait.peers:
            return f"rank {rank} has not posted its side" if rank in wait.absent else self._unrecorded(wait, rank)
        group = self.placed.of(wait.communicator)
        position = group.positions.get(rank)
        if rank in wait.assumed:
            return f"rank {rank} was never seen using this group (its members were inferred from the ranks that wait)"
        if position is None:
            entered = "every other member" if wait.missing == (rank,) else f"all but {ranks_text(wait.missing)}"
            return f"{self._unrecorded(wait, rank)}, {entered} entered it"
        if position.entered == 0:
            return f"rank {rank} never entered this communicator"
        if position.family is Family.SHIM:
            return f"rank {rank} entered {position.entered} last"
        if position.family not in DIRECT:
            return f"rank {rank} enqueued {position.entered} last, by its {position.family}"
        finished = "finished" if position.done == position.entered else "not finished"
        return f"rank {rank} last issued {position.entered} ({finished})"

    def _unrecorded(self, wait: Wait, rank: int) -> str:
        logged = Family.SHIM in wait.families.values()
        return f"rank {rank} left no {'log of its calls' if logged else 'recorder dump'}"

    def _stack_source(self, rank: int) -> str | None:
        found = self.stacks.get(rank)
        return found.main[-1].source if found and found.main else None

    def stack(self, rank: int) -> Iterator[Evidence]:
        """Say where the rank's main thread was, over all samples."""
        found = self.stacks.get(rank)
        if found is None or not found.main:
            return
        latest = found.main[-1]
        same = [s for s in found.main if same_place((s, latest))]
        where = latest.activity.describe()
        if len(found.main) == 1:
            yield Evidence(f"the stack sample of rank {rank}'s {found.main_name} at {where}", latest.source)
        elif len(same) == 1:
            yield Evidence(
                f"rank {rank}'s {found.main_name} was at another place in each stack sample, at last {where}", latest.source
            )
        else:
            yield Evidence(
                f"{len(same)} of {len(found.main)} stack samples of rank {rank}'s {found.main_name} at {where}", latest.source
            )

    def process(self, rank: int) -> Iterator[Evidence]:
        """Say what the kernel showed of the rank's main thread, and what it wrote of the process."""
        yield from self.kernel.get(rank, ())
        facts = self.roster.rank(rank)
        if not facts.thread_states:
            return
        states = "/".join(dict.fromkeys(facts.thread_states))
        kind = " (file lock)" if wait_of_wchan(facts.wchan) is WaitKind.FILE_LOCK else ""
        where = f" in {facts.wchan}{kind}" if facts.wchan else ""
        where += f" (descriptor {facts.waits_on[0]})" if len(facts.waits_on) == 1 else ""
        switched = "1 context switch" if facts.switches == 1 else f"{facts.switches} context switches"
        ran = "" if facts.switches is None else f"; {switched} between samples"
        thread = self.stacks[rank].main_name if rank in self.stacks else "main thread"
        yield Evidence(
            f"{thread} of rank {rank} in state {states}{where} in {len(facts.thread_states)} samples{ran}",
            facts.process_source,
        )
        if _UNINTERRUPTIBLE in facts.thread_states:
            yield from self.storage.get(self.roster.host_of(rank), ())[:_SHOWN_SERVERS]

    def stage_ref(self, rank: int, stage: StageName, found: Activity | None, component: Component | None = None) -> StageRef:
        """Build the stage of a suspect: its own, else that of the calls around it; and the operation its peers wait for."""
        stage = self.between.get(rank, stage) if stage is StageName.UNKNOWN else stage
        wait = self._principal(rank)
        operation = next((op for op in wait.waiting.values() if op is not None), None) if wait else None
        application = application_frame(found.path) if found else None
        return StageRef(
            name=stage,
            component=component or (found.component if found else Component.UNKNOWN),
            direction="backward" if stage is StageName.BACKWARD else "forward" if stage is StageName.FORWARD else None,
            operation=operation.kind if operation else None,
            communicator=wait.communicator or None if wait else None,
            sequence=wait.sequence if wait and wait.communicator else None,
            substage=str(application) if application else None,
        )

    def joined_stage(self, wait: Wait, ranks: Collection[int], component: Component) -> StageRef:
        """Build the stage of ranks that are inside one operation: the stage of the call, and the operation."""
        name = self.stages.of_wait(wait, ranks, self._ahead(wait))
        operation = next((op for _, op in sorted(wait.waiting.items()) if op), None)
        return StageRef(
            name=name,
            component=component,
            direction=name.value if name in (StageName.FORWARD, StageName.BACKWARD) else None,
            operation=operation.kind if operation else None,
            communicator=wait.communicator or None,
            sequence=wait.sequence or None,
        )

    def _ahead(self, wait: Wait) -> frozenset[int]:
        """Ranks whose hosts issued a later call of another communicator, which has not ended either."""
        later = [
            (rank, call)
            for other in self.graph.waits
            for rank, call in other.waiting.items()
            if call and other.communicator != wait.communicator and other.families.get(rank) is wait.families.get(rank)
        ]
        return frozenset(rank for rank, call in later if (own := wait.waiting.get(rank)) and own.order < call.order)

    def _principal(self, rank: int) -> Wait | None:
        waits = self.graph.waiting_for(rank)
        return min(waits, key=lambda w: (not w.communicator, w.since_ns or _NEVER_NS, w.communicator)) if waits else None

    def since(self, waits: Collection[Wait]) -> Since | None:
        """When the first of the waits began, on the clock of the host that recorded it; else when the logs fell silent."""
        dated = [(wait.since_ns, wait) for wait in waits if wait.since_ns is not None]
        if not dated:
            return Since(self.log.last_ns, f"{self.log.host} realtime", self.log.pause_ns) if waits and self.log else None
        time_ns, wait = min(dated, key=lambda item: (item[0], item[1].communicator))
        first = min(wait.waiting, key=lambda r: (getattr(wait.waiting[r], "enqueued_ns", None) or _NEVER_NS, r))
        hosts = {self.roster.host_of(rank) for rank in wait.waiting}
        host = self.roster.host_of(first)
        return Since(
            time_ns,
            f"{host} realtime" if host else "realtime of the recording host",
            0 if len(hosts) == 1 and host else 1_000_000_000,
        )
