"""A rank is behind its peers by the numbers in their logs: it called less, or did not complete what they completed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from forensics.model import (
    Cause,
    Component,
    Confidence,
    Evidence,
    Family,
    Finding,
    Granularity,
    Mechanism,
    Members,
    StageName,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.calls.positions import Communicator
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.logs.broken_transports import of_broken_transport
from forensics.rules.reductions.logs.events import LogEvents, Logs
from forensics.rules.reductions.logs.idle_ranks import IdleInLogs
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.logs.starts import unstarted
from forensics.rules.reductions.logs.work import WorkInLogs
from forensics.rules.reductions.mismatch.logged_mismatches import LoggedMismatches
from forensics.rules.reductions.ranks.kernel_lines import KernelLines, of_blocked_task
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.text.behind import Behind, idle_behind, never_started, stuck_together
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.combined_positions import Positions
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait, WaitGraph

# At most so many are shown; ranks that wait for each one of which nothing is heard, where there are several of these.
_SHOWN, _LEAST_HEARD = 3, 2


def _evaluate(
    roster: Roster,
    graph: WaitGraph,
    placed: Positions,
    logged: Logged,
    mismatched: LoggedMismatches,
    events: LogEvents,
    work: WorkInLogs,
    errors: GpuErrors,
    kernel: KernelLines,
    idle: IdleInLogs,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    """Roots that only logs show; where dumps, stacks or processes tell who waits, they are among the roots of other rules."""
    # Behind a call that differs, numbers no longer count the same calls.
    parted = {mismatch.communicator for mismatch in mismatched}
    if logged.cancels and not logged.stalled:
        return
    for behind in _behind(roster, graph, placed, logged, idle):
        is_known = work.found is not None and behind.ranks == (work.found.wait.rank,) and behind.cause is Cause.UNKNOWN
        if behind.group.label not in parted and not is_known:
            found = errors.refined(_finding(logged, events, behind, thresholds["least_heard_share"]))
            yield of_broken_transport(of_blocked_task(found, kernel), events)


def _behind(roster: Roster, graph: WaitGraph, placed: Positions, logged: Logged, idle: IdleInLogs) -> list[Behind]:
    waits = [wait for wait in graph.waits if _is_logged(wait)]
    roots = [root for root in graph.reported_roots if root.waits and all(wait in waits for wait in root.waits)]
    absent = [root for root in roots if root.kind is RootKind.FREE and not _excused(roster.rank(root.ranks[0]))]
    heard = [root for root in absent if any(root.ranks[0] in wait.absent for wait in root.waits)]
    waiting = {rank for wait in waits for rank in wait.waiting}
    found = [item for item in (_device(placed, root) for root in roots) if item is not None]
    # One that waits alone for a majority that waits for nobody may have made a call too many.
    if heard and len(heard) <= len(waiting):
        late = [_late(placed, root, sure=len(heard) < len(waiting)) for root in heard]
        found += late if late[0].sure else [_one_of(late)]
    elif not heard and not found:
        ends = [wait for wait in waits if any(root.ranks[0] in wait.unheard for root in absent)]
        found += [_unplaced(placed, wait) for wait in ends if len(ends) == 1 and _is_filled(placed, wait)]
        # One that is known to have ended explains the wait; of the others nothing is known.
        found = found or ([] if absent else _together(placed, graph, roots))
        ended = any(root.kind is RootKind.FREE and roster.rank(root.ranks[0]).ended for root in roots)
        # Whose log says why it could not speak is not lost.
        apart = _fell_silent_apart([root.ranks[0] for root in absent if root.ranks[0] not in logged.stuck], roster)
        found = found or ([] if ended or apart else _silent(placed, logged, absent, len(waiting)))
    # Stacks in a call that nothing names may be in the very init.
    stated = any(wait.communicator for wait in graph.recorded) or any(group.positions for group in placed.recorded)
    if found or stated:
        return found
    return [idle_behind(idle.found)] if idle.found else [never_started(item) for item in unstarted(logged)]


def _is_logged(wait: Wait) -> bool:
    """Whether somebody's place in it is shown by numbers in logs; reports of who is missing are another rule's."""
    return not wait.overdue and any(family is Family.LOG for family in wait.families.values())


def _excused(facts: RankFacts) -> bool:
    """Whether its end is the fault, as a launcher saw it, or it gave up waiting itself: for a message, say."""
    return facts.timed_out or facts.ended


def _late(placed: Positions, root: Root, sure: bool) -> Behind:
    rank = root.ranks[0]
    waits = [wait for wait in root.waits if rank in wait.absent]
    return Behind(
        ranks=(rank,),
        cause=Cause.HOST_STALL,
        stage=_stage(waits[0], Component.HOST),
        members=Members.EACH,
        sure=sure,
        group=placed.of(waits[0].communicator),
        statements=tuple(statement for wait in waits[:_SHOWN] for statement in _calls(placed, wait, rank)),
    )


def _one_of(late: Sequence[Behind]) -> Behind:
    """As many are behind as wait: they may wait for one of them in what no log tells of, such as a message."""
    ranks = tuple(sorted(rank for each in late for rank in each.ranks))
    return replace(late[0], ranks=ranks, members=Members.ONE_OF if len(ranks) > 1 else Members.EACH)


def _calls(placed: Positions, wait: Wait, rank: int) -> Iterator[Evidence]:
    """What the behind rank called last, and where its peers are."""
    group = placed.of(wait.communicator)
    own = group.positions[rank]
    # NCCL counts its calls from zero.
    first = 1 if group.unit == "opCount" else 0
    ahead = tuple(r for r in wait.waiting if r != rank)
    yield Evidence(
        f"the log of rank {rank} ends at {group.unit} {own.entered - first} of {group.label}: "
        "it did not enqueue what its peers wait in",
        own.source,
    )
    said = f"{ranks_text(ahead)} enqueued {group.unit} {wait.sequence - first} of {group.label} and did not see it complete"
    yield Evidence(said, group.positions[min(ahead)].source)


def _device(placed: Positions, root: Root) -> Behind | None:
    """Everybody enqueued it, most completed it, a few did not."""
    wait = root.waits[0]
    group = placed.of(wait.communicator)
    done = group.finished(wait.sequence)
    lagging = tuple(rank for rank in root.ranks if rank not in done)
    if root.kind is not RootKind.ALL_JOINED or group.unit != "work" or not lagging or len(lagging) >= len(done):
        return None
    said = f"{ranks_text(lagging)} enqueued work {wait.sequence} of {group.label} like the others"
    return Behind(
        ranks=lagging,
        cause=Cause.COMPUTE_HANG,
        stage=_stage(wait, Component.COMPUTE),
        state="late_end",
        members=Members.EACH,
        sure=True,
        group=group,
        statements=(Evidence(f"{said}; {ranks_text(done)} completed it", group.positions[lagging[0]].source),),
        granularity=Granularity.GPU if len(lagging) == 1 else Granularity.GROUP,
    )


def _together(placed: Positions, graph: WaitGraph, roots: Sequence[Root]) -> list[Behind]:
    """The one group whose members are all inside, where all others wait for one of them: of the whole job it tells nothing."""
    joined = [root for root in roots if root.kind is RootKind.ALL_JOINED]
    if len(joined) != 1 or len(roots) > 1 or len(joined[0].waits) > 1:
        return []
    wait = joined[0].waits[0]
    group = placed.of(wait.communicator)
    outside = {rank for rank in joined[0].ranks for rank in graph.waiters(rank)} - {*group.members}
    whole = group.confidence == "read" and group.unit == "work" and {*group.members} == wait.waiting.keys()
    return [stuck_together(group, wait, outside)] if whole and outside and not group.finished(wait.sequence) else []


def _silent(placed: Positions, logged: Logged, roots: Sequence[Root], waiting: int) -> list[Behind]:
    """All that were heard wait: one of those that were not heard is missing there."""
    silent = tuple(sorted({root.ranks[0] for root in roots}))
    waits = sorted((wait for root in roots for wait in root.waits), key=lambda wait: -len(wait.waiting))
    if not silent or (len(silent) > 1 and _LEAST_HEARD * len(silent) > waiting):
        return []
    group = placed.of(waits[0].communicator)
    without = tuple(rank for rank in silent if rank not in logged.ranks)
    what = "no line of its watchdog is here" if without else "its log does not say that it waits there"
    one = "it is" if len(silent) == 1 else "one of them is"
    more = len({wait.communicator for wait in waits}) - 1
    where = f"work {waits[0].sequence} of {group.label}" + (f" or in {counted(more, 'other group')}" if more else "")
    said = f"everyone heard waits in {where}; {one} not there: {ranks_text(silent)} ({what})"
    return [
        Behind(
            ranks=silent,
            cause=Cause.PYTHON_EXCEPTION if len(silent) == 1 and silent[0] in logged.failures.own else Cause.UNKNOWN,
            stage=_stage(waits[0], Component.UNKNOWN),
            members=Members.EACH if len(silent) == 1 else Members.ONE_OF,
            sure=False,
            group=group,
            statements=(Evidence(said, group.positions[min(waits[0].waiting)].source),),
            granularity=Granularity.of_ranks(silent),
        )
    ]


def _fell_silent_apart(silent: Sequence[int], roster: Roster) -> bool:
    """Whether no one cause accounts for the silence of several ranks: neither of one host nor, where that is unknown, in a row.

    What is lost of all but one of them is lost for another reason, and so may be what is lost of that one.
    """
    hosts = {roster.host_of(rank) for rank in silent}
    if None not in hosts:
        return len(hosts) > 1
    return len(silent) > 1 and max(silent) - min(silent) >= len(silent)


def _is_filled(placed: Positions, wait: Wait) -> bool:
    """Whether the missing ranks are in no list of its members, and are there because a place in it is empty."""
    return bool(wait.unheard) and set(placed.of(wait.communicator).members).isdisjoint(wait.unheard)


def _unplaced(placed: Positions, wait: Wait) -> Behind:
    """The rank whose place in a group is empty, while everyone who speaks of the group waits in it."""
    group = placed.of(wait.communicator)
    said = f"{ranks_text([*group.positions])} wait in work {wait.sequence} of {group.label}, and a member of it is not heard"
    left = f"{ranks_text(wait.unheard)} speaks of no group of that description and waits in none"
    return Behind(
        ranks=wait.unheard,
        cause=Cause.HOST_STALL,
        stage=StageRef(name=StageName.UNKNOWN, component=Component.HOST, communicator=group.label, sequence=wait.sequence),
        members=Members.EACH,
        sure=len(wait.unheard) == 1,
        group=group,
        statements=(Evidence(said, next(iter(group.positions.values())).source), Evidence(left)),
    )


def _stage(wait: Wait, component: Component) -> StageRef:
    kinds = sorted({operation.kind for operation in wait.waiting.values() if operation is not None} - {"operation"})
    operation = kinds[0] if len(kinds) == 1 else None
    return StageRef(component=component, operation=operation, communicator=wait.communicator, sequence=wait.sequence)


def _finding(logged: Logged, events: LogEvents, behind: Behind, least_heard: float) -> Finding:
    enough = behind.group.heard >= least_heard
    sure = behind.sure and enough and logged.stalled
    own = (Evidence(f"log of rank {rank}: {said.text}", said.source) for rank, said in events.last_words(behind.ranks[:_SHOWN]))
    return Finding(
        ranks=behind.ranks,
        cause=behind.cause,
        stage=behind.stage,
        belief=behind.belief,
        confidence=Confidence.LIKELY if sure else Confidence.SUSPECT,
        evidence=(*behind.statements, *_doubts(logged, behind.group, enough), *own),
        granularity=behind.granularity,
        members=behind.members,
        mechanism=Mechanism(behind.state, "local"),
        next_steps=(
            f"read the end of the log of {ranks_text(behind.ranks)} and the kernel log of its host",
            "set TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE in older torch) to get dumps: "
            "a log shows how far a rank got, not what it did then",
        ),
    )


def _doubts(logged: Logged, group: Communicator, enough: bool) -> Iterator[Evidence]:
    """What weakens the charge."""
    if not enough:
        yield Evidence(f"logs of {len(group.positions)} of at least {group.size} members of {group.label} only", supports=False)
    if not logged.stalled:
        yield Evidence("no log says that anything timed out: in a job that moves, ranks are at different calls", supports=False)
    if group.unit == "opCount":
        yield Evidence("NCCL logs calls, not their completion", supports=False)


def _clears(graph: WaitGraph, placed: Positions, logged: Logged, seen: Seen) -> str | None:
    groups = [group for group in placed.reported if len(group.positions) > 1]
    heard = {rank for group in groups for rank in group.members}
    whole = all(group.heard == 1 and group.confidence == "read" for group in groups) and seen.all_in(heard)
    if not logged.stalled or not whole or any(root.kind is RootKind.FREE for root in graph.reported_roots):
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
    evaluate=_evaluate,
    clears=_clears,
)
