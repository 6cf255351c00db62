"""A rank is behind its peers by the numbers in their logs: it called less, or did not complete what they completed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Mechanism,
    Members,
    Role,
    StageName,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.logs.empty_places import EmptyPlace, empty_places
from forensics.rules.reductions.logs.events import Logs
from forensics.rules.reductions.logs.positions import LoggedGroup
from forensics.rules.reductions.logs.starts import Unstarted, unstarted
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class _Behind:
    """Ranks behind in one wait, and what they are charged with."""

    ranks: tuple[int, ...]
    cause: Cause
    stage: StageRef
    state: str
    members: Members
    sure: bool
    group: LoggedGroup
    statements: tuple[Evidence, ...]
    granularity: Granularity = Granularity.RANK


def _evaluate(job: Job, thresholds: Thresholds) -> Iterator[Finding]:
    """Nothing where dumps, stacks or processes tell who waits: they see more than the last lines of a log."""
    if job.graph.waits or any(group.positions for group in job.groups):
        return
    if job.logged.cancels and not job.logged.stalled:
        return
    found = _behind(job)
    for behind in found:
        yield _finding(job, behind, thresholds["least_heard_share"])
    named = {rank for behind in found for rank in behind.ranks}
    victims = tuple(rank for rank in sorted(job.logged.graph.waits_for) if rank not in named)
    if named and victims:
        yield _victims(job, victims)


def _behind(job: Job) -> list[_Behind]:
    roots = [root for root in job.logged.graph.roots if root.waits]
    absent = [root for root in roots if root.kind is RootKind.FREE and not _gone(job, root.ranks[0])]
    heard = [root for root in absent if any(root.ranks[0] in wait.absent for wait in root.waits)]
    waiting = set(job.logged.graph.waits_for)
    found = [item for item in (_device(job, root) for root in roots) if item is not None]
    # One that waits alone for a majority that waits for nobody may as well have made a call too many.
    if heard and len(heard) <= len(waiting):
        found += [_late(job, root, sure=len(heard) < len(waiting)) for root in heard]
    elif not heard and not found:
        found += [_unplaced(item) for item in empty_places(job.logged)] or _silent(job, absent)
    return found or [_never_started(item) for item in unstarted(job.logged)]


def _gone(job: Job, rank: int) -> bool:
    """Whether a launcher saw the rank end other than by its own watchdog: then its end is the fault, not its place."""
    facts = job.rank(rank)
    return facts.dead and not facts.aborted


def _late(job: Job, root: Root, sure: bool) -> _Behind:
    rank = root.ranks[0]
    waits = [wait for wait in root.waits if rank in wait.absent]
    group = job.logged.group(waits[0].communicator)
    return _Behind(
        ranks=(rank,),
        cause=Cause.HOST_STALL,
        stage=_stage(waits[0], Component.HOST),
        state="not_started",
        members=Members.EACH,
        sure=sure,
        group=group,
        statements=tuple(statement for wait in waits[:_SHOWN] for statement in _calls(job, wait, rank)),
    )


def _calls(job: Job, wait: Wait, rank: int) -> Iterator[Evidence]:
    """What the behind rank called last, and where its peers are."""
    group = job.logged.group(wait.communicator)
    own = group.positions[rank]
    unit = "work" if group.origin == "watchdog" else "opCount"
    ahead = tuple(r for r in wait.waiting if r != rank)
    last = -1 if own.enqueued is None else own.enqueued
    yield Evidence(
        f"the log of rank {rank} ends at {unit} {last} of {group.label}: it did not enqueue what its peers wait in", own.source
    )
    shown = group.positions[min(ahead)]
    number = wait.sequence if group.origin == "watchdog" else wait.sequence - 1
    yield Evidence(f"{ranks_text(ahead)} enqueued {unit} {number} of {group.label} and did not see it complete", shown.source)


def _device(job: Job, root: Root) -> _Behind | None:
    """Everybody enqueued it, most completed it, a few did not."""
    if root.kind is not RootKind.ALL_JOINED or not root.waits:
        return None
    wait = root.waits[0]
    group = job.logged.group(wait.communicator)
    done = tuple(r for r, p in group.positions.items() if p.completed is not None and p.completed >= wait.sequence)
    lagging = tuple(r for r in root.ranks if r not in done)
    if group.origin != "watchdog" or not lagging or len(lagging) >= len(done):
        return None
    shown = group.positions[lagging[0]]
    return _Behind(
        ranks=lagging,
        cause=Cause.COMPUTE_HANG,
        stage=_stage(wait, Component.COMPUTE),
        state="late_end",
        members=Members.EACH,
        sure=True,
        group=group,
        statements=(
            Evidence(
                f"{ranks_text(lagging)} enqueued work {wait.sequence} of {group.label} like the others; "
                f"{ranks_text(done)} completed it",
                shown.source,
            ),
        ),
        granularity=Granularity.GPU if len(lagging) == 1 else Granularity.GROUP,
    )


def _silent(job: Job, roots: Sequence[Root]) -> list[_Behind]:
    """All that were heard wait in one place: one of those that were not heard is missing there."""
    silent = tuple(sorted({root.ranks[0] for root in roots}))
    waits = [wait for root in roots for wait in root.waits]
    if not silent or 2 * len(silent) > len(silent) + len(job.logged.graph.waits_for):
        return []
    group = job.logged.group(waits[0].communicator)
    without = tuple(rank for rank in silent if rank not in job.logged.ranks)
    what = "no log of it is here" if without else "its log says nothing of this group"
    one = "it is" if len(silent) == 1 else "one of them is"
    said = f"everyone heard waits in work {waits[0].sequence} of {group.label}; {one} not there: {ranks_text(silent)} ({what})"
    return [
        _Behind(
            ranks=silent,
            cause=Cause.UNKNOWN,
            stage=_stage(waits[0], Component.UNKNOWN),
            state="not_started",
            members=Members.EACH if len(silent) == 1 else Members.ONE_OF,
            sure=False,
            group=group,
            statements=(Evidence(said, group.positions[min(waits[0].waiting)].source),),
            granularity=Granularity.RANK if len(silent) == 1 else Granularity.GROUP,
        )
    ]


def _unplaced(item: EmptyPlace) -> _Behind:
    """The rank whose place in a group is empty, while everyone who speaks of the group waits in it."""
    waiting = tuple(item.group.positions)
    said = f"{ranks_text(waiting)} wait in work {item.sequence} of {item.group.label}, and a member of it is not heard"
    left = f"{ranks_text(item.ranks)} speaks of no group of that description and waits in none"
    return _Behind(
        ranks=item.ranks,
        cause=Cause.HOST_STALL,
        stage=StageRef(name=StageName.UNKNOWN, component=Component.HOST, communicator=item.group.label, sequence=item.sequence),
        state="not_started",
        members=Members.EACH,
        sure=len(item.ranks) == 1,
        group=item.group,
        statements=(Evidence(said, item.group.positions[waiting[0]].source), Evidence(left)),
    )


def _never_started(item: Unstarted) -> _Behind:
    verb = "did not complete" if item.began else "did not begin"
    said = f"{ranks_text(item.ranks)} {verb} the init of communicator {item.group.label}"
    peers = f"{ranks_text(item.peers)} {'completed' if item.began else 'began'} it"
    source = item.group.positions[item.peers[0]].source
    return _Behind(
        ranks=item.ranks,
        cause=Cause.INIT_STALL,
        stage=StageRef(name=StageName.INIT, component=Component.HOST, communicator=item.group.label),
        state="not_started",
        members=Members.EACH if item.certain or len(item.ranks) == 1 else Members.ONE_OF,
        sure=item.certain,
        group=item.group,
        statements=(Evidence(f"{said}; {peers}", source),),
        granularity=Granularity.RANK if len(item.ranks) == 1 else Granularity.GROUP,
    )


def _stage(wait: Wait, component: Component) -> StageRef:
    kinds = sorted({operation.kind for operation in wait.waiting.values() if operation is not None} - {"operation"})
    return StageRef(
        name=StageName.UNKNOWN,
        component=component,
        operation=kinds[0] if len(kinds) == 1 else None,
        communicator=wait.communicator,
        sequence=wait.sequence,
    )


def _finding(job: Job, behind: _Behind, least_heard: float) -> Finding:
    enough = behind.group.heard >= least_heard
    sure = behind.sure and enough and job.logged.stalled
    return Finding(
        rule=RULE.code,
        ranks=behind.ranks,
        role=Role.ROOT,
        cause=behind.cause,
        stage=behind.stage,
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if sure else Confidence.SUSPECT,
        strength=0.3,
        evidence=(*behind.statements, *_doubts(job, behind.group, enough), *_own_log(job, behind.ranks)),
        granularity=behind.granularity,
        members=behind.members,
        mechanism=Mechanism(behind.state, "local"),
        next_steps=(
            f"read the end of the log of {ranks_text(behind.ranks)} and the kernel log of its host",
            "set TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE in older torch) to get dumps: "
            "a log tells how far a rank got, not what it did then",
        ),
    )


def _doubts(job: Job, group: LoggedGroup, enough: bool) -> Iterator[Evidence]:
    """What weakens the charge."""
    if not enough:
        yield Evidence(f"logs of {len(group.positions)} of at least {group.size} members of {group.label} only", supports=False)
    if not job.logged.stalled:
        yield Evidence("no log says that anything timed out: in a job that moves, ranks are at different calls", supports=False)
    if group.origin == "nccl":
        yield Evidence("NCCL logs calls, not their completion", supports=False)


def _own_log(job: Job, ranks: Sequence[int]) -> Iterator[Evidence]:
    """The last thing that a suspect's own log understood says, unless it only repeats that others wait."""
    told = ("exception", "fatal_error", "worker_exit", "watchdog_stuck", "gil_not_free", "completion_error", "nic_event")
    for rank in ranks[:_SHOWN]:
        events = [event for event in job.logs.get(rank, ()) if event.kind in told]
        if events:
            yield Evidence(f"log of rank {rank}: {events[-1].text}", events[-1].source)


