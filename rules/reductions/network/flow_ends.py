"""Open flows of chunks and their two ends: what both count, and the states in which a flow stands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Steps of a connection that may be on their way at once (NCCL_STEPS).
WINDOW = 8


class FlowState(StrEnum):
    """Why a flow does not move."""

    NOT_DELIVERED = "not_delivered"
    CREDIT_LOST = "credit_lost"
    NO_CREDIT = "no_credit"
    NOT_STARTED = "not_started"
    GPU_NOT_READY = "gpu_not_ready"
    NOT_CONSUMED = "not_consumed"
    NOT_ENTERED = "not_entered"
    NOT_SEEN = "not_seen"
    NOT_SERVED = "not_served"
    NOT_ACKNOWLEDGED = "not_acknowledged"
    RECEIVER_SIDE = "receiver_side"
    UNKNOWN = "unknown"


OF_PROXY = frozenset({FlowState.NO_CREDIT, FlowState.NOT_STARTED, FlowState.NOT_SEEN, FlowState.NOT_SERVED})
"""States in which the proxy of the holder leaves undone what it could do without its GPU."""
NETWORK = frozenset({FlowState.NOT_DELIVERED, FlowState.CREDIT_LOST, FlowState.NOT_ACKNOWLEDGED})
"""States that the network between the two ranks, or a NIC of them, must answer for."""


@dataclass(frozen=True, slots=True)
class FlowEnd:
    """One end as its log stood last; steps counted from 0. `order` is the place of the call among all of its process.

    Of a sender `ready` were produced by its GPU, `passed` handed to the NIC, `done` completed; of a receiver `ready` arrived,
    `passed` are visible to its GPU, `done` consumed. `queue_pair` is the one that it was seen on, with its `nic`, where known;
    `in_flight` are signaled requests of all its queue pairs, the oldest of them `oldest_ns` old, None where that is not known.
    `samples` are earlier ones that show the same counts. `sent_by` is the rank whose process sends for this one (PXN), over its
    own NIC.
    """

    rank: int
    total: int
    posted: int
    ready: int
    passed: int
    done: int
    since_ns: int
    stuck_ns: int
    order: int
    source: str
    queue_pair: str | None = None
    nic: str | None = None
    samples: int = 0
    in_flight: int | None = None
    oldest_ns: int | None = None
    sent_by: int | None = None

    @property
    def over_verbs(self) -> bool:
        """Whether it was seen on a queue pair: what it completed lies in the memory of the other host, by its NIC's word."""
        return self.queue_pair is not None or self.in_flight is not None


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow that at least one end shows open; an end is None when its rank does not show it.

    `unseen_order` is the place of the call in the process of that rank, where its log has the call.
    """

    communicator: str
    number: int
    kind: str
    channel: int
    sender: int
    receiver: int
    send: FlowEnd | None
    receive: FlowEnd | None
    state: FlowState
    unseen_order: int | None = None

    @property
    def ends(self) -> tuple[FlowEnd, ...]:
        """Ends that are known, the sender first."""
        return tuple(end for end in (self.send, self.receive) if end is not None)

    @property
    def proxy(self) -> int:
        """Rank whose process and NIC send: the sender, or one beside it."""
        return self.sender if self.send is None or self.send.sent_by is None else self.send.sent_by

    @property
    def holder(self) -> int | None:
        """Rank whose part it is to move it on; None for the network between the ranks, or when nothing tells."""
        if self.state in (FlowState.NO_CREDIT, FlowState.NOT_CONSUMED, FlowState.NOT_SEEN, FlowState.RECEIVER_SIDE):
            return self.receiver
        if self.state is FlowState.GPU_NOT_READY:
            return self.sender
        if self.state is FlowState.NOT_SERVED:
            return self.proxy
        if self.state in (FlowState.NOT_STARTED, FlowState.NOT_ENTERED):
            return self.sender if self.send is None else self.receiver
        return None

    @property
    def lies_there(self) -> bool:
        """Whether the sender may only not have seen what it waits for: credit that was given, or that all arrived."""
        if self.state is FlowState.NOT_DELIVERED and self.send and self.receive:
            return self.receive.ready >= self.send.passed
        return self.state is FlowState.CREDIT_LOST

    def comes_behind(self, other: Flow) -> bool:
        """Whether it is of a later call of the same communicator, between the same ranks in the same direction and channel."""
        way = (self.communicator, self.channel, self.sender, self.receiver)
        return self.number > other.number and way == (other.communicator, other.channel, other.sender, other.receiver)

    def order_at(self, rank: int) -> int | None:
        """Place of its call in the process of `rank`."""
        return next(
            (end.order for end in self.ends if end.rank == rank), self.unseen_order if self.is_unseen_at(rank) else None
        )

    def is_unseen_at(self, rank: int) -> bool:
        """Whether it is an end of this rank that shows no step."""
        return rank in (self.sender, self.receiver) and all(end.rank != rank for end in self.ends)
