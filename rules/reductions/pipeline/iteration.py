"""The passes of one pipeline in an iteration, in the order in which its ranks worked on them, as the messages of a step tell.

No schedule is assumed. A pass that sends something lies in the gap before its message, one that sends nothing (the forward of
the last model stage, the backward of the first) in the gap after the message that it received (VenusTrace section 3.3: a node
is from the end of the receive to the begin of the send; the gradient of the last microbatch, and what comes before the first
collective, is in it).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from forensics.rules.reductions.pipeline.call_place import DIRECTIONS, WORDS, CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.dag import Dag, Flags, Ints, dag
from forensics.rules.reductions.pipeline.own_steps import is_turn_open
from forensics.rules.reductions.steps.records import Record
from forensics.rules.reductions.text.evidence_text import ranks_text

Key = tuple[int, int, int, int]
"""Stage, direction, chunk, microbatch."""


class UnknownPassesError(ValueError):
    """Why the passes of a pipeline are not known, in words for the reader of a report."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One rank in one step: `passes` are nodes in its order, each with the message that it received and sent (-1: none).

    `messages` are places of calls from the begin of the step; `before` is the number of passes done when each was called,
    `group` is the same for messages of one group call, whose first one has the time of all. `inside` are places of collectives
    within passes, each of the node `of`.
    """

    rank: int
    stage: int
    passes: Ints
    received: Ints
    sent: Ints
    messages: Ints
    is_send: Flags
    before: Ints
    group: Ints
    inside: Ints
    of: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Iteration:
    """The passes of one pipeline, by node: stage, direction (`FORWARD`, `BACKWARD`), chunk, microbatch; `stages` are its ranks.

    `pairs` are messages: sender, its message, receiver, its message, as numbers in `works` and in their `messages`. An edge of
    `graph` is a message or the order of a stage; `carries` has the pair of each edge, -1 for an order.
    """

    stages: tuple[tuple[int, ...], ...]
    stage: Ints
    direction: Ints
    chunk: Ints
    microbatch: Ints
    works: tuple[Work, ...]
    pairs: Ints
    graph: Dag
    carries: Ints

    @property
    def kind(self) -> Ints:
        """A number for each node, the same for passes of one stage, direction and chunk."""
        columns = np.stack([self.stage, self.direction, self.chunk])
        return np.asarray(np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1))

    def place(self, node: int) -> CallPlace:
        """The pass that a node is; its chunk where stages have several."""
        chunk = int(self.chunk[node]) if (self.chunk > 0).any() else None
        words = WORDS[int(self.direction[node])]
        return CallPlace(words, int(self.microbatch[node]), chunk, int(self.stage[node]), in_pass=True)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message of a rank: its place in the step, its pass, the other rank, and where its group call begins and ends."""

    at: int
    key: Key
    is_send: bool
    peer: int
    first: int
    last: int


def iteration(chains: Sequence[Sequence[int]], places: CallPlaces) -> Iteration:
    """The passes of a pipeline whose tensor-parallel ranks form `chains`, each by stage; raises UnknownPassesError."""
    ranks = [(rank, stage) for chain in chains for stage, rank in enumerate(chain)]
    messages = {rank: _messages(rank, stage, places) for rank, stage in ranks}
    keys = sorted({message.key for each in messages.values() for message in each})
    node = {key: number for number, key in enumerate(keys)}
    works = tuple(_work(rank, stage, messages[rank], node, places) for rank, stage in ranks)
    pairs = np.array(list(_pairs([rank for rank, _ in ranks], messages)), dtype=np.int64).reshape(-1, 4)
    graph, carries = _graph(works, pairs, [[node[m.key] for m in messages[rank]] for rank, _ in ranks], len(keys))
    stages = tuple(tuple(sorted(group)) for group in zip(*chains, strict=True))
    stage, direction, chunk, microbatch = np.array(keys, dtype=np.int64).reshape(-1, 4).T
    return Iteration(stages, stage, direction, chunk, microbatch, works, pairs, graph, carries)


def _messages(rank: int, stage: int, places: CallPlaces) -> list[_Message]:
    stated = places.steps(rank)
    if stated is None or stated.usual is None or stated.passes is None or stated.ends is None:
        raise UnknownPassesError(f"rank {rank} shows no whole step with messages")
    begin, end = stated.usual
    at = np.flatnonzero(stated.record.is_message[begin:end]) + begin
    first, last = (
        np.searchsorted(stated.record.call_order[at], stated.record.call_order[at], side) for side in ("left", "right")
    )
    rows = zip(at.tolist(), first.tolist(), last.tolist(), strict=True)
    return [_message(rank, stage, places, stated.record, place, begin, bounds) for place, *bounds in rows]


def _message(
    rank: int, stage: int, places: CallPlaces, record: Record, place: int, begin: int, bounds: Sequence[int]
) -> _Message:
    key = _key(stage, rank, place, places)
    if key is None:
        raise UnknownPassesError(f"rank {rank}: which microbatch each message of a step is of is not known")
    return _Message(place - begin, key, bool(record.is_send[place]), int(record.peer[place]), bounds[0], bounds[1])