def _victims(job: Job, ranks: tuple[int, ...]) -> Finding:
    return Finding(
        rule=RULE.code,
        ranks=ranks,
        role=Role.VICTIM,
        cause=Cause.UNKNOWN,
        stage=StageRef(name=StageName.UNKNOWN, component=Component.COMMUNICATION),
        belief=Belief.GROUP_SYMPTOM,
        confidence=Confidence.SUSPECT,
        strength=0.0,
        evidence=(),
    )


def _clears(job: Job) -> str | None:
    logged = job.logged
    groups = [group for group in logged.groups if len(group.positions) > 1 and group.heard == 1]
    if not logged.stalled or not groups or any(root.kind is RootKind.FREE for root in logged.graph.roots):
        return None
    return f"all members of {counted(len(groups), 'communicator')} enqueued the same, by their logs"


RULE = Rule(
    code="FX151",
    name="behind-in-logs",
    seed="Flight Recorder practice",
    needs=(Need(Logs, "logs", "the numbers stand in the lines of watchdogs and of NCCL"),),
    thresholds=(
        Threshold(
            "least_heard_share", 0.5, "with less than half of the members heard, most of the group may be behind as well"
        ),
    ),
    concludes="From logs alone: the rank that enqueued less than its peers, or did not complete what they completed.",
    confusions=(
        "a log that was cut or copied earlier than those of the peers",
        "a rank inside the library call itself: the watchdog counts a call when it returns",
        "the first to report a timeout, which only has the shortest one",
    ),
    evaluate=_evaluate,
    clears=_clears,
)
