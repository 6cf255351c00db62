"""Pipelines as messages show them: chains of ranks that pass activations on, and gradients back.

A pipeline is a path in the graph of who sends to whom; with several model chunks a rank the last stage sends to the first as
well, less often than neighbours do. The first stage runs ahead: it has more microbatches under way than the last (1F1B;
Narayanan et al., SC 2021). Rings in which each rank only sends to the next are no pipelines, but attention over a split
context.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.pipeline.by_calls import RankCalls
from forensics.rules.reductions.pipeline.sequences import Messages, Numbers

Edges = Mapping[int, Mapping[int, int]]
"""For each rank its correspondents, with the messages between them."""
_LEAST_IN_RING = 4
_LEAST_IN_CHAIN = 3
_LEAST_IN_MESH = 4
"""Of three stages with several chunks each, every one also sends to both others."""
_RARER = 0.95
"""Share of the messages of an ordinary edge that the one back to the first stage has at most."""

_ALIKE = 0.75
"""Share of the messages of one rank that another one has whose record reaches back as far."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Ranks of one pipeline in the order of its edges; `first` is the first stage, None where either end may be."""

    ranks: tuple[int, ...]
    first: int | None = None

    @property
    def stages(self) -> tuple[int, ...] | None:
        """Ranks by stage, None where it is not known which end is the first."""
        if self.first is None:
            return None
        return self.ranks if self.ranks[0] == self.first else self.ranks[::-1]

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last rank, or the other way round."""
        return self.ranks[0], self.ranks[-1]


def is_ring(messages: Messages) -> bool:
    """Whether each rank sends to one other, is sent to by a third, and they form a ring: of two ranks nothing tells."""
    ranks = np.unique(messages.rank).tolist()
    following: dict[int, int] = {}
    for rank in ranks:
        own = messages.of((rank,))
        sent, received = np.unique(own.peer[own.is_send]), np.unique(own.peer[~own.is_send])
        if len(sent) != 1 or len(received) != 1 or sent[0] == received[0] or int(own.is_send.sum()) < _LEAST_IN_RING:
            return False
        following[rank] = int(sent[0])
    return len(ranks) > 1 and len(_followed(ranks[0], following)) == len(ranks)


def is_mesh(messages: Messages) -> bool:
    """Whether each rank sends to all others, and gets from them, mostly in one group call: an exchange (Pulse 5.2, 5.3).

    Parts without tokens are not sent: half of the others in a typical group call are enough, three at least.
    """
    ranks = np.unique(messages.rank).tolist()
    if len(ranks) < _LEAST_IN_MESH:
        return False
    for rank in ranks:
        own = messages.of((rank,))
        others = {*ranks} - {rank}
        if {*own.peer[own.is_send].tolist()} != others or {*own.peer[~own.is_send].tolist()} != others:
            return False
        pairs = np.unique(np.column_stack([own.batch[own.is_send], own.peer[own.is_send]]), axis=0)
        in_one_call = np.unique(pairs[:, 0], return_counts=True)[1]
        if float(np.median(in_one_call)) < max(_LEAST_IN_MESH - 1, len(others) / 2):
            return False
    return True


def _followed(start: int, following: Mapping[int, int]) -> list[int]:
    path = [start]
    while (after := following.get(path[-1])) is not None and after not in path:
        path.append(after)
    return path


def chains(messages: Messages) -> tuple[Chain, ...]:
    """Pipelines of the job, all of one length; parts of them, and graphs of any other form, are left out."""
    edges = _edges(messages)
    found = [chain for part in _parts(edges) if (chain := _chain(part, edges, messages)) is not None]
    longest = max((len(chain.ranks) for chain in found), default=0)
    return tuple(chain for chain in found if len(chain.ranks) == longest)


def _edges(messages: Messages) -> Edges:
    """How many messages each rank noted with each other one, the larger of what both noted."""
    size = int(max(messages.rank.max(), messages.peer.max())) + 1 if len(messages.rank) else 1
    pairs, counts = np.unique(messages.rank * size + messages.peer, return_counts=True)
    noted: dict[int, Counter[int]] = defaultdict(Counter)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        for one, other in (divmod(pair, size), divmod(pair, size)[::-1]):
            noted[one][other] = max(noted[one][other], count)
    return noted


def _parts(edges: Edges) -> Iterator[list[int]]:
    """Ranks that are connected, each part sorted."""
    seen: set[int] = set()
    for start in sorted(edges):
        if start in seen:
            continue
        part, waiting = {start}, [start]
        while waiting:
            new = edges[waiting.pop()].keys() - part
            part |= new
            waiting += new
        seen |= part
        yield sorted(part)


def _chain(part: list[int], edges: Edges, messages: Messages) -> Chain | None:
    ends = [rank for rank in part if len(edges[rank]) == 1]
    if any(len(edges[rank]) > 2 for rank in part) or len(part) < 2:
        return None
    if len(ends) != 2:
        cut = _way_back(part, messages)
        if cut is None:
            return None
        ends = sorted(cut)
    path = _path(ends[0], ends[1], edges)
    if path is None or len(path) != len(part):
        return None
    own = messages.of(part)
    return _directed(path, own) if _is_two_way(own) else _one_way(path, own)


def _way_back(part: list[int], messages: Messages) -> tuple[int, int] | None:
    """The edge of a ring from the last stage to the first: both its ranks send and receive less over it than over the other."""
    rarer: Counter[tuple[int, int]] = Counter()
    for rank in part:
        peers, counts = np.unique(messages.of((rank,)).peer, return_counts=True)
        if len(peers) == 2 and counts.min() < _RARER * counts.max():
            other = int(peers[counts.argmin()])
            rarer[min(rank, other), max(rank, other)] += 1
    agreed = [edge for edge, count in rarer.items() if count == 2]
    return agreed[0] if len(agreed) == 1 else None


def _path(start: int, end: int, edges: Edges) -> tuple[int, ...] | None:
    """Ranks from one end to the other, over all between; in a ring not over the edge between both ends."""
    path = [start]
    while path[-1] != end:
        back = {end} if path == [start] and len(edges[start]) > 1 else set()
        new = [rank for rank in edges[path[-1]] if rank not in path and rank not in back]
        if len(new) != 1:
            return None
        path.append(new[0])
    return tuple(path)


def _is_two_way(messages: Messages) -> bool:
    """Whether some rank sends to whom it receives from."""
    sends, receives = (
        set(zip(messages.rank[chosen].tolist(), messages.peer[chosen].tolist(), strict=True))
        for chosen in (messages.is_send, ~messages.is_send)
    )
    return bool(sends & receives)


def _one_way(path: tuple[int, ...], messages: Messages) -> Chain | None:
    """A pipeline without gradients, or before the first of them: the one end only sends, the other only receives."""
    senders = {end for end in (path[0], path[-1]) if messages.is_send[messages.rank == end].all()}
    receivers = {end for end in (path[0], path[-1]) if not messages.is_send[messages.rank == end].any()}
    first = senders - receivers
    return Chain(path, first.pop()) if len(path) >= _LEAST_IN_CHAIN and len(first) == 1 else None


def _directed(path: tuple[int, ...], messages: Messages) -> Chain | None:
    """The chain, with its first stage where the ends show it; None where no rank ever runs ahead of another."""
    ahead = {rank: _lead(messages, rank, path) for rank in path}
    if not any(ahead.values()):
        return None  # neighbours that exchange something
    one, other = path[0], path[-1]
    begins = {end: _begins(messages, end, path) for end in (one, other)}
    votes = [_sign(begins[one] - begins[other])]
    if _as_long(messages, one, other):
        votes.append(_sign(ahead[one] - ahead[other]))
    signs = {vote for vote in votes if vote}
    return Chain(path, (one if signs == {1} else other) if len(signs) == 1 else None)


def _as_long(messages: Messages, one: int, other: int) -> bool:
    """Whether the records of two ranks reach back about as far: a lead may lie before the begin of a short one."""
    counts = sorted(int((messages.rank == rank).sum()) for rank in (one, other))
    return counts[0] >= _ALIKE * counts[1]


def _along(messages: Messages, rank: int, path: tuple[int, ...]) -> Messages:
    """Messages of a rank with its neighbours in the path, not those over the way back."""
    place = path.index(rank)
    near = [*path[max(place - 1, 0) : place], *path[place + 1 : place + 2]]
    own = messages.of((rank,))
    return own.where(np.isin(own.peer, near))


def _lead(messages: Messages, rank: int, path: tuple[int, ...]) -> int:
    """By how many messages the sends of a rank run ahead of its receives or behind, at most; those of a batch are one."""
    return int(np.ptp([0, *np.cumsum(_net(_along(messages, rank, path))).tolist()]))


def _net(own: Messages) -> Numbers:
    """Sends less receives of each batch, in order."""
    starts = np.flatnonzero(np.diff(own.batch, prepend=np.iinfo(np.int64).min))
    return np.add.reduceat(np.where(own.is_send, 1, -1), starts) if len(starts) else np.zeros(0, np.int64)


def _begins(messages: Messages, end: int, path: tuple[int, ...]) -> int:
    """1 where the first call of an end of the chain is known and was a send, -1 where it was a receive."""
    if end not in messages.complete:
        return 0
    net = _net(_along(messages, end, path))
    return _sign(int(net[0])) if len(net) else 0


def directed_by_steps(chain: Chain, sequences: Mapping[int, RankCalls]) -> Chain:
    """The chain with its first stage, by what the ends did before and after the calls at the end of a step.

    The first stage receives the last gradient of a step and then sends the first activation of the next one; the last stage
    ends with a send and begins with a receive.
    """
    votes = [sequences[end].turns() if end in sequences else 0 for end in chain.ends]
    sign = _sign(votes[0] - votes[1])
    return Chain(chain.ranks, chain.ends[0] if sign > 0 else chain.ends[1]) if sign else chain


def oriented_alike(found: Iterable[Chain]) -> tuple[Chain, ...]:
    """The chains, those without a first stage in the direction of all others where these agree: up or down in ranks."""
    known = tuple(found)
    rising = {chain.first == min(chain.ends) for chain in known if chain.first is not None}
    if len(rising) != 1:
        return known if not rising else tuple(Chain(chain.ranks) for chain in known)
    choose = min if rising == {True} else max
    return tuple(Chain(chain.ranks, choose(chain.ends)) for chain in known)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
