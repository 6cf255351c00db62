"""Ranks wait in point-to-point calls, and everybody who could answer waits as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from forensics.model import Belief, Cause, Component, Confidence, Evidence, Finding, Granularity, Members, WaitKind
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.host.background import thread_statement
from forensics.rules.reductions.stacks.remote_calls import RemoteCallHandlers, in_remote_call
from forensics.rules.reductions.stacks.samples import Sample, StacksByRank, activity_of
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait, WaitGraph

_PAIR = 2


def _evaluate(stacks: StacksByRank, graph: WaitGraph, text: EvidenceText, handlers: RemoteCallHandlers) -> Iterator[Finding]:
    for root in graph.roots:
        for wait in root.waits:
            waiting = tuple(rank for rank in root.ranks if rank in wait.waiting)
            if root.kind is RootKind.FREE or wait.communicator:
                continue
            if _may_ask(stacks, waiting, handlers):
                yield from _unanswered(stacks, text, wait, {rank: handlers[rank] for rank in root.ranks if rank in handlers})
            elif _point_to_point(stacks, waiting) and (_is_framed(stacks, waiting) or len(waiting) < len(root.ranks)):
                yield _finding(stacks, text, root, wait, waiting)


def _may_ask(stacks: StacksByRank, ranks: tuple[int, ...], handlers: RemoteCallHandlers) -> bool:
    """Whether they wait for the answer to a remote call, by a frame, or for a future, which leaves none, while one works."""
    found = [activity_of(stacks, rank) for rank in ranks]
    asks = bool(found) and all(in_remote_call(each) or (each is not None and each.unframed) for each in found)
    return asks and (bool(handlers) or any(map(in_remote_call, found)))


def _unanswered(stacks: StacksByRank, text: EvidenceText, wait: Wait, handlers: Mapping[int, Sample]) -> Iterator[Finding]:
    """Name the one rank whose thread stays in the handler of a remote call; its main thread need not answer."""
    if len(handlers) != 1:
        return
    ((rank, thread),) = handlers.items()
    caller = min(wait.waiting)
    verb = "waits" if len(wait.waiting) == 1 else "wait"
    waits = f"{evidence_text.ranks_text(wait.waiting)} {verb} for the answer to a remote call"
    yield Finding(
        ranks=(rank,),
        cause=Cause.HOST_STALL,
        stage=text.stage_ref(rank, thread.activity.stage, thread.activity),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY,
        evidence=(thread_statement(thread, rank), Evidence(waits, stacks[caller].main[-1].source), *text.stack(caller)),
        next_steps=(f"read the code of rank {rank} at {thread.activity.application}: it handles a remote call there",),
    )


def _point_to_point(stacks: StacksByRank, ranks: tuple[int, ...]) -> bool:
    found = [activity_of(stacks, rank) for rank in ranks]
    return all(each is not None and each.wait is WaitKind.POINT_TO_POINT for each in found)


def _is_framed(stacks: StacksByRank, ranks: tuple[int, ...]) -> bool:
    """Whether frames show it: that a thread waits for a work handle, which is all the kernel tells, may be of any call."""
    return not any(each is not None and each.by_kernel for each in (activity_of(stacks, rank) for rank in ranks))


def _finding(stacks: StacksByRank, text: EvidenceText, root: Root, wait: Wait, waiting: tuple[int, ...]) -> Finding:
    """Name those who all receive; else the few who went past the exchange; else those who are left in it.

    Where frames do not show what is left, one of all is at fault: a message that was not sent holds up a chain of ranks. So it
    may where three or more both send and receive, in stages of a pipeline: all but two of them only wait for these.
    """
    functions = (
        activity.call_frame.function for rank in waiting if (activity := activity_of(stacks, rank)) and activity.call_frame
    )
    calls = sorted(set(functions))
    past = tuple(rank for rank in root.ranks if rank not in waiting)
    only_receive = len(waiting) > 1 and bool(calls) and set(calls) <= {"recv", "irecv"}
    is_chain = not past and len(waiting) > _PAIR and len({call.removeprefix("i") for call in calls}) > 1
    is_open = is_chain or not _is_framed(stacks, waiting)
    few = past if past and len(past) < len(waiting) and not only_receive else waiting
    ranks = root.ranks if is_open else few
    return Finding(
        ranks=ranks,
        cause=Cause.DEADLOCK if only_receive else Cause.P2P_UNMATCHED,
        stage=text.joined_stage(wait, ranks, Component.COMMUNICATION),
        belief=Belief.MISMATCH,
        # Those who all receive look the same where a rank that is past the exchange did not send to the first of them.
        confidence=Confidence.SUSPECT if len(waiting) == 1 or is_open or (past and only_receive) else Confidence.LIKELY,
        evidence=tuple(_evidence(stacks, text, waiting, past, calls)),
        granularity=Granularity.GROUP if is_open else Granularity.of_ranks(ranks),
        members=Members.ONE_OF if is_open else Members.EACH,
        next_steps=tuple(_next_steps(past, only_receive)),
    )


def _next_steps(past: tuple[int, ...], only_receive: bool) -> Iterator[str]:
    if past and only_receive:
        whom = evidence_text.ranks_text(past)
        yield f"see whether {whom}, past the exchange, left out a send to one of them: that would leave the same evidence"
    yield "match the sends and receives of these ranks call by call; the recorder of gloo does not hold them"


def _evidence(
    stacks: StacksByRank, text: EvidenceText, waiting: tuple[int, ...], past: tuple[int, ...], calls: list[str]
) -> Iterator[Evidence]:
    verb = "waits" if len(waiting) == 1 else "wait"
    found = stacks[waiting[0]].main[-1].source
    yield Evidence(
        f"{evidence_text.ranks_text(waiting)} {verb} in {'/'.join(calls) or 'messages'}, and no rank is free to answer", found
    )
    if past:
        verb = "waits" if len(past) == 1 else "wait"
        source = next((line.source for rank in past for line in text.stack(rank)), None)
        yield Evidence(f"{evidence_text.ranks_text(past)} {verb} for them elsewhere, past the exchange", source)
    for rank in (*past[:2], *waiting[:4]):
        yield from text.stack(rank)


def _clears(seen: Seen, stacks: StacksByRank) -> str | None:
    waiting = [found for found in stacks.values() if found.latest and found.latest.wait is WaitKind.POINT_TO_POINT]
    known = seen.all_in(seen.stacks) and not waiting
    return f"none of {len(seen.ranks)} ranks, by their stacks, waits in a point-to-point call" if known else None


RULE = Rule(
    code="FX131",
    name="receive-unanswered",
    seed="VenusTrace section 6, case 1 (a missing receive)",
    needs=(Need(StacksByRank, "stacks", "gloo records no point-to-point calls"),),
    concludes="Ranks at the end of all waits that receive (or send) while nobody is left to answer.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
