"""Chunks were handed to the NIC, or credit was given for them, and the network between two ranks did not bring them over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from forensics.model import (
    Belief,
    Cause,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Mechanism,
    Members,
    Resource,
)
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.hardware.ports_down import PortsDown, recorded_by_port
from forensics.rules.reductions.network.chunk_flows import OpenFlows
from forensics.rules.reductions.network.failed_ports import FailedPorts, own_end
from forensics.rules.reductions.network.flow_ends import NETWORK, Flow, FlowState
from forensics.rules.reductions.network.flow_faults import (
    FaultyFlows,
    flow_evidence,
    flow_since,
    flow_stage,
    pair_evidence,
    queue_pair_of,
)
from forensics.rules.reductions.network.work_requests import QueuePairs
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.reductions.text.seen import Seen

_SHOWN = 2


def _evaluate(
    roster: Roster, faulty: FaultyFlows, queue_pairs: QueuePairs, users: NicUsers, ports: FailedPorts, down: PortsDown
) -> Iterator[Finding]:
    for finding in _findings(roster, faulty, queue_pairs, users, ports):
        found = recorded_by_port(finding, down)
        # A port that is down is so for all ranks on its NIC, whichever of them had something to send.
        yield replace(found, ranks=users.of(found.ranks)) if found.belief is Belief.DIRECT_RECORD else found


def _findings(
    roster: Roster, faulty: FaultyFlows, queue_pairs: QueuePairs, users: NicUsers, ports: FailedPorts
) -> Iterator[Finding]:
    """Ranks that have a NIC together are one end of a link where flows of each stand still."""
    flows = [flow for flow in faulty if flow.state in NETWORK]
    stuck = {rank for flow in flows for rank in (flow.proxy, flow.receiver)}
    links: dict[frozenset[tuple[int, ...]], list[Flow]] = defaultdict(list)
    for flow in flows:
        links[frozenset(users.together(rank, stuck) for rank in (flow.proxy, flow.receiver))].append(flow)
    common = frozenset[tuple[int, ...]].intersection(*links) if len(links) > 1 else frozenset()
    if len(common) == 1:
        yield _finding(roster, queue_pairs, tuple(common), flows)
        return
    for link, found in sorted(links.items(), key=lambda item: sorted(item[0])):
        own = own_end(ports, link)
        yield _finding(roster, queue_pairs, tuple(link) if own is None else (users.of(own),), found)


def _finding(roster: Roster, queue_pairs: QueuePairs, ends: Sequence[tuple[int, ...]], flows: Sequence[Flow]) -> Finding:
    """Two ends of one link cannot be distinguished; one that all broken links share can.

    Of that one all later calls stand still as well: what it called first is where it stopped.
    """
    single = len(ends) == 1
    ranks = tuple(sorted(rank for together in ends for rank in together))
    flows = sorted(flows, key=lambda flow: _called(flow, ranks)) if single else flows
    first = flows[0]
    waiting = [each for flow in flows for each in pair_evidence(queue_pairs, flow)]
    state = "not_transmitted" if first.state is FlowState.CREDIT_LOST else "not_delivered"
    # What arrived without a word of it may be the proxy of the sender, which does not look.
    known = Confidence.CONFIRMED if waiting and first.receive and not first.lies_there else Confidence.LIKELY
    return Finding(
        ranks=ranks,
        cause=Cause.NETWORK_DOWN,
        stage=flow_stage(first),
        belief=Belief.BEHIND_AND_BUSY,
        # A receiver that is gone without a trace does not acknowledge either.
        confidence=Confidence.SUSPECT if first.state is FlowState.NOT_ACKNOWLEDGED else known,
        evidence=tuple(_evidence(flows, waiting)),
        granularity=Granularity.NIC if single else Granularity.LINK,
        members=Members.EACH if single else Members.ONE_OF,
        resource=_resource(queue_pairs, flows, ranks),
        mechanism=Mechanism(state, "local" if single else "unknown"),
        since=flow_since(roster, first),
        next_steps=(
            f"check ports and links between {ranks_text((first.proxy, first.receiver))}: state, error counters, switch log",
            "run a point-to-point bandwidth test between the two hosts on these NICs",
        ),
    )


def _called(flow: Flow, ranks: Sequence[int]) -> float:
    """Where the call of a flow stands in the process of its accused end; last where that is not known."""
    return min((order for rank in ranks if (order := flow.order_at(rank)) is not None), default=inf)


def _evidence(flows: Sequence[Flow], waiting: Sequence[Evidence]) -> Iterator[Evidence]:
    for flow in flows[:_SHOWN]:
        yield from flow_evidence(flow)
        if flow.state is FlowState.CREDIT_LOST:
            yield Evidence(f"rank {flow.receiver} gave credit that rank {flow.proxy} has not seen")
    yield from dict.fromkeys(waiting[:_SHOWN])


def _resource(queue_pairs: QueuePairs, flows: Sequence[Flow], ranks: Sequence[int]) -> Resource:
    """Where the first flow has an end at the accused ranks, and who is at its other end.

    Its channel and queue pair only where it is the only one that stands still.
    """
    flow, single = flows[0], len({each.channel for each in flows}) == 1
    peers = tuple(rank for rank in (flow.proxy, flow.receiver) if rank not in ranks) or (flow.receiver,)
    if flow.proxy not in ranks:
        there = flow.receive
        name = there.queue_pair if there and single else None
        return Resource(
            nic=there.nic if there else None, channel=flow.channel if single else None, queue_pair=name, peer_ranks=peers
        )
    pair, end = queue_pair_of(queue_pairs, flow), flow.send
    name = pair.name if pair else end.queue_pair if end else None
    return Resource(
        nic=pair.nic if pair else end.nic if end else None,
        port=str(pair.port) if pair and pair.port else None,
        channel=flow.channel if single else None,
        queue_pair=name if single else None,
        peer_ranks=peers,
    )


def _clears(seen: Seen, logs: ChunkLogs, open_flows: OpenFlows) -> str | None:
    if not open_flows or not seen.all_in(logs):
        return None
    moved = counted(len(open_flows), "open flow")
    return f"in {moved} of chunks nothing that was handed to a NIC is missing at the other end"


RULE = Rule(
    code="FX142",
    name="chunk-not-delivered",
    seed="Mycroft section 5.3, Table 4 (not delivered)",
    needs=(Need(ChunkLogs, "chunks", "only NCCL's profiler interface shows the state of chunks"),),
    concludes="The two ranks between which chunks, or the credit for them, were lost in transit.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
