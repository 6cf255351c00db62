"""How long each pass of an iteration took, by the times inside calls alone: no two clocks are compared.

Sender and receiver leave a message together. So the work between messages follows from the times inside them: usual durations
are those with which all ranks leave all messages of a usual step together (least squares), and in a long step a message ends
when the later of both came to it; whose work it was that took longer is seen at those who waited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.pipeline.critical_path import longest
from forensics.rules.reductions.pipeline.dag import Floats, Ints, dag
from forensics.rules.reductions.pipeline.fitted import Durations, fitted
from forensics.rules.reductions.pipeline.iteration import Iteration, UnknownPassesError, Work

Inside = Mapping[int, Floats]
"""Times in ns inside each call of a step, in the order of the host, by rank."""


@dataclass(frozen=True, slots=True, eq=False)
class Usual:
    """Usual durations in ns: `passes` by node, `lags` by edge of the graph (the transfer of a message), `begin` of each stage.

    `in_turn`: a receive begins when the work called before it is done, else when the receive before it ended. `waits` are the
    usual times inside collectives of passes, by rank.
    """

    passes: Floats
    lags: Floats
    begin: Floats
    in_turn: bool
    waits: Mapping[int, Floats]


def in_messages(work: Work, inside: Floats) -> Floats:
    """Times inside the messages of a rank; those of one group call are in it for as long."""
    own = inside[work.messages]
    most = np.full(len(own), -np.inf)
    np.maximum.at(most, work.group, own)
    return np.asarray(most[work.group])


def is_known(inside: Floats) -> bool:
    """Whether all times inside calls are recorded, and possible."""
    return bool((np.isfinite(inside) & (inside >= 0)).all())


def usual(iteration: Iteration, inside: Inside) -> Usual:
    """Usual durations, by the usual times inside the calls of a step; raises UnknownPassesError where they do not tell."""
    waits = {work.rank: inside[work.rank][work.inside] for work in iteration.works}
    known = [*waits.values(), *(inside[work.rank][work.messages] for work in iteration.works)]
    if not len(iteration.pairs) or not all(is_known(each) for each in known):
        raise UnknownPassesError("the time inside calls is not recorded of every rank of the pipeline")
    messages = [in_messages(work, inside[work.rank]) for work in iteration.works]
    lags = np.array([_transfer(iteration, messages, pair) if pair >= 0 else 0.0 for pair in iteration.carries.tolist()])
    best: Durations = fitted(iteration, messages)
    return Usual(best.kinds[iteration.kind], lags, best.begin, best.in_turn, waits)


def _transfer(iteration: Iteration, inside: list[Floats], pair: int) -> float:
    """The time of a message itself: of the one who waited less for the other."""
    sender, sent, receiver, received = iteration.pairs[pair].tolist()
    return float(min(inside[sender][sent], inside[receiver][received]))


def observed(iteration: Iteration, known: Usual, inside: Inside) -> Floats:
    """Durations in ns of the passes of one step, none shorter than usual: what a stage was quicker by delays nobody."""
    waited = _waited(iteration, known, inside)
    messages = [in_messages(work, inside[work.rank]) for work in iteration.works]
    moments = _ends(iteration, known, messages, waited)
    found = known.passes.copy()
    for work, ends, own in zip(iteration.works, moments, messages, strict=True):
        took = (known.passes + waited)[work.passes]
        found[work.passes] = np.maximum(found[work.passes], took + _left_over(work, known, took, ends, ends - own))
    return found


def _left_over(work: Work, known: Usual, took: Floats, ends: Floats, begins: Floats) -> Floats:
    """By how many ns each pass took longer than `took`: until its message was sent, of passes since the one before alike."""
    more = np.zeros(len(took))
    called = np.full(len(took) + 1, -np.inf)
    if known.in_turn:
        np.maximum.at(called, work.before, ends)
    moment, first = float(known.begin[work.stage]), 0
    for place, (received, sent) in enumerate(zip(work.received.tolist(), work.sent.tolist(), strict=True)):
        if known.in_turn and received >= 0 and place > first:  # called when the work before it was over
            own = took[first:place]
            more[first:place] = max(float(begins[received]) - moment, 0.0) * own / max(float(own.sum()), 1.0)
            moment, first = max(moment, float(begins[received])), place
        came = float(ends[received]) if received >= 0 else 0.0
        moment = max(moment, came, float(called[place])) + float(took[place])
        if sent >= 0:
            own = took[first : place + 1]
            more[first : place + 1] = max(float(begins[sent]) - moment, 0.0) * own / max(float(own.sum()), 1.0)
            moment, first = max(moment, float(begins[sent])), place + 1
    return more


def _waited(iteration: Iteration, known: Usual, inside: Inside) -> Floats:
    """By how many ns some rank was longer than usual inside the collectives of each pass: it waited for a peer in it."""
    most = np.zeros(iteration.graph.size)
    for work in iteration.works:
        more = inside[work.rank][work.inside] - known.waits[work.rank]
        most = np.maximum(most, np.bincount(work.of, more, minlength=iteration.graph.size))
    return most


def _ends(iteration: Iteration, known: Usual, inside: list[Floats], waited: Floats) -> list[Floats]:
    """When each message of each rank ended: as soon as both ends came to it, had passes taken as long as usual."""
    event, size = _events(iteration)
    first = np.cumsum([size, *(len(work.passes) for work in iteration.works)])
    parts = []
    for number, work in enumerate(iteration.works):
        took = (known.passes + waited)[work.passes]
        begin = known.begin[work.stage]
        parts += list(_edges(work, event[number], int(first[number]), took, inside[number], begin, known.in_turn))
    source, target, lags = (np.concatenate(column) for column in zip(*parts, strict=True))
    try:
        graph = dag(int(first[-1]), source, target)
    except ValueError as error:
        raise UnknownPassesError("messages of a step wait for each other in a circle") from error
    start = longest(graph, np.zeros(graph.size), lags).earliest_start
    return [start[events] for events in event]


_Edges = tuple[Ints, Ints, Floats]


def _edges(work: Work, events: Ints, first: int, took: Floats, inside: Floats, begin: float, in_turn: bool) -> Iterator[_Edges]:
    """What the passes and messages of a rank wait for; node 0 is the begin of the step."""
    passes = first + np.arange(len(work.passes))
    before = np.concatenate([[0], passes])
    lead = np.zeros(len(passes))
    lead[:1] = begin
    yield before[:-1], passes, took + lead
    stated = work.received >= 0
    yield events[work.received[stated]], passes[stated], took[stated]
    if in_turn:  # the work that follows waits for all messages that were called before it
        followed = work.before < len(passes)
        yield events[followed], passes[work.before[followed]], took[work.before[followed]]
        yield before[work.before], events, inside + begin * (work.before == 0)
        return
    yield before[work.before[work.is_send]], events[work.is_send], inside[work.is_send]
    chain = events[~work.is_send]
    lead = np.zeros(len(chain))
    lead[:1] = begin
    yield np.concatenate([[0], chain])[: len(chain)], chain, inside[~work.is_send] + lead


def _events(iteration: Iteration) -> tuple[list[Ints], int]:
    """A number from 1 for each message, the same at both of its ends, and the number of all."""
    event = [np.zeros(len(work.messages), np.int64) for work in iteration.works]
    for number, (sender, sent, receiver, received) in enumerate(iteration.pairs.tolist(), 1):
        event[sender][sent] = event[receiver][received] = number
    return event, len(iteration.pairs) + 1
