"""Operations of two communicators that share ranks are all entered, and each waits for the other on the devices."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Belief, Cause, Component, Confidence, Evidence, Finding, Granularity, Members
from forensics.rules.interface import Need, Rule
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.logs.events import LogEvents
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches
from forensics.rules.reductions.mismatch.miscounts import Miscounts
from forensics.rules.reductions.network.flow_ends import NETWORK
from forensics.rules.reductions.network.flow_faults import RootFlows
from forensics.rules.reductions.network.held_devices import HeldByEnded
from forensics.rules.reductions.ranks.roster import RecordedRanks
from forensics.rules.reductions.text.evidence_text import EvidenceText, counted, ranks_text, wait_text
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.completions import ComputingDevices
from forensics.rules.reductions.waits.graph import RootKind, Wait, WaitGraph
from forensics.rules.reductions.waits.launch_orders import OrderInversion, OrderInversions
from forensics.rules.reductions.waits.order_history import CallOrder

_SHOWN = 4
# Log lines that tell of the network or a node: then the operations hang for another reason. A closed connection is not among
# them: watchdogs that end their ranks close them all.
_NETWORK = frozenset({"completion_error", "nic_event", "node_failed"})


def _evaluate(
    graph: WaitGraph,
    blocking: BlockingMismatches,
    logs: LogEvents,
    order: CallOrder,
    text: EvidenceText,
    inversions: OrderInversions,
    roots: RootFlows,
    held: HeldByEnded,
    miscounts: Miscounts,
    computing: ComputingDevices,
    errors: GpuErrors,
) -> Iterator[Finding]:
    mismatched = {mismatch.communicator for mismatch in blocking}
    # Who made another number of calls than its peers did not launch them in another order (FX120).
    # A device that has begun none of its calls is held up before all of them, and those behind it with it.
    broken = _at_broken_links(roots) | held | computing | {rank for found in miscounts for rank in found.odd}
    # So is one of which the driver reports an error.
    broken |= {rank for rank, error in errors.by_rank.items() if error.time_ns is not None and not error.is_loose}
    for found in inversions:
        if broken.isdisjoint(found.ranks) and mismatched.isdisjoint(wait.communicator for wait in found.waits):
            yield _finding(graph, logs, order, text, found)


def _at_broken_links(roots: RootFlows) -> frozenset[int]:
    """Ranks at a link that does not deliver: what they are in hangs for that, in whatever order it was launched.

    Devices that wait for each other leave nothing on the way. A failed request alone may be the echo of a process that a
    watchdog ended.
    """
    return frozenset(rank for flow in roots if flow.state in NETWORK for rank in (flow.sender, flow.proxy, flow.receiver))


def _finding(graph: WaitGraph, logs: LogEvents, order: CallOrder, text: EvidenceText, found: OrderInversion) -> Finding:
    doubts = tuple(_doubts(graph, logs, order, found))
    overlap = found.order == "overlap"
    broke = _broke(order, found)
    ranks = broke or found.ranks
    return Finding(
        ranks=ranks,
        cause=Cause.DEADLOCK,
        stage=text.joined_stage(found.waits[0], found.ranks, Component.COMMUNICATION),
        belief=Belief.GROUP_SYMPTOM if overlap else Belief.MISMATCH,
        confidence=Confidence.SUSPECT if doubts else Confidence.LIKELY,
        rivals=("operations that run at the same time on one device leave the same evidence",) if overlap else (),
        evidence=(
            *_joined(found),
            *_order(found),
            *_order_before(order, found),
            *(Evidence(doubt, None, supports=False) for doubt in doubts),
        ),
        granularity=Granularity.of_ranks(ranks),
        members=Members.EACH if broke or len(ranks) <= 2 else Members.ONE_OF,
        since=text.since(found.waits),
        next_steps=(
            "make every rank launch the operations of these communicators in the same order; where they do, "
            "NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26 and newer) keeps that order on the devices",
            "a profiler trace with the start of both kernels on each rank decides whether they wait for each other",
        ),
    )


def _joined(found: OrderInversion) -> Iterator[Evidence]:
    for wait in found.waits[:_SHOWN]:
        source = next((op.source for _, op in sorted(wait.waiting.items()) if op), None)
        members = {*wait.waiting, *wait.queued}
        yield Evidence(
            f"all members ({ranks_text(members)}) entered {wait_text(wait)}, nobody finished it",
            source,
        )


def _order(found: OrderInversion) -> Iterator[Evidence]:
    """Who has which operation first, by enqueueing or by what the device has begun."""
    if found.order == "overlap":
        yield Evidence(
            f"both have begun on the devices of {ranks_text(found.ranks)}: they run together, and neither ends",
            None,
        )
        return
    verb = "enqueued" if found.order == "enqueued" else "began on the device"
    for wait in found.waits[:_SHOWN]:
        first = tuple(rank for rank in found.ranks if _is_first(found, wait, rank))
        if first:
            source = next((op.source for rank in first if (op := wait.waiting.get(rank))), None)
            yield Evidence(f"{ranks_text(first)} {verb} {wait_text(wait)} first", source)


def _broke(order: CallOrder, found: OrderInversion) -> tuple[int, ...]:
    """Half of the ranks or fewer, when they took the operations in an order they never used before."""
    broke = tuple(rank for rank in found.ranks if rank in order.broke)
    return broke if found.order == "enqueued" and 2 * len(broke) <= len(found.ranks) else ()


def _order_before(order: CallOrder, found: OrderInversion) -> Iterator[Evidence]:
    broke = _broke(order, found)
    if broke:
        source = next((op.source for wait in found.waits if (op := wait.waiting.get(broke[0]))), None)
        yield Evidence(f"{ranks_text(broke)} never took them in this order before; the others kept theirs", source)


def _is_first(found: OrderInversion, wait: Wait, rank: int) -> bool:
    own = wait.waiting.get(rank)
    others = [op for other in found.waits if other is not wait and (op := other.waiting.get(rank))]
    if own is None or not others:
        return False
    if found.order == "started":
        return own.started and not any(other.started for other in others)
    return all(own.order < other.order for other in others)


def _doubts(graph: WaitGraph, logs: LogEvents, order: CallOrder, found: OrderInversion) -> Iterator[str]:
    """What else would leave the same dumps."""
    if found.order == "overlap":
        yield (
            "a network that is down, or one device that stands still, leaves the same dumps when both were launched: "
            "the order in which the devices took the two operations would decide"
        )
    if found.order == "enqueued" and set(found.ranks) <= order.kept:
        yield "every rank took them in an order that it had finished before"
    if any(wait.peers for wait in found.waits):
        yield "sends and receives are among them: small ones are buffered, and their order then does not matter"
    own = {(wait.communicator, wait.sequence) for wait in found.waits}
    others = [
        root
        for root in graph.roots
        if root.kind is RootKind.ALL_JOINED and not own & {(wait.communicator, wait.sequence) for wait in root.waits}
    ]
    if others:
        elsewhere = counted(len(others), "other operation")
        yield f"{elsewhere} that all members entered and nobody finished: one fault of the network would explain all of them"
    lost = [event for events in (*logs.by_rank.values(), logs.of_hosts) for event in events if event.kind in _NETWORK]
    if lost:
        yield f"a log reports a network error: {lost[0].text}"


def _clears(seen: Seen, graph: WaitGraph, groups: Communicators) -> str | None:
    used = [group for group in groups if group.positions and group.backend not in ("gloo", "unknown")]
    joined = [wait for wait in graph.waits if wait.communicator and not wait.missing]
    if not used or joined or not seen.ends_of_all:
        return None
    return f"no operation that all members entered is left unfinished, in {counted(len(used), 'communicator')}"


RULE = Rule(
    code="FX132",
    name="communicators-entangled",
    seed="NCCL user guide, several communicators at a time",
    needs=(Need(RecordedRanks, "recorder", "the order of operations over communicators is in the recorder only"),),
    concludes="Ranks that share communicators whose operations were all entered, in orders that contradict each other.",
    evaluate=_evaluate,
    clears=_clears,
)
