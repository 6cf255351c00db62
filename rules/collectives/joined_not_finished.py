"""Everyone entered an operation and nobody, or not everybody, came out of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import inf

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
    Resource,
    StageName,
)
from forensics.rules.interface import Maturity, Rule
from forensics.rules.reductions.calls.positions import Communicators, labelled
from forensics.rules.reductions.calls.semantics import ROOTED, SEPARATE, stem_of
from forensics.rules.reductions.hardware.lost_links import LostLinks
from forensics.rules.reductions.logs.events import LogEvents
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches
from forensics.rules.reductions.mismatch.divergences import Divergences
from forensics.rules.reductions.network.failed_ports import FailedPorts
from forensics.rules.reductions.network.held_devices import HeldDevices
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.rails import may_send_on
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.completions import StartRecords, device_stall, not_begun
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait, WaitGraph
from forensics.rules.reductions.waits.launch_orders import is_order_inversion

_MOST_GROUPS = 2
_SHOWN = 4
_NETWORK = frozenset({"completion_error", "nic_event"})

_BELOW_THE_CALL = (
    "check what is below the collective: network, devices, proxy threads; the recorder cannot distinguish its members"
)
_CALLS_APART = (
    "compare the calls that the ranks are in, and the groups these are of: a rank that left out a call of its group, or made "
    "one more, went on and is in another call by now"
)

_ROOTS_APART = (
    "compare the root (src or dst) that each rank passes to the call, and the rank it takes itself for: members that name "
    "different roots look like this"
)


def _evaluate(
    roster: Roster,
    stacks: StacksByRank,
    graph: WaitGraph,
    groups: Communicators,
    blocking: BlockingMismatches,
    divergences: Divergences,
    liveness: Liveness,
    logs: LogEvents,
    starts: StartRecords,
    text: EvidenceText,
    held: HeldDevices,
    links: LostLinks,
    ports: FailedPorts,
    heard: Logged,
) -> Iterator[Finding]:
    mismatched = {mismatch.communicator for mismatch in blocking}
    # Members that came to it on different lines disagree on what it is: FX122 names them.
    mismatched |= {found.communicator for found in divergences if found.innermost}
    found = [
        root
        for root in graph.roots
        if root.kind in (RootKind.ALL_JOINED, RootKind.INVERTED)
        and not device_stall(groups, root)
        and not not_begun(root, graph, starts)
        and not is_order_inversion(groups, root)
        and held.isdisjoint(root.ranks)
        and root.waits[0].communicator not in mismatched
        and not _is_cut(groups, root)
        and not _lacks_a_message(root)
    ]
    failed = [_of_failed_ports(root, ports) if liveness.motion is Motion.STALLED else () for root in found]
    if any(failed):
        stated = [root for root, ranks in zip(found, failed, strict=True) if ranks]
        yield _port_failed(text, stated, {rank for ranks in failed for rank in ranks}, heard)
    elif liveness.motion is Motion.STALLED and not found:
        yield from _beside_unseen(graph, roster, ports, text, heard)
    found = [root for root, ranks in zip(found, failed, strict=True) if not ranks]
    # Groups do not stand still by themselves at once: what holds up several of them is elsewhere.
    for root in found if len(found) + _begun_beside(graph, found) <= _MOST_GROUPS else ():
        still = liveness.motion is Motion.STALLED and all(roster.rank(rank).state == "alive" for rank in root.ranks)
        seen = [activity_of(stacks, rank) for rank in root.ranks]
        lines = (*links, *_of_network(logs)) if still and _inside_one_call(seen) else ()
        yield _finding(groups, text, root, (_beside(groups, root, roster), lines), apart=_apart(root, seen))


def _beside_unseen(
    graph: WaitGraph, roster: Roster, ports: FailedPorts, text: EvidenceText, heard: Logged
) -> Iterator[Finding]:
    """Members whose port failed, where all others of whom anything is known are in the same operations: a suspicion."""
    unseen = {rank for root in graph.roots for rank in root.ranks if root.kind is RootKind.FREE and roster.rank(rank).unseen}
    inside = [wait for wait in graph.recorded if wait.missing and unseen.issuperset(wait.missing)]
    roots = [Root(RootKind.ALL_JOINED, tuple(sorted(wait.waiting)), (wait,)) for wait in inside]
    failed = {root: ranks for root in roots if (ranks := _of_failed_ports(root, ports))}
    if failed and all(unseen.issuperset(root.ranks) for root in graph.roots):
        found = _port_failed(text, [*failed], {rank for ranks in failed.values() for rank in ranks}, heard)
        against = evidence_text.left_nothing(sorted(unseen))
        yield replace(found, confidence=Confidence.SUSPECT, evidence=(*found.evidence, against))


def _begun_beside(graph: WaitGraph, found: Sequence[Root]) -> int:
    """How many other groups are inside an operation by all devices that are known: what is not known of them is no difference.

    Their records are cut, or they would be roots as well.
    """
    named = {rank for root in found for rank in root.ranks}
    beside = (wait for wait in graph.recorded if not (wait.missing or wait.peers) and named.isdisjoint(wait.waiting))
    begun = ([call.started for call in wait.waiting.values() if call is not None] for wait in beside)
    return sum(len(started) > 1 and all(started) for started in begun)


def _of_failed_ports(root: Root, ports: FailedPorts) -> tuple[int, ...]:
    """Members whose own NIC reported that its port failed; none where most did, which tells nobody apart."""
    ranks = tuple(rank for rank in root.ranks if rank in ports)
    return ranks if 2 * len(ranks) <= len(root.ranks) else ()


def _port_failed(text: EvidenceText, stated: Sequence[Root], failed: Collection[int], heard: Logged) -> Finding:
    """The members whose port failed, of all operations that stand still with such a one."""
    ranks = tuple(sorted(failed))
    others = {rank for root in stated for rank in root.ranks} - {*ranks}
    # All that they called later stands still as well: what the first of them called first is where it stopped.
    first = min(stated, key=lambda root: _called(root.waits[0], ranks[0]))
    wait = first.waits[0]
    waiting = f"{evidence_text.ranks_text(first.ranks)} wait in {evidence_text.wait_text(wait)}, which nobody finished"
    lines = {fault.rank: Evidence(f"rank {fault.rank} reported: {fault.text}", fault.source) for fault in heard.nic_faults}
    return Finding(
        ranks=ranks,
        cause=Cause.NETWORK_DOWN,
        stage=text.joined_stage(wait, first.ranks, Component.COMMUNICATION),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY,
        evidence=(
            *(lines[rank] for rank in ranks[:_SHOWN]),
            Evidence(waiting, next((op.source for _, op in sorted(wait.waiting.items()) if op), None)),
            Evidence("a process reports only ports that it uses, and no other member of what stands still did"),
        ),
        granularity=Granularity.NIC,
        resource=Resource(peer_ranks=tuple(sorted(others))),
        mechanism=Mechanism("not_delivered", "local"),
        since=text.since((wait,)),
        next_steps=(f"check the port, cable and switch port of the NIC of {evidence_text.ranks_text(ranks)}",),
    )


def _called(wait: Wait, rank: int) -> float:
    """Where the call of a wait stands in the record of a rank; last where it has none."""
    call = wait.waiting.get(rank)
    return inf if call is None else call.order


def _is_cut(groups: Communicators, root: Root) -> bool:
    """Whether the record of a member is cut before the call that its counters tell of: what it waits for may be elsewhere."""
    wait = root.waits[0]
    group = labelled(groups, wait.communicator)
    return group is not None and any(call is None and rank in group.cut for rank, call in wait.waiting.items())


def _lacks_a_message(root: Root) -> bool:
    """Whether one member alone is known to be in an exchange: its messages complete by themselves, and it may lack that of any
    other one, of whom nothing is known."""
    kinds = {stem_of(call.kind) for call in root.waits[0].waiting.values() if call is not None}
    return len(root.ranks) == 1 and not kinds.isdisjoint(SEPARATE)


def _unended(root: Root) -> tuple[int, ...]:
    """Members of whom nothing shows whether they came out: what holds the others up may as well be theirs."""
    return tuple(sorted({rank for wait in root.waits for rank in wait.unended} - {*root.ranks}))


def _apart(root: Root, seen: Sequence[Activity | None]) -> bool:
    """Whether no more is known than that the members are in calls of communication, and these are several calls."""
    return not root.waits[0].communicator and None not in seen and not _inside_one_call(seen)


def _beside(groups: Communicators, root: Root, roster: Roster) -> tuple[int, ...]:
    """Ranks that take no part in a message and over whose NIC it may leave."""
    wait = root.waits[0]
    group = labelled(groups, wait.communicator)
    members = group.members if group else ()
    return tuple(r for r in may_send_on(*wait.peers, members, roster) if r not in root.ranks) if wait.peers else ()


def _finding(
    groups: Communicators, text: EvidenceText, root: Root, known: tuple[tuple[int, ...], Sequence[Evidence]], *, apart: bool
) -> Finding:
    """Build the finding; `known` are ranks beside the root over whose NIC it may go, and lines about the network.

    These are stated where the hosts live and are inside the same call.
    """
    wait, (beside, lines) = root.waits[0], known
    stage = text.joined_stage(wait, root.ranks, Component.COMMUNICATION)
    # One place may be in no known stage: that of the others is not its own.
    unlike = apart and len({found.stage for rank in root.ranks if (found := activity_of(text.stacks, rank))}) > 1
    on = (Evidence(f"with PXN the message leaves over the NIC of {evidence_text.ranks_text(beside)}"),) if beside else ()
    cause = _cause(groups, root, bool(lines))
    inside = _ROOTS_APART if cause is Cause.COLLECTIVE_MISMATCH else _BELOW_THE_CALL
    return Finding(
        ranks=tuple(sorted({*root.ranks, *beside, *_unended(root)})),
        cause=cause,
        stage=replace(stage, name=StageName.UNKNOWN, direction=None) if unlike else stage,
        belief=Belief.GROUP_SYMPTOM,
        confidence=Confidence.SUSPECT,
        evidence=(*_evidence(groups, text, root), *on, *(() if apart else _network_lines(lines))),
        granularity=Granularity.GROUP,
        members=Members.ONE_OF,
        since=text.since((wait,)),
        next_steps=(_CALLS_APART if apart else inside,),
    )


def _cause(groups: Communicators, root: Root, lines: bool) -> Cause:
    """A rooted operation that only some finished fits members that disagree on the root; the network only where it is known of.

    That nothing else is left is no fact: devices, libraries and the network all look the same from above.
    """
    wait = root.waits[0]
    kinds = {operation.kind for operation in wait.waiting.values() if operation}
    group = labelled(groups, wait.communicator)
    if kinds & ROOTED:
        return Cause.COLLECTIVE_MISMATCH if group and group.finished(wait.sequence) else Cause.UNKNOWN
    return Cause.NETWORK_DOWN if lines and wait.communicator else Cause.UNKNOWN


def _of_network(logs: LogEvents) -> Iterator[Evidence]:
    """Lines of the job's logs about a NIC, or a request that failed on the way."""
    for own in (*logs.by_rank.values(), logs.of_hosts):
        for event in own:
            if event.kind in _NETWORK:
                yield Evidence(f"a log reports a network error: {event.text}", event.source)


