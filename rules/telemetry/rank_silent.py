"""A rank left no evidence at all, and its peers wait for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from forensics.model import Belief, Cause, Component, Confidence, Evidence, Finding, Granularity, Members, StageName
from forensics.rules.interface import Rule
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches, vote
from forensics.rules.reductions.network.failed_queue_pairs import FailedQueuePairs
from forensics.rules.reductions.ranks.roster import Roster, SeenProcesses, UnplacedFiles
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import Wait, WaitGraph
from forensics.rules.reductions.waits.last_messages import LastMessages
from forensics.rules.reductions.waits.unrecorded import call_of, stands_with_waiters

# These write a dump only in processes that noticed a failure themselves (pytorch#192233, #197232).
_WHERE_NOTICED = frozenset({"nccl2"})


def _evaluate(
    roster: Roster,
    graph: WaitGraph,
    stacks: StacksByRank,
    calls: Calls,
    groups: Communicators,
    blocking: BlockingMismatches,
    text: EvidenceText,
    unplaced: UnplacedFiles,
    failed: FailedQueuePairs,
    errors: GpuErrors,
    messages: LastMessages,
    processes: SeenProcesses,
) -> Iterator[Finding]:
    """Nobody is silent while stacks or dumps lie there of which nothing shows the rank: one may be the missing one."""
    # A shim log is made with the first call and outlives its process: where there is none, nobody fetched it.
    if unplaced or calls.from_shim:
        return
    mismatched = {mismatch.communicator for mismatch in blocking}
    alone = [root.ranks[0] for root in graph.free_roots if _missing_alone(roster, graph, root.ranks[0], mismatched)]
    silent = tuple(rank for rank in alone if not _is_held(graph, rank, failed))
    if not processes and _not_handed_in(graph, silent):
        return
    if (first := _missed_first(graph, silent)) is not None:
        (rank,) = first.missing
        found = _in_front(_finding(roster, graph, text, (rank,), ()), silent)
        yield _with_its_group(found, text, first) if roster.rank(rank).recorder_damaged else found
    elif 0 < len(silent) <= len(roster.ranks) / 2 and not _lost_by_hand(roster, silent):
        found = _finding(roster, graph, text, silent, tuple(_doubts(graph, groups, errors, silent)))
        found = _with_other_end(found, text, *messages[silent[0]]) if len(silent) == 1 and silent[0] in messages else found
        yield _with_others_apart(found, text, _calls_of_waiters(graph, stacks, silent[0]))


def _missing_alone(roster: Roster, graph: WaitGraph, rank: int, mismatched: Collection[str]) -> bool:
    """Whether this unseen rank is awaited in a call that the others agree on: a mismatch explains the wait without it."""
    awaited = any(wait.communicator not in mismatched for wait in graph.waiting_for(rank))
    return awaited and roster.rank(rank).unseen and not stands_with_waiters(roster, graph, rank)


def _is_held(graph: WaitGraph, rank: int, failed: FailedQueuePairs) -> bool:
    """Whether a way between others failed, and one of its ends is in what this rank is awaited in: none would finish that."""
    ends = {end for pair in failed if pair.peer is not None for end in (pair.rank, pair.peer)}
    return rank not in ends and any(not ends.isdisjoint(wait.waiting) for wait in graph.waiting_for(rank))


def _lost_by_hand(roster: Roster, silent: tuple[int, ...]) -> bool:
    """Whether what lies there has gaps that no fault makes: files were lost on their way, and one more may have been.

    One fault silences one rank, or the ranks of a host, which are numbered one after the other. And a rank that has written
    a dump could be sampled like its neighbours.
    """
    if silent[-1] - silent[0] != len(silent) - 1:
        return True
    sampled = {rank for rank, facts in roster.ranks.items() if facts.has_stack}
    dumped = {rank for rank, facts in roster.ranks.items() if facts.has_recorder and not facts.dead}
    return any({rank - 1, rank + 1} <= sampled for rank in dumped - sampled)


def _missed_first(graph: WaitGraph, silent: tuple[int, ...]) -> Wait | None:
    """The collective that lacks one of several silent ranks alone, and in which no rank waits behind another call.

    Those that are missing in later calls only may wait in them like the others: some of these have not come there themselves,
    or they are missing there together with that one.
    """
    if len(silent) < 2 or len(graph.free_roots) > len(silent):
        return None
    orders: dict[int, list[int]] = defaultdict(list)
    for rank, call in ((rank, call) for wait in graph.recorded for rank, call in wait.waiting.items() if call is not None):
        orders[rank].append(call.order)
    first = [
        wait
        for wait in graph.recorded
        if not {*silent}.isdisjoint(wait.missing)
        and all(call is not None and call.order == min(orders[rank]) for rank, call in wait.waiting.items())
    ]
    alone = [wait for wait in first if len(wait.missing) == 1 and len(wait.waiting) > 1 and wait.peers is None]
    found = [wait for wait in alone if all(other is wait or _is_behind(graph, wait, other) for other in first)]
    return found[0] if len(found) == 1 else None


def _is_behind(graph: WaitGraph, first: Wait, other: Wait) -> bool:
    """Whether who is missing in the first of two calls is so in the other too, which members of the first wait in behind it.

    They do so in their own group: calls of one kind and number are one call of the program.
    """
    if not {*first.missing} <= {*other.missing}:
        return False
    kinds = {(other.sequence, call.kind) for call in other.waiting.values() if call is not None}
    return any(
        call is not None and rank in first.waiting and (wait.sequence, call.kind) in kinds
        for wait in graph.recorded
        if wait is not first
        for rank, call in wait.waiting.items()
    )


def _in_front(found: Finding, silent: tuple[int, ...]) -> Finding:
    """A finding about one of several silent ranks: the call that lacks it may as well stand between those who made it."""
    rest = evidence_text.ranks_text([rank for rank in silent if rank not in found.ranks])
    behind = f"{rest} left as little, and are missing only in calls that it, or some of the others, have not come to themselves"
    stands = "it may have issued the call: then this stands between its members"
    evidence = (*found.evidence, Evidence(behind), Evidence(stands, None, supports=False))
    return replace(found, confidence=Confidence.SUSPECT, evidence=evidence)


def _with_its_group(found: Finding, text: EvidenceText, wait: Wait) -> Finding:
    """The record of the rank breaks off before it: it may well have issued the call, which then stands between its members."""
    ranks = tuple(sorted({*found.ranks, *wait.waiting}))
    stage = text.joined_stage(wait, tuple(sorted(wait.waiting)), Component.UNKNOWN)
    return replace(
        found, ranks=ranks, stage=stage, belief=Belief.GROUP_SYMPTOM, granularity=Granularity.GROUP, members=Members.ONE_OF
    )


def _not_handed_in(graph: WaitGraph, silent: tuple[int, ...]) -> bool:
    """Whether several ranks lack stacks, that somebody took one by one, where no call was recorded that they are missing in."""
    return len(silent) > 1 and not any(wait.communicator for rank in silent for wait in graph.waiting_for(rank))


def _excused(graph: WaitGraph, rank: int) -> bool:
    """Whether others that left as little are taken for victims only by what logs and counters say of them."""
    waiting = {other for wait in graph.recorded for other in wait.waiting}
    return any(set(wait.unheard) - waiting - {rank} for wait in graph.waiting_for(rank))


def _doubts(graph: WaitGraph, groups: Communicators, errors: GpuErrors, silent: Collection[int]) -> Iterator[Evidence]:
    """Where a dump was not to be expected of a rank, or a GPU of one that waits failed, its absence says little."""
    awaited = [wait for rank in silent for wait in graph.waiting_for(rank)]
    failed = [rank for rank in errors.by_rank if any(rank in wait.waiting for wait in awaited)]
    for rank in failed[:1]:
        yield replace(errors.statement(rank), supports=False)
    waits = {wait.communicator for wait in awaited}
    for group in groups:
        if group.label in waits and group.backend in _WHERE_NOTICED:
            why = f"{group.backend} writes a dump only where a failure was noticed: a rank that waits for nothing leaves none"
            yield Evidence(why, None, supports=False)
            return


def _finding(
    roster: Roster,
    graph: WaitGraph,
    text: EvidenceText,
    silent: tuple[int, ...],
    doubts: tuple[Evidence, ...],
) -> Finding:
    """Nothing shows the cause: dead, unreachable, or in teardown with its recorder already closed.

    Several silent ranks cannot be distinguished: one of them is missing, the others may only not have been collected.
    """
    rank, alone = silent[0], len(silent) == 1
    recorded = any(rank in wait.unheard for wait in graph.waits) and not _excused(graph, rank)
    behind = [root for root in graph.free_roots if not roster.rank(root.ranks[0]).unseen]
    who, which = evidence_text.ranks_text(silent), "it is" if alone else "one of them is"
    return Finding(
        ranks=silent,
        cause=Cause.UNKNOWN,
        stage=text.stage_ref(rank, StageName.UNKNOWN, None),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if alone and recorded and not (behind or doubts) else Confidence.SUSPECT,
        evidence=(
            Evidence(f"{who} left no stack and no complete record of its calls; {which} what the others wait for"),
            *(text.waiters(rank) if alone else ()),
            *doubts,
        ),
        granularity=Granularity.RANK if alone else Granularity.GROUP,
        members=Members.EACH if alone else Members.ONE_OF,
        since=text.since(graph.waiting_for(rank)),
        next_steps=(f"find host, process and end of the log of {who}; collect there",),
    )


def _with_other_end(found: Finding, text: EvidenceText, wait: Wait, end: int) -> Finding:
    """The rank may have issued its side of the message, and the transfer stands: that would look the same."""
    (rank,) = found.ranks
    call = wait.waiting[end]
    message = f"{call.kind if call else 'a message'} {wait.sequence} of {wait.communicator}"
    stated = (
        f"rank {end} waits in {message} with rank {rank}, and "
        f"the rank beside it is past its own: either rank {rank} never issued its side, or the transfer stands"
    )
    return replace(
        found,
        ranks=tuple(sorted((rank, end))),
        stage=text.joined_stage(wait, (end,), Component.UNKNOWN),
        confidence=Confidence.SUSPECT,
        evidence=(*found.evidence, Evidence(stated)),
        granularity=Granularity.GROUP,
        members=Members.ONE_OF,
    )


def _calls_of_waiters(graph: WaitGraph, stacks: StacksByRank, rank: int) -> dict[int, str]:
    """The collective of each rank that only its stack shows to wait for this one, by rank."""
    waiting = {other for wait in graph.waiting_for(rank) if not wait.communicator for other in wait.waiting}
    return {other: call for other in sorted(waiting) if other in stacks and (call := call_of(stacks[other]))}


def _with_others_apart(found: Finding, text: EvidenceText, calls: Mapping[int, str]) -> Finding:
    """Those who wait stand in different collectives: a call that the others never made explains that as well."""
    if len(set(calls.values())) < 2:
        return found
    majority = vote(calls)
    apart = tuple(rank for rank in calls if rank not in majority) if majority else ()
    shown = (*apart[:1], *majority[:1]) or tuple(calls)[:2]
    stated = Evidence("the ranks that wait are in different collectives: which of them waits for whom is not known")
    return replace(
        found,
        ranks=tuple(sorted({*found.ranks, *apart})),
        confidence=Confidence.SUSPECT,
        evidence=(*found.evidence, stated, *(line for rank in shown for line in text.stack(rank))),
        granularity=Granularity.GROUP if apart else found.granularity,
        members=Members.ONE_OF if apart else found.members,
    )


def _clears(seen: Seen, roster: Roster) -> str | None:
    heard = [rank for rank, facts in roster.ranks.items() if not facts.unseen]
    return f"all {len(roster.ranks)} ranks left some evidence" if seen.all_in(heard) else None


RULE = Rule(
    code="FX150",
    name="rank-silent",
    seed="Flight Recorder practice",
    concludes="A rank that the others wait for and that nothing was collected from; the absence is the evidence.",
    evaluate=_evaluate,
    clears=_clears,
)
