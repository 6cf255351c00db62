"""The critical path of each slow step of a job with pipeline parallelism, and what would be won without its late passes.

Only the graph of the pipelines that took longest is made (MegaTrace section III.C): pipelines of a data-parallel job meet at
the end of a step, and who waits for nobody there took longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.call_place import DIRECTIONS, CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.critical_path import Judged, judged, longest, makespan_without, straggling
from forensics.rules.reductions.pipeline.dag import Dag, Flags, Floats, Ints, dag
from forensics.rules.reductions.pipeline.dated import Inside, Usual, is_known, observed, usual
from forensics.rules.reductions.pipeline.iteration import Iteration, UnknownPassesError, iteration
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.traced_places import TracedPlaces
from forensics.rules.reductions.steps.times import Steps, StepTimes

Chains = tuple[tuple[int, ...], ...]
"""The ranks of one pipeline: of each place in the tensor-parallel groups, by stage."""
_OUTER = (Axis.DATA, Axis.WORLD, Axis.EMBEDDING)
_AS_LONG = 0.1
"""Of what a step took longer: pipelines whose spans differ by less may all hold critical passes."""
_MOST_PIPELINES, _MOST_STEPS = 4, 32
_MATERIAL = 0.05
"""Of the expected makespan: what a pass took longer by less is noise of dating, and not worth a line where it cost nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class SlowStep:
    """One slow step: passes of the pipelines that took longest, by node; `first` is the first node of each of `parts`.

    `durations`, `expected` and `lags` (by edge) are in ns. `number` counts steps as `StepTimes` does. `in_turn`: a receive
    begins when the work called before it is done (see `Usual`). `by_arrivals`: ranks of whose calls some are timed by when
    their members came.
    """

    number: int
    parts: tuple[Iteration, ...]
    first: Ints
    graph: Dag
    durations: Floats
    expected: Floats
    lags: Floats
    judged: Judged
    expected_makespan: float
    in_turn: bool = False
    by_arrivals: frozenset[int] = frozenset()

    def part(self, node: int) -> tuple[Iteration, int]:
        """The pipeline of a node, and its number there."""
        place = int(np.searchsorted(self.first, node, side="right")) - 1
        return self.parts[place], node - int(self.first[place])

    def ranks(self, node: int) -> tuple[int, ...]:
        """The ranks that work on a pass."""
        part, own = self.part(node)
        return part.stages[int(part.stage[own])]

    def of_rank(self, rank: int) -> Flags:
        """Which nodes a rank works on."""
        return self.of_ranks((rank,))

    def of_ranks(self, ranks: Iterable[int]) -> Flags:
        """Which nodes any of these ranks works on."""
        chosen = np.zeros(self.graph.size, np.bool_)
        for rank in ranks:
            chosen |= np.concatenate([_worked_on(part, rank) for part in self.parts])
        return chosen

    def find(self, rank: int, place: CallPlace) -> int | None:
        """The node of a place of a rank; None where its pass is not known, or not of these pipelines."""
        wanted = DIRECTIONS.get(place.direction or ""), place.chunk or 0, place.microbatch
        for part, first in zip(self.parts, self.first.tolist(), strict=True):
            same = _worked_on(part, rank) & (part.direction == wanted[0]) & (part.chunk == wanted[1])
            same &= part.microbatch == (-1 if wanted[2] is None else wanted[2])
            if same.any():
                return int(first) + int(same.argmax())
        return None

    def absorbed(self) -> list[int]:
        """Over-long nodes that cost nothing, and by enough to be distinguished from noise."""
        excess = self.durations - self.expected
        return [node for node in self.judged.absorbed.tolist() if excess[node] >= _MATERIAL * self.expected_makespan]

    def recoverable(self, ranks: Iterable[int]) -> float:
        """By how many ns the step would be shorter had the late passes of these ranks taken as long as expected."""
        late = np.zeros(self.graph.size, np.bool_)
        late[self.judged.late] = True
        without = makespan_without(self.graph, self.durations, self.expected, self.of_ranks(ranks) & late, self.lags)
        return min(self.judged.times.makespan - without, self.judged.recoverable)


def _worked_on(part: Iteration, rank: int) -> Flags:
    stages = [number for number, ranks in enumerate(part.stages) if rank in ranks]
    return np.isin(part.stage, stages)


@dataclass(frozen=True, slots=True, eq=False)
class SlowSteps:
    """The slow steps whose passes could be dated, of `slow` ones; `reason` says why others could not.

    `pipelines` is the number of pipelines of the job.
    """

    found: tuple[SlowStep, ...] = ()
    slow: int = 0
    pipelines: int = 0
    reason: str | None = None

    def step(self, number: int) -> SlowStep | None:
        """The step with a number."""
        return next((step for step in self.found if step.number == number), None)


@reduction
def slow_steps(times: StepTimes, layout: Layout, recorded: CallPlaces, traced: TracedPlaces) -> SlowSteps:
    """Date the passes of each slow step, and judge them."""
    return dated_steps(times, layout, traced if times.is_traced else recorded, times.long())


