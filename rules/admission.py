"""Whether a finding may accuse: what the progress of those who wait for its ranks says against it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from forensics.model import Anomaly, Belief, Cause, Finding, Granularity, Members, StageName, WaitKind
from forensics.rules.explain import Observed, blocked, hypothesis, tied
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.frontier.duties import first_ranks
from forensics.rules.reductions.host.outside import OutsideInputs
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.pipeline.amid_step import AmidStep
from forensics.rules.reductions.progress.amid_pass import AmidPass
from forensics.rules.reductions.progress.at_work import (
    LEAST_SAVE_NS,
    LEAST_WORK_NS,
    at_work,
    wakes_often,
    working_child,
    writes,
)
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.progress.stack_times import StackSpans
from forensics.rules.reductions.progress.standstill import Standing, WaitState, WaitStates
from forensics.rules.reductions.progress.unusual_silence import UnusualSilence
from forensics.rules.reductions.ranks.children import ChildProcesses
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.waits.graph import WaitGraph
from forensics.rules.reductions.waits.settled import Settled

LARGEST_NODE = 8
"""GPUs of the largest node in use: those of one node somebody can look at one by one."""

_LONG_STAGES = frozenset({StageName.CHECKPOINT, StageName.EVAL})
_PASSES = frozenset({StageName.FORWARD, StageName.BACKWARD})


@dataclass(frozen=True, slots=True)
class Progress:
    """What decides whether a finding may accuse: who waits for whom, whether these waits pass, and who is at work."""

    graph: WaitGraph
    wait_states: WaitStates
    liveness: Liveness
    logged: Logged
    roster: Roster
    stacks: StacksByRank
    children: ChildProcesses
    groups: Communicators
    settled: Settled
    outside: OutsideInputs
    amid_pass: AmidPass
    amid_step: AmidStep
    silence: UnusualSilence
    spans: StackSpans


def withheld(progress: Progress, finding: Finding, observed: Observed, late: Collection[int] = ()) -> str | None:
    """Say why a finding accuses nobody, or None when it may: a wait that passes, or is as long as usual, is no symptom.

    `late` are the ranks for which the others wait again and again.
    """
    motion = progress.liveness
    if finding.by_design:
        return finding.by_design
    if finding.anomaly is Anomaly.FAIL_SLOW:
        # What ended steps cost stays true when nothing shows whether the job goes on.
        still = motion.motion is Motion.STALLED and not finding.of_past
        return f"what is slow in a job that stands still is another question: {motion.reason}" if still else None
    if finding.belief is Belief.DIRECT_RECORD:
        alone = motion.motion is Motion.MOVING and not blocked(progress.graph, finding.ranks[:1])
        return f"nobody waits for it: {motion.reason}" if alone else None
    return _of_waits(progress, finding, states(progress, finding), observed) or _usual(progress, finding, late)


def states(progress: Progress, finding: Finding) -> tuple[WaitState, ...]:
    """What is known of the waits that a finding stands on."""
    chosen = frozenset(tied(finding, progress.graph))
    return tuple(state for state, wait in zip(progress.wait_states, progress.graph.waits, strict=True) if wait in chosen)


def is_still(progress: Progress, finding: Finding) -> bool:
    """Whether one of the waits that it stands on is proven to stand still; without waits, the job as a whole."""
    found = states(progress, finding)
    return any(state.standing is Standing.STILL for state in found) if found else progress.liveness.motion is Motion.STALLED


def _of_waits(progress: Progress, finding: Finding, found: tuple[WaitState, ...], observed: Observed) -> str | None:
    kinds = {state.standing for state in found}
    own = _outside(progress, finding) or _lock_of_another(progress, finding) or _working(progress, finding, found)
    if own is not None:
        return own
    if _is_of_all_seen(progress, finding) and not _sized(progress, finding):
        return "how many ranks take part is not known: one that left nothing may be the one that the others wait for"
    if (
        finding.belief is Belief.GROUP_SYMPTOM
        and finding.members is Members.ONE_OF
        and _is_all_of_several_nodes(progress, finding)
    ):
        return f"it is one of all {len(finding.ranks)} ranks of the job: nothing distinguishes them"
    if Standing.STILL in kinds:
        return None
    chosen = tied(finding, progress.graph)
    of_all = finding.belief in (Belief.GROUP_SYMPTOM, Belief.MISMATCH)
    if of_all and chosen and not any(wait.communicator for wait in chosen):
        return "all ranks in communication: a progressing job can look like this, and nothing shows that they stay there"
    if kinds == {Standing.PASSING}:
        return f"those who wait for it went on: {found[0].reason}"
    # Who waits for whom is put together from several dumps: only of one moment, or of a job that stands still, is a circle one.
    certain = finding.belief is Belief.MISMATCH and finding.cause is not Cause.DEADLOCK
    motion = progress.liveness
    if motion.motion is Motion.MOVING:
        return f"the job goes on: {motion.reason}"
    if certain:
        return None
    usual = next((state for state in found if state.standing is not Standing.UNKNOWN), None)
    # Pauses between steps say nothing of a place at which no rank was silent for long, whoever waits there.
    if usual is not None and progress.silence:
        return None
    if usual is not None:
        return f"no wait for it is longer than usual: {usual.reason}"
    if motion.motion is Motion.STALLED:
        return None
    if motion.motion is Motion.UNSEEN and progress.settled.held:
        if finding.ranks and progress.settled.apart.issuperset(finding.ranks):
            return None
        left = observed.symptoms.waits - hypothesis(finding, (), observed).waits
        return f"in one capture, a hang has one explanation: this one leaves {len(left)} waits" if left else None
    return f"nothing shows that those who wait for it stand still: {motion.reason}"


def _is_of_all_seen(progress: Progress, finding: Finding) -> bool:
    """Whether it holds only where those who were seen are all: stacks of messages without a peer lack nobody."""
    if finding.belief is Belief.MISMATCH:
        return any(not (wait.communicator or wait.missing) for wait in tied(finding, progress.graph))
    return finding.belief is Belief.GROUP_SYMPTOM and finding.members is Members.ONE_OF


def _sized(progress: Progress, finding: Finding) -> bool:
    """Whether all members of what its ranks wait in are known: that all who were seen are inside says nothing else."""
    read = {group.label for group in progress.groups if group.confidence == "read"}
    return progress.roster.world_size is not None or all(
        wait.peers or wait.communicator in read for wait in tied(finding, progress.graph)
    )


def _is_all_of_several_nodes(progress: Progress, finding: Finding) -> bool:
    """Whether its ranks are the whole of a job that no single node holds: to name all of them is to name nobody."""
    return len(finding.ranks) > LARGEST_NODE and {*finding.ranks} >= {*progress.roster.ranks}


def _usual(progress: Progress, finding: Finding, late: Collection[int]) -> str | None:
    """Why a wait of unknown length for a rank that is always late is what its job looks like when it moves."""
    found = states(progress, finding)
    missing = [set(wait.missing) for wait in tied(finding, progress.graph)]
    slow = sorted(set(late).intersection(*missing)) if missing and not progress.logged.stalled else []
    if not slow or any(state.standing is not Standing.UNKNOWN for state in found) or finding.belief is Belief.MISMATCH:
        return None
    return f"the others always wait for rank {slow[0]}, and nothing shows that they do so for longer now"


def _outside(progress: Progress, finding: Finding) -> str | None:
    """Why those who wait for a rank that waits for something from outside may do so as they should; None once one gave up.

    The recorder holds the same of a server that has nothing to do and of one that lost a client.
    """
    if finding.belief is not Belief.BEHIND_AND_BUSY or progress.logged.stalled:
        return None
    waits = (progress.outside[rank].text for rank in finding.ranks if rank in progress.outside)
    return next(waits, None)


def _lock_of_another(progress: Progress, finding: Finding) -> str | None:
    """Why a rank that waits for a file lock may wait for another one that is awaited too, and that may hold it."""
    wait_of = {root.ranks[0]: activity_of(progress.stacks, root.ranks[0]) for root in progress.graph.free_roots}
    elsewhere = [rank for rank, found in wait_of.items() if found is not None and found.wait is not WaitKind.FILE_LOCK]
    waits = [rank for rank in finding.ranks if (found := wait_of.get(rank)) is not None and found.wait is WaitKind.FILE_LOCK]
    if finding.belief is not Belief.BEHIND_AND_BUSY or not elsewhere or len(waits) < len(finding.ranks):
        return None
    return f"rank {waits[0]} waits for a file lock, which rank {elsewhere[0]} may hold"


def _working(progress: Progress, finding: Finding, found: tuple[WaitState, ...]) -> str | None:
    """Why those who wait for a rank that is at work may go on by themselves; None for a wait that is long even so."""
    if finding.belief is not Belief.BEHIND_AND_BUSY or (finding.mechanism is not None and finding.resource is not None):
        return None
    if finding.granularity is Granularity.GPU:
        return None  # a host that waits for its device does so on a CPU
    seen = {rank: how for rank in finding.ranks if (how := _work(progress, finding, rank))}
    lasted = max((state.length_ns or 0 for state in found if state.standing is Standing.STILL), default=0)
    given_up = any(state.standing is Standing.STILL and state.length_ns is None for state in found) and progress.logged.stalled
    takes_minutes = (
        finding.stage.name in _LONG_STAGES
        or any(_takes_minutes(progress, finding, rank) for rank in seen)
        or _by_stacks_alone(progress, finding)
        or (_is_first(progress, finding) and not _is_amid_pass(progress, finding))
    )
    least = LEAST_SAVE_NS if takes_minutes else LEAST_WORK_NS
    if len(seen) < len(finding.ranks) or lasted >= least or given_up:
        return None
    rank, how = next(iter(seen.items()))
    long = f"they are known to wait for {lasted / 1e9:.0f} s only" if lasted else "waiting time of the others unknown"
    return f"rank {rank} is at work ({how}), and {long}: work ends by itself"


def _work(progress: Progress, finding: Finding, rank: int) -> str | None:
    if _begins(progress, finding, rank):
        return "its record holds no call yet, and the others are in their first one: it may still prepare its data"
    works = at_work(progress.roster.rank(rank), progress.stacks.get(rank), progress.children.get(rank, ()))
    return works or _pauses(progress, finding, rank)


def _pauses(progress: Progress, finding: Finding, rank: int) -> str | None:
    """Say that a first rank, which evaluates and saves for all, sleeps there, or may: a stack alone does not show a sleep."""
    found, facts = activity_of(progress.stacks, rank), progress.roster.rank(rank)
    if not _is_first(progress, finding):
        return None
    met = _meet_at_barrier(progress, finding)
    if found is None:
        unseen = met and not facts.thread_states and not progress.logged.overdue
        return (
            "it may be: calls alone tell of it, and a first rank works for all while they are in a barrier" if unseen else None
        )
    if found.stage is StageName.EVAL and found.wait is WaitKind.SLEEP:
        return "it sleeps for a time in an evaluation, which a first rank does for all"
    if found.wait is WaitKind.SLEEP and met and (facts.switches or 0) > 1:
        return "it sleeps and wakes while the others are in a barrier: there a first rank works for all"
    by_stacks = _by_stacks_alone(progress, finding) and not facts.thread_states
    if not (by_stacks and found.unframed) or _is_amid_pass(progress, finding) or progress.spans.get(rank, 0) >= LEAST_SAVE_NS:
        return None
    return "it may be: stacks alone tell of it, and a first rank evaluates and saves for all"


def _meet_at_barrier(progress: Progress, finding: Finding) -> bool:
    """Whether all other ranks of the job wait for its ranks in barriers, at which nothing is exchanged."""
    waits = tied(finding, progress.graph)
    calls = [call for wait in waits for call in wait.waiting.values()]
    others = {rank for wait in waits for rank in wait.waiting}
    all_wait = {*progress.roster.ranks} - {*finding.ranks} <= others
    return bool(calls) and all_wait and all(call is not None and "barrier" in call.kind for call in calls)


def _is_first(progress: Progress, finding: Finding) -> bool:
    """Whether one rank is meant that is the first of its job or host: it evaluates, draws and saves for all."""
    hosts = {each: progress.roster.host_of(each) for each in progress.roster.ranks}
    return len(finding.ranks) == 1 and finding.ranks[0] in first_ranks(hosts)


def _is_amid_pass(progress: Progress, finding: Finding) -> bool:
    """Whether its ranks stopped inside a pass, by their stacks and calls: what is done for all is done between steps.

    So do those that stopped between two passes of a step; their stack need not have a frame of either.
    """
    if finding.stage.name is StageName.UNKNOWN:
        return progress.amid_step.issuperset(finding.ranks)
    return finding.stage.name in _PASSES and (progress.amid_pass | progress.amid_step).issuperset(finding.ranks)


def _takes_minutes(progress: Progress, finding: Finding, rank: int) -> bool:
    """Whether what the rank is seen to do takes a sound one minutes."""
    facts, found = progress.roster.rank(rank), progress.stacks.get(rank)
    prepares = working_child(found, progress.children.get(rank, ())) is not None or _begins(progress, finding, rank)
    return prepares or facts.fed or writes(facts) or wakes_often(facts, found)


def _by_stacks_alone(progress: Progress, finding: Finding) -> bool:
    """Whether no call was recorded of the waits: whether one stands amid steps or behind what is due once, nothing shows."""
    return not any(wait.communicator for wait in tied(finding, progress.graph))


def _begins(progress: Progress, finding: Finding, rank: int) -> bool:
    """Whether all that is known of the rank is a record without a call, while the others wait in the first one of the job."""
    facts = progress.roster.rank(rank)
    empty = facts.unseen and facts.dumped and not (facts.has_recorder or facts.recorder_damaged)
    waits = tied(finding, progress.graph)
    return empty and bool(waits) and all(wait.sequence in (0, 1) and not wait.overdue for wait in waits)
