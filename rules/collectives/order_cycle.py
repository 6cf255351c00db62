"""Ranks wait for each other in a circle because they used communicators in different orders."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Members,
    StageRef,
)
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.mismatch.left_out_messages import LeftOutMessages
from forensics.rules.reductions.mismatch.miscounts import Miscounts
from forensics.rules.reductions.ranks.roster import RecordedRanks
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait, WaitGraph
from forensics.rules.reductions.waits.order_history import CallOrder

# Times the ranks of the smaller camp: of so many that agree no bug that is theirs alone is likely.
_MANY = 3


def _evaluate(
    graph: WaitGraph, miscounts: Miscounts, messages: LeftOutMessages, order: CallOrder, text: EvidenceText
) -> Iterator[Finding]:
    # Hosts post messages ahead: while they wait for a rank that does not come, those behind each other are no circle yet.
    is_held = bool(graph.free_roots)
    for root in graph.roots:
        left_out = any(found.rank in root.ranks for found in messages)
        if left_out or any(set(found.odd) <= _involved(root) for found in miscounts):
            continue  # not another order, but another number of calls (FX120)
        if root.kind is RootKind.CYCLE and all(wait.communicator for wait in root.waits):
            if any(_closed_elsewhere(root, wait) for wait in root.waits):
                continue
            yield from _findings(order, text, root)
        elif root.kind is RootKind.INVERTED and not is_held and all(wait.peers for wait in root.waits):
            if order.passed.issuperset(root.ranks):
                continue  # the same messages went through in this order before
            yield _crossed(text, root)


def _closed_elsewhere(root: Root, wait: Wait) -> bool:
    """Whether the circle is closed by ranks alone whose own record may hold the very call, under another name."""
    closing = set(root.ranks).intersection(wait.missing)
    return bool(closing) and closing <= set(wait.elsewhere)


def _involved(root: Root) -> set[int]:
    return set(root.ranks).union(*(wait.waiting for wait in root.waits))


def _crossed(text: EvidenceText, root: Root) -> Finding:
    """Both sides of every transfer are posted, but behind each other: as when all send before they receive."""
    return Finding(
        ranks=root.ranks,
        cause=Cause.DEADLOCK,
        stage=_stage(text, root, root.ranks),
        belief=Belief.MISMATCH,
        confidence=Confidence.SUSPECT,
        evidence=(*_posted_first(root), *_stacks(text, root.ranks)),
        granularity=Granularity.GROUP,
        since=text.since(root.waits),
        next_steps=("let one side receive first, or post both directions in one batch (batch_isend_irecv)",),
    )


def _posted_first(root: Root) -> Iterator[Evidence]:
    for rank in root.ranks:
        posted = sorted(
            ((op.order, wait, op) for wait in root.waits if (op := wait.waiting.get(rank))), key=lambda item: item[0]
        )
        (_, wait, first), *later = posted
        behind = ", ".join(f"its {op.kind} {other.sequence}" for _, other, op in later)
        yield Evidence(f"rank {rank} is in {first.kind} {wait.sequence} with {behind or 'nothing'} behind it", first.source)


def _findings(order: CallOrder, text: EvidenceText, root: Root) -> Iterator[Finding]:
    """Name the rank that broke its own order, or the smaller camp; the whole cycle is the alternative, or all there is."""
    odd, why = _odd(order, root)
    recorded = all(wait.absent for wait in root.waits)
    if odd:
        yield _finding(text, root, odd, Members.EACH, Confidence.LIKELY if recorded else Confidence.SUSPECT, why)
    if odd and (order.kept.issuperset(set(root.ranks) - set(odd)) or _is_outnumbered(root, odd)):
        return  # all the others did what they always did, or are by far the more to agree
    everyone = Confidence.SUSPECT if odd or not recorded else Confidence.LIKELY
    yield _finding(text, root, root.ranks, Members.EACH, everyone, None)


def _is_outnumbered(root: Root, odd: tuple[int, ...]) -> bool:
    """Whether many more ranks of the circle, each of them itself, came to the other call."""
    return _MANY * len(odd) <= len(set(root.ranks) - set(odd))


def _odd(order: CallOrder, root: Root) -> tuple[tuple[int, ...], str | None]:
    ranks = set(root.ranks)
    broke = tuple(sorted(ranks & order.broke))
    if broke and set(broke) < ranks:
        usual = "their usual order" if len(broke) > 1 else "its usual order"
        left = f"{evidence_text.ranks_text(broke)} left {usual} of communicators with this call, or shortly before it"
        return broke, f"{left}; the others kept theirs"
    camps = sorted((tuple(sorted(ranks & set(wait.waiting))) for wait in root.waits), key=lambda camp: (len(camp), camp))
    if len(camps) == 2 and len(camps[0]) < len(camps[1]):
        return camps[0], f"{len(camps[1])} ranks agree on one order, {evidence_text.ranks_text(camps[0])} on the other"
    return (), None


def _finding(
    text: EvidenceText,
    root: Root,
    ranks: tuple[int, ...],
    members: Members,
    confidence: Confidence,
    why: str | None,
) -> Finding:
    return Finding(
        ranks=ranks,
        cause=Cause.DEADLOCK,
        stage=_stage(text, root, ranks),
        belief=Belief.MISMATCH,
        confidence=confidence,
        evidence=(*_edges(root), *([Evidence(why, _source(root, ranks))] if why else []), *_stacks(text, ranks)),
        granularity=Granularity.of_ranks(ranks),
        members=members,
        since=text.since(root.waits),
        next_steps=("make every rank issue the operations of these communicators in the same order",),
    )


def _stage(text: EvidenceText, root: Root, ranks: tuple[int, ...]) -> StageRef:
    own: Wait = next((wait for wait in root.waits if set(ranks) & set(wait.waiting)), root.waits[0])
    return text.joined_stage(own, ranks, Component.COMMUNICATION)


def _edges(root: Root) -> Iterator[Evidence]:
    for wait in root.waits:
        missing = set(wait.missing) & set(root.ranks)
        if not missing:
            continue
        source = next((op.source for _, op in sorted(wait.waiting.items()) if op), None)
        verb = "waits" if len(wait.waiting) == 1 else "wait"
        yield Evidence(
            f"{evidence_text.ranks_text(wait.waiting)} {verb} in {evidence_text.wait_text(wait)} "
            f"for {evidence_text.ranks_text(missing)}",
            source,
        )


def _source(root: Root, ranks: tuple[int, ...]) -> str | None:
    for wait in root.waits:
        for rank in ranks:
            operation = wait.waiting.get(rank)
            if operation:
                return operation.source
    return None


def _stacks(text: EvidenceText, ranks: tuple[int, ...]) -> Iterator[Evidence]:
    for rank in ranks[:4]:
        yield from text.stack(rank)


def _clears(seen: Seen, groups: Communicators) -> str | None:
    used = [group for group in groups if group.positions]
    return f"no circle of waits over {evidence_text.counted(len(used), 'communicator')}" if seen.calls_of_all else None


RULE = Rule(
    code="FX130",
    name="order-cycle",
    seed="Flight Recorder practice",
    needs=(Need(RecordedRanks, "recorder", "the order of operations over communicators is in the recorder only"),),
    concludes="The rank that used the communicators in another order than before or than its peers, else the whole circle.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