def dated_steps(times: StepTimes, layout: Layout, places: CallPlaces, slow: Sequence[tuple[int, float]]) -> SlowSteps:
    """Date the passes of some steps, each with the ns by which it was longer than usual, and judge them."""
    long = sorted(slow, key=lambda each: -each[1])[:_MOST_STEPS]
    pipelines = pipelines_of(layout)
    if not long or not pipelines:
        return SlowSteps(slow=len(long))
    known: dict[Chains, tuple[Iteration, Usual, Mapping[int, Floats]]] = {}
    found: list[SlowStep] = []
    reason = None
    for number, excess in long:
        spans = np.array([_span(times, layout, chains, number) for chains in pipelines])
        kept, other = straggling(spans, _AS_LONG * excess)
        chosen = [pipelines[each] for each in kept.tolist()]
        try:
            if len(chosen) > _MOST_PIPELINES:
                raise UnknownPassesError("all pipelines took as long")
            for chains in chosen:
                if chains not in known:
                    known[chains] = _known(times, places, chains)
            found.append(_judged(times, [known[chains] for chains in chosen], number, float(spans.max()) - other))
        except UnknownPassesError as error:
            reason = reason or str(error)
    return SlowSteps(tuple(found), len(long), len(pipelines), reason)


def pipelines_of(layout: Layout) -> list[Chains]:
    """The pipelines of a job; chains that start in one tensor-parallel group are of one."""
    groups = [layout.members[label] for label in layout.along(Axis.TENSOR)]
    of = {rank: group for group in groups for rank in group}
    chains: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for chain in sorted(layout.pipelines):
        chains.setdefault(of.get(chain[0], (chain[0],)), []).append(chain)
    return [tuple(each) for each in chains.values()]


def _span(times: StepTimes, layout: Layout, chains: Chains, number: int) -> float:
    """How long a pipeline was busy in a step, at most: its length without what its ranks waited for other pipelines."""
    outer = {label for axis in _OUTER for label in layout.along(axis)}
    spans = [_busy(times.ranks[rank], outer, number) for chain in chains for rank in chain if rank in times.ranks]
    return max(spans, default=0.0)


def _busy(steps: Steps, outer: set[str], number: int) -> float:
    row = steps.row(number)
    if row is None:
        return 0.0
    record = steps.record
    codes = [code for code, label in enumerate(record.names.communicators) if label in outer]
    at = steps.order[row]
    waits = np.isin(record.communicator[at], codes) & ~record.is_message[at]
    return float(steps.length[row] - np.nansum(steps.of(record.duration_ns)[row][waits]))


def _known(times: StepTimes, places: CallPlaces, chains: Chains) -> tuple[Iteration, Usual, Mapping[int, Floats]]:
    """The passes of a pipeline, their usual durations, and the times inside calls of each rank (steps x calls)."""
    ranks = [rank for chain in chains for rank in chain]
    if any(rank not in times.ranks for rank in ranks):
        raise UnknownPassesError("a rank of the pipeline shows no whole step")
    places.learn({rank: times.ranks[rank].record for rank in ranks})
    passes = iteration(chains, places)
    inside = {rank: in_order(times.ranks[rank], places) for rank in ranks}
    usual_steps = {rank: np.isin(times.ranks[rank].number, times.usual) for rank in ranks}
    if not all(chosen.any() for chosen in usual_steps.values()):
        raise UnknownPassesError("a rank of the pipeline shows no usual step")
    return passes, usual(passes, {rank: np.median(inside[rank][usual_steps[rank]], axis=0) for rank in ranks}), inside


def in_order(steps: Steps, places: CallPlaces, column: str = "duration_ns") -> Floats:
    """A column of times (ns) of the calls of each step, as the usual one has them in order; raises UnknownPassesError."""
    stated = places.steps(steps.record.rank)
    if stated is None or stated.usual is None:
        raise UnknownPassesError(f"rank {steps.record.rank} shows no usual step")
    order = np.argsort(np.argsort(steps.record.token[slice(*stated.usual)], kind="stable"))
    return steps.of(getattr(steps.record, column))[:, order]


def _judged(times: StepTimes, known: Sequence[tuple[Iteration, Usual, Inside]], number: int, ahead: float) -> SlowStep:
    """Judge the passes of some pipelines together; the others were done `ahead` ns before the last of these."""
    durations, parts = [], tuple(passes for passes, _, _ in known)
    for passes, expected, inside in known:
        rows = {rank: times.ranks[rank].row(number) for rank in inside}
        if None in rows.values():
            raise UnknownPassesError("a rank of the pipeline does not show the slow step whole")
        values = {rank: inside[rank][row] for rank, row in rows.items() if row is not None}
        if not all(is_known(each) for each in values.values()):
            raise UnknownPassesError("the time inside calls is not recorded of every rank of the pipeline")
        durations.append(observed(passes, expected, values))
    first = np.cumsum([0, *(part.graph.size for part in parts)])
    graph = dag(
        int(first[-1]),
        np.concatenate([part.graph.source + begin for part, begin in zip(parts, first, strict=False)]),
        np.concatenate([part.graph.target + begin for part, begin in zip(parts, first, strict=False)]),
    )
    took, usually = np.concatenate(durations), np.concatenate([each.passes for _, each, _ in known])
    lags = np.concatenate([each.lags for _, each, _ in known])
    makespan, expected_makespan = (longest(graph, each, lags).makespan for each in (took, usually))
    result = judged(graph, took, usually, lags=lags, at_least=max(makespan - ahead, 0.0) if ahead < makespan else 0.0)
    in_turn = all(each.in_turn for _, each, _ in known)
    arrived = frozenset(rank for _, _, inside in known for rank in inside if times.ranks[rank].record.by_arrivals.any())
    return SlowStep(number, parts, first[:-1], graph, took, usually, lags, result, expected_makespan, in_turn, arrived)
