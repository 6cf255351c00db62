"""Why an open flow stands still, by what its two ends count, or the one that is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from forensics.rules.reductions.network.flow_ends import WINDOW, Flow, FlowEnd, FlowState
from forensics.rules.reductions.network.work_requests import LEAST_AGE_NS

Key = tuple[str, int, str, int, int, int]
"""Communicator, number, kind of collective or `p2p`, channel, sender, receiver."""
_Windows = Mapping[tuple[str, int], Mapping[int, int]]
"""Steps that each receiver of an operation has posted and not consumed, at most, by communicator and number."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Highest number that a rank entered and finished in a communicator, ranks whose logs show steps, and ranks with a log.

    `sent_on` are senders, receivers and channels for which a process of the sender's host sends to that place for another one.
    `ended` are ends of collectives that are through, by flow and direction, with their steps. `places` are those of calls in
    the process of a rank, by communicator, number, rank, kind and peer (-1 and no kind where it is no message).
    """

    entered: Mapping[tuple[str, int, str, int], tuple[int, int]]
    stepped: frozenset[int]
    logged: frozenset[int]
    sent_on: frozenset[tuple[str, int, int, int]] = frozenset()
    ended: Mapping[tuple[Key, str], int] = field(default_factory=dict)
    places: Mapping[tuple[str, int, int, str, int], int] = field(default_factory=dict)


def judged(flows: Mapping[Key, Mapping[str, FlowEnd]], reached: Reached) -> tuple[Flow, ...]:
    """Flows with their states, in key order; `flows` are the ends by direction."""
    windows = _windows(flows)
    return tuple(_unserved([_flow(key, found, reached, windows) for key, found in sorted(flows.items())]))


def _windows(flows: Mapping[Key, Mapping[str, FlowEnd]]) -> _Windows:
    """NCCL posts fewer than `WINDOW` where a proxy serves many channels (`recvProxyProgress` of src/transport/net.cc)."""
    found: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for (label, number, *_), ends in flows.items():
        if end := ends.get("recv"):
            posted = found[label, number]
            posted[end.rank] = max(posted.get(end.rank, 0), end.posted - end.done)
    return found


def _window(windows: _Windows, key: Key) -> int:
    """The most that other receivers of the operation hold; a receiver alone has nothing to be compared with."""
    held = windows.get((key[0], key[1]), {})
    return min(WINDOW, max((most for rank, most in held.items() if rank != key[5]), default=WINDOW))


def _flow(key: Key, ends: Mapping[str, FlowEnd], reached: Reached, windows: _Windows) -> Flow:
    label, number, kind, channel, sender, receiver = key
    send, receive = ends.get("send"), ends.get("recv")
    state = _both(send, receive, _window(windows, key)) if send and receive else _one_sided(key, send, receive, reached)
    return Flow(label, number, kind, channel, sender, receiver, send, receive, state, unseen_place(key, ends, reached))


def unseen_place(key: Key, ends: Mapping[str, FlowEnd], reached: Reached) -> int | None:
    """Place of the call at the end that shows no step."""
    label, number, kind, _, sender, receiver = key
    silent, other, name = (receiver, sender, "recv") if "send" in ends else (sender, receiver, "send")
    called = (name, other) if kind == "p2p" else ("", -1)
    return None if len(ends) > 1 else reached.places.get((label, number, silent, *called))


def _both(send: FlowEnd, receive: FlowEnd, window: int) -> FlowState:
    """Judge a flow whose ends are both known, from the sender on; ends of different length are of calls that do not match.

    A socket takes more than the receiver has posted buffers for: what is beyond them waits in its kernel.
    """
    if send.total != receive.total:
        return FlowState.UNKNOWN
    if send.done < send.passed:
        return FlowState.NOT_DELIVERED
    # The NIC of the receiver acknowledges what lies in its memory, whether or not its process looks.
    if receive.ready < send.done and send.over_verbs:
        return FlowState.NOT_SEEN
    if send.passed < send.ready:
        return _credit(send, receive, window)
    if receive.ready < min(send.done, receive.posted):
        return FlowState.NOT_DELIVERED
    if receive.done < receive.ready:
        return FlowState.NOT_CONSUMED
    # An interface that cannot tell the two waits shows a missing credit as a GPU that is not ready: the receiver knows.
    if receive.posted <= send.passed and receive.posted < receive.total:
        return FlowState.NO_CREDIT
    return FlowState.GPU_NOT_READY if send.passed < send.total else FlowState.UNKNOWN


def _unserved(flows: Iterable[Flow]) -> Iterable[Flow]:
    """Where the proxy of a rank does not see what its NIC received, it sees no credit and no completion of its sends either."""
    blind = {flow.receiver for flow in flows if flow.state is FlowState.NOT_SEEN}
    for flow in flows:
        yield replace(flow, state=FlowState.NOT_SERVED) if flow.proxy in blind and flow.lies_there else flow


def _credit(send: FlowEnd, receive: FlowEnd, window: int) -> FlowState:
    if receive.posted > send.passed:
        return FlowState.CREDIT_LOST
    full = receive.posted - receive.done >= window
    return FlowState.NOT_CONSUMED if full and receive.done < receive.ready else FlowState.NO_CREDIT


def _one_sided(key: Key, send: FlowEnd | None, receive: FlowEnd | None, reached: Reached) -> FlowState:
    """Judge a flow of which one end is not open: not entered yet, not begun, or through with it."""
    label, number, kind, _, sender, receiver = key
    silent, other = (receiver, sender) if send else (sender, receiver)
    if silent not in reached.logged:
        return _alone(send, receive, kind)
    name = ("" if kind != "p2p" else "recv" if send else "send", other if kind == "p2p" else -1)
    entered, done = reached.entered.get((label, silent, *name), (0, 0))
    if entered < number:
        return FlowState.NOT_ENTERED
    if silent not in reached.stepped or (silent == sender and (label, sender, receiver, key[3]) in reached.sent_on):
        return FlowState.UNKNOWN
    steps = reached.ended.get((key, "recv" if send else "send"))
    # A history that was overwritten, or cut, does not hold the end: what moved had two ends that began.
    moved = send.passed if send else receive.ready if receive else 0
    if done >= number or steps is not None or moved:
        return _through(send, receive, steps)
    return FlowState.NOT_STARTED


def _alone(send: FlowEnd | None, receive: FlowEnd | None, kind: str) -> FlowState:
    """Judge by one end where the rank of the other one left no log."""
    if receive:
        return _receiver_alone(receive)
    return _sender_alone(send) if send and kind != "p2p" else FlowState.UNKNOWN


def _receiver_alone(receive: FlowEnd) -> FlowState:
    """Judge what a receiver does not do itself: take what has come, or offer buffers although all are free."""
    if receive.done < receive.ready:
        return FlowState.NOT_CONSUMED
    return FlowState.NO_CREDIT if receive.posted == receive.ready < receive.total else FlowState.UNKNOWN


def _sender_alone(send: FlowEnd) -> FlowState:
    """Judge by the queue pair of a sender whose receiver left no log: a side, and no cause."""
    if send.in_flight is None or (send.passed == send.ready and send.done == send.passed):
        return FlowState.UNKNOWN
    if send.in_flight:
        return FlowState.NOT_ACKNOWLEDGED if (send.oldest_ns or 0) >= LEAST_AGE_NS else FlowState.UNKNOWN
    return FlowState.RECEIVER_SIDE if send.done == send.passed < send.ready else FlowState.UNKNOWN


def _through(send: FlowEnd | None, receive: FlowEnd | None, steps: int | None) -> FlowState:
    """Judge by the end that is left when the other one is through with its `steps`.

    A receiver that waits for more than was sent was promised more; of as many, all lie in its memory.
    """
    if send:
        return FlowState.NOT_DELIVERED if send.done < send.passed else FlowState.UNKNOWN
    if receive and receive.ready < receive.total:
        return FlowState.NOT_SEEN if receive.over_verbs and steps == receive.total else FlowState.UNKNOWN
    return FlowState.NOT_CONSUMED if receive and receive.done < receive.ready else FlowState.UNKNOWN