def _key(stage: int, rank: int, place: int, places: CallPlaces) -> Key | None:
    found = places.pass_at(rank, place)
    if found is None or found.direction is None or found.microbatch is None:
        return None
    return stage, DIRECTIONS[found.direction], found.chunk or 0, found.microbatch


def _work(rank: int, stage: int, messages: Sequence[_Message], node: Mapping[Key, int], places: CallPlaces) -> Work:
    sent = {message.key: number for number, message in enumerate(messages) if message.is_send}
    received = {message.key: number for number, message in enumerate(messages) if not message.is_send}
    # What sends nothing follows on what it received, before all that is sent later.
    known = sorted({m.key for m in messages}, key=lambda key: _turn(messages, sent.get(key), received.get(key)))
    ends = [messages[sent[key]].first if key in sent else messages[received[key]].last for key in known]
    before = np.searchsorted(ends, [message.first for message in messages], side="right")
    columns = np.array(list(_inside(rank, stage, node, places)), dtype=np.int64).reshape(-1, 2).T
    return Work(
        rank=rank,
        stage=stage,
        passes=np.array([node[key] for key in known], dtype=np.int64),
        received=np.array([received.get(key, -1) for key in known], dtype=np.int64),
        sent=np.array([sent.get(key, -1) for key in known], dtype=np.int64),
        messages=np.array([message.at for message in messages], dtype=np.int64),
        is_send=np.array([message.is_send for message in messages], dtype=np.bool_),
        before=before,
        group=np.array([message.first for message in messages], dtype=np.int64),
        inside=columns[0],
        of=columns[1],
    )


def _turn(messages: Sequence[_Message], sent: int | None, received: int | None) -> tuple[int, bool, int]:
    """Where a pass is in the order of its rank: before the message that it sends, else after the one that it received."""
    if sent is not None:
        return messages[sent].first, True, sent
    return messages[received or 0].last, False, received or 0


def _inside(rank: int, stage: int, node: Mapping[Key, int], places: CallPlaces) -> Iterator[tuple[int, int]]:
    stated = places.steps(rank)
    if stated is None or stated.usual is None or stated.passes is None or is_turn_open(stated):
        return
    begin, end = stated.usual
    turns = np.stack([stated.passes.direction, stated.passes.ordinal, stated.passes.sparse])[:, begin:end]
    wanted = np.flatnonzero(~stated.record.is_message[begin:end] & (turns[0] != 0))
    # The calls of one turn are many, and all of one pass.
    _, first, of = np.unique(turns[:, wanted], axis=1, return_index=True, return_inverse=True)
    keys = [_key(stage, rank, begin + at, places) for at in wanted[first].tolist()]
    for at, turn in zip(wanted.tolist(), of.reshape(-1).tolist(), strict=True):
        key = keys[turn]
        if key is not None and key in node:
            yield at, node[key]


def _pairs(ranks: Sequence[int], messages: Mapping[int, Sequence[_Message]]) -> Iterator[tuple[int, int, int, int]]:
    """Sends with their receives: the k-th of one rank to another is the k-th that this one has from it."""
    number = {rank: index for index, rank in enumerate(ranks)}
    ends: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for rank in ranks:
        for index, message in enumerate(messages[rank]):
            pair = (rank, message.peer) if message.is_send else (message.peer, rank)
            ends[*pair, message.is_send].append(index)
    for (sender, receiver, is_send), sent in ends.items():
        received = ends.get((sender, receiver, False), [])
        if not is_send:
            continue
        if len(received) != len(sent):
            raise UnknownPassesError(
                f"rank {receiver} received {len(received)} of {len(sent)} messages of rank {sender} a step"
            )
        yield from ((number[sender], one, number[receiver], other) for one, other in zip(sent, received, strict=True))


def _graph(works: Sequence[Work], pairs: Ints, of: Sequence[Sequence[int]], size: int) -> tuple[Dag, Ints]:
    """Edges: the order of each stage, as one of its ranks has it, and messages, once for each two passes."""
    first = {work.stage: work for work in reversed(works)}
    orders = [work.passes.tolist() for work in first.values()]
    edges = {(one, other): -1 for order in orders for one, other in pairwise(order)}
    for number, (sender, sent, receiver, received) in enumerate(pairs.tolist()):
        edges.setdefault((of[sender][sent], of[receiver][received]), number)
    ends = np.array(list(edges), dtype=np.int64).reshape(-1, 2)
    try:
        return dag(size, ends[:, 0], ends[:, 1]), np.array(list(edges.values()), dtype=np.int64)
    except ValueError as error:
        raise UnknownPassesError("the passes of a step wait for each other in a circle: their order is another one") from error


def pass_text(place: CallPlace, ranks: Sequence[int]) -> str:
    """A pass in words, with the ranks that work on it."""
    chunk = "" if place.chunk is None else f" of chunk {place.chunk}"
    return f"{place.direction} of microbatch {place.microbatch}{chunk} on stage {place.stage} ({ranks_text(ranks)})"
