"""The NIC of a rank said that a work request failed: the way to another rank, or the request itself, is broken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

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
    StageRef,
)
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.network.chunk_flows import OpenFlows
from forensics.rules.reductions.network.failed_ports import FailedPorts, Ranks, own_end
from forensics.rules.reductions.network.failed_queue_pairs import FailedQueuePairs, UnansweredQueuePairs
from forensics.rules.reductions.network.work_requests import NETWORK_STATUS, STATUS_NAMES, QueuePair, QueuePairs
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import LEAST_HEARTBEAT_GAP_NS, ShimLogs, WorkRequestLogs
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph


def _evaluate(
    roster: Roster,
    graph: WaitGraph,
    shim: ShimLogs,
    open_flows: OpenFlows,
    failed: FailedQueuePairs,
    users: NicUsers,
    ports: FailedPorts,
    unanswered: UnansweredQueuePairs,
) -> Iterator[Finding]:
    """Ranks that have a NIC together are one end of a way where queue pairs of each failed.

    Where none did, a request that nobody answered while the whole job stands still shows the way as well.
    """
    failed = failed or FailedQueuePairs(unanswered)
    if not failed or not (graph.waits or open_flows or unanswered):
        return
    hit = {rank for pair in failed for rank in (pair.rank, pair.peer) if rank is not None}
    camps: dict[tuple[Ranks, ...], list[QueuePair]] = defaultdict(list)
    for pair in failed:
        camps[_ends(pair, ports, users, hit)].append(pair)
    common = set[Ranks].intersection(*(set(ends) for ends in camps)) if len(camps) > 1 else set()
    if len(common) == 1:
        yield _finding(roster, shim, ports, tuple(common), failed)
        return
    for ends, pairs in sorted(camps.items()):
        yield _finding(roster, shim, ports, ends, pairs)


def _ends(pair: QueuePair, ports: FailedPorts, users: NicUsers, hit: Collection[int]) -> tuple[Ranks, ...]:
    """Who may be at fault: both ends where the way did not answer, unless one's own port failed; else whose request it was."""
    if _is_of_network(pair) and pair.peer is not None and pair.peer != pair.rank:
        ends = tuple(sorted({users.together(rank, hit) for rank in (pair.rank, pair.peer)}))
        own = own_end(ports, ends)
        return ends if own is None else (users.of(own),)
    return ((pair.rank,),)


def _is_of_network(pair: QueuePair) -> bool:
    return pair.status is None or pair.status in NETWORK_STATUS


def _peer_silent(shim: ShimLogs, pair: QueuePair) -> int:
    """For how long (ns) the log of the other end had ended before that of this one did, when that is more than a late beat."""
    own, other = shim.get(pair.rank), shim.get(pair.peer) if pair.peer is not None else None
    gap = own.end_ns - other.end_ns if own and other else 0
    return gap if gap >= LEAST_HEARTBEAT_GAP_NS else 0


def _finding(roster: Roster, shim: ShimLogs, ports: FailedPorts, ends: Sequence[Ranks], pairs: Sequence[QueuePair]) -> Finding:
    ordered = sorted(pairs, key=lambda pair: (pair.error_ns is None, pair.error_ns or 0, pair.rank, pair.name))
    first = ordered[0]
    network = _is_of_network(first)
    silent = max(_peer_silent(shim, pair) for pair in pairs)
    ranks, single = tuple(sorted(rank for each in ends for rank in each)), len(ends) == 1
    stated = tuple(rank for rank in ranks if single and rank in ports)
    sure = Confidence.CONFIRMED if stated or not single or not network else Confidence.LIKELY
    return Finding(
        ranks=ranks,
        cause=Cause.NETWORK_DOWN if network else Cause.OTHER,
        stage=StageRef(component=Component.COMMUNICATION),
        belief=Belief.DIRECT_RECORD,
        confidence=Confidence.SUSPECT if silent or first.status is None else sure,
        evidence=(*(_failure(pair) for pair in ordered[:4]), *_port(ports, stated), *_against(first, silent)),
        granularity=Granularity.NIC if single else Granularity.LINK,
        members=Members.EACH if single else Members.ONE_OF,
        resource=_resource(ordered, ranks),
        mechanism=Mechanism("not_delivered", "local" if single else "unknown"),
        since=roster.since(first.rank, first.error_ns),
        next_steps=_next_steps(first, network),
    )


def _resource(ordered: Sequence[QueuePair], ranks: Ranks) -> Resource:
    """The NIC of the first request that one of the ranks made itself, if any did, and who is at the other end of the first."""
    first, mine = ordered[0], next((pair for pair in ordered if pair.rank in ranks), None)
    whom = first.peer if first.rank in ranks else first.rank
    return Resource(
        nic=mine.nic if mine else None,
        port=str(mine.port) if mine and mine.port else None,
        queue_pair=mine.name if mine else None,
        peer_ranks=() if whom is None else (whom,),
        path=mine.remote if mine else None,
    )


def _failure(pair: QueuePair) -> Evidence:
    if pair.status is None:
        held = f"{pair.in_flight} requests in flight, the oldest for {(pair.age_ns or 0) / 1e9:.1f} s"
        return Evidence(f"queue pair {pair.name} of rank {pair.rank} to rank {pair.peer} has {held}", pair.source)
    words = STATUS_NAMES.get(pair.status or 0, "unknown status")
    vendor = f", vendor code {pair.vendor_error:#x}" if pair.vendor_error else ""
    whom = f" to rank {pair.peer}" if pair.peer is not None else f" to {pair.remote}" if pair.remote else ""
    return Evidence(
        f"a work request on queue pair {pair.name} of rank {pair.rank}{whom} failed: status {pair.status} ({words}{vendor})",
        pair.source,
    )


def _port(ports: FailedPorts, ranks: Sequence[int]) -> Iterator[Evidence]:
    """What the NIC of the named ranks said of its own port."""
    if ranks:
        yield Evidence(f"rank {ranks[0]} logged that its own port failed: {ports[ranks[0]]}")


def _against(pair: QueuePair, silent_ns: int) -> Iterator[Evidence]:
    """Logs copied at different times look like this too, so it is said and not concluded."""
    if pair.status is None:
        yield Evidence("a proxy thread that does not poll for completions leaves requests in flight as well", supports=False)
    if silent_ns:
        yield Evidence(
            f"the log of rank {pair.peer} ends {silent_ns / 1e9:.0f} s before: the error may be the echo of a dead process",
            supports=False,
        )


def _next_steps(pair: QueuePair, network: bool) -> tuple[str, ...]:
    where = f"{pair.nic or 'the NIC'} of rank {pair.rank}"
    if not network:
        return (f"read the vendor code of {where} in the driver's manual; it is about the request, not about the path",)
    return (
        f"check {where} and the path to {pair.remote or 'its peer'}: port state, symbol errors, switch log",
        "the time of the error is that of the last retry: the path broke up to half a minute earlier",
    )


def _clears(seen: Seen, logs: WorkRequestLogs, queue_pairs: QueuePairs) -> str | None:
    if any(pair.status is not None for pair in queue_pairs) or not seen.all_in(logs):
        return None
    return f"no work request failed on {evidence_text.ranks_text(logs)}"


RULE = Rule(
    code="FX145",
    name="work-request-failed",
    seed="VenusTrace section 4.4 (work requests)",
    needs=(Need(WorkRequestLogs, "work_requests", "completions are seen in verbs only"),),
    concludes="The link or NIC whose work request failed first, with its status.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