def _network_lines(lines: Sequence[Evidence]) -> Iterator[Evidence]:
    yield from lines[:2]
    if not lines:
        alike = "no evidence of the network itself: a stalled device or library leaves the same evidence"
        yield Evidence(alike, None, supports=False)


def _inside_one_call(seen: Sequence[Activity | None]) -> bool:
    """Whether every member is inside the same call, made at the same place."""
    inside = [activity for activity in seen if activity and (activity.communicating or activity.below_autograd)]
    return len(inside) == len(seen) and len({str(activity.application) for activity in inside}) == 1


def _evidence(groups: Communicators, text: EvidenceText, root: Root) -> Iterator[Evidence]:
    wait = root.waits[0]
    source = next((op.source for _, op in sorted(wait.waiting.items()) if op), None)
    if not wait.communicator:
        yield Evidence(
            f"{evidence_text.ranks_text(root.ranks)} are inside communication, and no rank is known to be elsewhere", source
        )
    else:
        group = next(g for g in groups if g.label == wait.communicator)
        finished = () if wait.peers else group.finished(wait.sequence)
        tail = f"; {evidence_text.ranks_text(finished)} finished it" if finished else "; nobody finished it"
        tail += f"; whether {evidence_text.ranks_text(unended)} did is unknown" if (unended := _unended(root)) else ""
        yield Evidence(
            f"all members entered {evidence_text.wait_text(wait)}: {evidence_text.ranks_text(root.ranks)} wait{tail}", source
        )
    for rank in root.ranks[:4]:
        yield from text.stack(rank)


def _clears(seen: Seen, groups: Communicators) -> str | None:
    used = [group for group in groups if group.positions]
    where = evidence_text.counted(len(used), "communicator")
    return f"no operation of {where} was entered by all members and left unfinished" if seen.ends_of_all else None


RULE = Rule(
    code="FX140",
    name="joined-not-finished",
    seed="Mycroft section 6.2 (layering)",
    concludes="A group whose members nothing distinguishes: the fault is below the recorder (network, device, library).",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
