"""Ranks of a pipeline whose device computes longer in each step than those of ranks with the same work, as profilers saw it.

What a device computes between collectives and messages waits for nobody, so that no clocks are compared, and a few steps tell
what times of the host would need many for. Ranks of a stage have the same work, in its tensor-parallel group and in all
replicas. Longer sequences are longer work for all who share them: ranks without such mates are not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import networkx as nx
import numpy as np

from forensics.model import Anomaly, Belief, Cause, Component, Confidence, Evidence, Finding, Impact, StageName, StageRef
from forensics.rules.reductions.frontier.accounting import Flags, Floats
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.own_work import LEAST_NS, LEAST_PART, below_others, by_context
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.vocabulary import CAUSE_OF_STAGE

PASSES = (StageName.FORWARD, StageName.BACKWARD)
"""What all ranks of a stage do alike: copies of the model, evaluation and logging may be one rank's duty."""
_OF_WIDTH = "a stage with larger layers than the others leaves the same evidence: compare how the model is split"
_IN_STEP = (Axis.TENSOR, Axis.CONTEXT)
_LEAST_STEPS, _MANY_EQUALS = 2, 3
"""Of fewer equals nothing shows which is the unusual one, but by as much as that no rank is given more work."""
FACTOR = 1.5
""""We set m = 50% to identify whether a node experiences a slowdown" (VenusTrace section 4)."""
# Of the ranks with the same work; if more are slow, it is how the job is.
_MOST_SLOW = 0.25
# Of what a rank computes longer: where most of those with the same data do as well, it is the data.
_SHARED = 0.5
# Fewer steps than these are a moment of the job.
_LIKELY_STEPS = 5
MOST = 0.8
"""Of what a rank works longer: in one stage, before it is called slow in that one."""


@dataclass(frozen=True, slots=True)
class LongWork:
    """A rank whose device computes longer than those of `peers` in each of `steps` steps; times are medians in ns.

    It computes for `own_ns`, its peers for `usual_ns`, in a step of `step_ns`, which `lost_ns` of that cost: what it computes
    longer than its peers, and than anybody else in its pipeline. `stage` is the one that most of it lies in. `on_host`: hosts
    compute themselves, and all that they did not wait counts; `computes`: what it works longer are operators. `by_stages`: its
    peers are the other stages, with other work. Without peers it is compared with itself in other steps.
    """

    rank: int
    peers: tuple[int, ...]
    steps: int
    own_ns: float
    usual_ns: float
    step_ns: float
    lost_ns: float
    stage: StageName
    source: str | None
    on_host: bool = False
    by_stages: bool = False
    computes: bool = True

    @property
    def has_equals(self) -> bool:
        """Whether it is compared with ranks that have the same work."""
        return bool(self.peers) and not self.by_stages

    @property
    def slowdown(self) -> float | None:
        """How many times as long as its peers it computes; None where these compute nothing."""
        return self.own_ns / self.usual_ns if self.usual_ns > 0 else None


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Ranks whose device computes longer, most lost first, of those that were `compared`.

    `of_few` are those that have one equal, or none that is as quick: which of them is the unusual one is not shown.
    """

    found: tuple[LongWork, ...] = ()
    compared: frozenset[int] = frozenset()
    of_few: tuple[LongWork, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class WorkTable:
    """Times of devices, or hosts, in ns as `[pass, step, rank]`, in all and of steps as `[step, rank]`; NaN: not known."""

    ranks: tuple[int, ...]
    passes: Floats
    total: Floats
    walls: Floats
    paths: Mapping[int, str | None]
    places: Mapping[int, int]
    on_host: bool = False

    def columns(self, ranks: Iterable[int]) -> list[int]:
        """Where some ranks are, those of which any step is known."""
        places = [self.places[rank] for rank in sorted(ranks) if rank in self.places]
        return [place for place in places if np.isfinite(self.total[:, place]).any()]


@reduction
def device_work(windows: FrontierWindows, layout: Layout) -> DeviceWork:
    """Compare the devices of ranks of known pipelines; experts have other work by design."""
    table = _table([window.matrix for window in windows if window.matrix.messages and window.matrix.device])
    return DeviceWork() if table is None else compared_work(table, layout)


def compared_work(table: WorkTable, layout: Layout) -> DeviceWork:
    """Compare ranks that have the same work in known pipelines."""
    pipes = [*layout.pipelines, *(layout.members[label] for label in layout.along(Axis.PIPELINE))]
    if not pipes or layout.along(Axis.EXPERT):
        return DeviceWork()
    more = np.full(table.walls.shape, np.nan)
    alike = [columns for ranks in _equals(layout, pipes) if len(columns := table.columns(ranks)) > 1]
    for columns in alike:
        steps = np.flatnonzero(np.isfinite(table.total[:, columns]).all(axis=1))
        cells = np.ix_(steps, np.array(columns))
        more[cells] = below_others(-table.total[cells].T).T
    mates = _mates([*pipes, *(layout.members[label] for axis in _IN_STEP for label in layout.along(axis))], table)
    longer = [item for columns in alike for item in _of_equals(columns, table, more, mates)]
    longer.sort(key=lambda item: (-item.lost_ns, item.rank))
    is_shown = {item.rank: _is_shown(item, table) for item in longer}
    found = tuple(item for item in longer if is_shown[item.rank])
    compared = frozenset(table.ranks[at] for columns in alike for at in columns if at in mates)
    return DeviceWork(found, compared, tuple(item for item in longer if not is_shown[item.rank]))


def _is_shown(item: LongWork, table: WorkTable) -> bool:
    """Whether its equals show that it is the unusual one: several of them, or by how much."""
    columns = [table.places[rank] for rank in (item.rank, *item.peers)]
    return len(columns) >= _MANY_EQUALS or is_much(table, columns[0], columns)


def _table(matrices: Sequence[StageMatrix]) -> WorkTable | None:
    """What the traces of all windows tell of forward and backward passes; None where they tell nothing of either."""
    known = [matrix for matrix in matrices if all(name in (matrix.device or {}) for name in PASSES)]
    if not known:
        return None
    ranks = tuple(sorted({rank for matrix in known for rank in matrix.ranks}))
    steps = np.unique(np.concatenate([matrix.steps for matrix in known]))
    passes, walls = np.full((len(PASSES), len(steps), len(ranks)), np.nan), np.full((len(steps), len(ranks)), np.nan)
    paths: dict[int, str | None] = {}
    for matrix in known:
        at = np.ix_(np.searchsorted(steps, matrix.steps), np.searchsorted(np.array(ranks), matrix.ranks))
        for number, name in enumerate(PASSES):
            passes[number][at] = (matrix.device or {})[name]
        walls[at] = matrix.walls
        paths |= {rank: matrix.path(rank) for rank in matrix.ranks}
    return WorkTable(ranks, passes, passes.sum(axis=0), walls, paths, {rank: place for place, rank in enumerate(ranks)})


def _equals(layout: Layout, pipes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Ranks of one stage with the same work: those that groups join, but for groups of several stages, as of embeddings."""
    of: dict[int, set[int]] = defaultdict(set)
    for number, pipe in enumerate(pipes):
        for rank in pipe:
            of[rank].add(number)
    joined: nx.Graph[int] = nx.Graph()
    for members in (layout.members[label] for axis in (*_IN_STEP, Axis.DATA) for label in layout.along(axis)):
        if max(Counter(chain.from_iterable(of[rank] for rank in members)).values(), default=0) <= 1:
            joined.add_edges_from(pairwise(members))
    return [ranks for each in nx.connected_components(joined) for ranks in by_context(sorted(each), layout)]


def _mates(groups: Iterable[tuple[int, ...]], table: WorkTable) -> dict[int, list[int]]:
    """By column: those that have a part of the model for the same data, in their pipeline or in step with it."""
    found: dict[int, set[int]] = defaultdict(set)
    for group in groups:
        columns = table.columns(group)
        for at in columns:
            found[at].update(columns)
    return {at: sorted(others - {at}) for at, others in found.items() if others != {at}}


def _of_equals(columns: Sequence[int], table: WorkTable, more: Floats, mates: Mapping[int, list[int]]) -> Iterator[LongWork]:
    slow = {at: lost for at in columns if at in mates and (lost := _lost(at, table, more, mates[at])) is not None}
    if len(slow) <= max(1, _MOST_SLOW * len(columns)):
        yield from (_long_work(at, columns, table, more, lost) for at, lost in slow.items())


def _lost(at: int, table: WorkTable, more: Floats, mates: Sequence[int]) -> Floats | None:
    """ns that a rank costs in each step; None where it does not in some, or where its data is longer."""
    known: Flags = np.asarray(np.isfinite(more[:, [at, *mates]]).all(axis=1))
    if known.sum() < _LEAST_STEPS:
        return None
    longer, own = more[known, at], table.total[known, at]
    lost = np.minimum(longer, own - table.total[known][:, mates].max(axis=1))
    shared = (more[known][:, mates] >= _SHARED * longer[:, None]).mean(axis=1)
    is_late = (lost >= np.maximum(LEAST_NS, LEAST_PART * table.walls[known, at])) & (2 * shared < 1)
    return lost if is_late.all() else None


def is_much(table: WorkTable, at: int, columns: Iterable[int]) -> bool:
    """Whether a rank needs half as long again as each other one even where each was quickest: other load only adds."""
    others = [table.total[:, other] for other in columns if other != at]
    return all(bool(np.nanmin(table.total[:, at]) >= FACTOR * np.nanmin(total)) for total in others)


def _long_work(at: int, columns: Sequence[int], table: WorkTable, more: Floats, lost: Floats) -> LongWork:
    known = np.isfinite(more[:, at])
    own = float(np.median(table.total[known, at]))
    others = [other for other in columns if other != at]
    parts = np.median(table.passes[:, known, at] - np.median(table.passes[:, known][:, :, others], axis=2), axis=1)
    computes = are_of_passes(parts, float(np.median(more[known, at])))
    return LongWork(
        rank=table.ranks[at], peers=tuple(table.ranks[other] for other in others), steps=len(lost), own_ns=own,
        usual_ns=own - float(np.median(more[known, at])), step_ns=float(np.median(table.walls[known, at])),
        lost_ns=float(np.median(lost)), stage=stage_of(parts) if computes else StageName.UNKNOWN,
        source=table.paths[table.ranks[at]], on_host=table.on_host, computes=computes,
    )  # fmt: skip


def stage_of(parts: Floats) -> StageName:
    """The pass that most of an excess lies in; unknown where it lies in both."""
    first = int(parts.argmax())
    return PASSES[first] if parts[first] >= MOST * parts.sum() else StageName.UNKNOWN


def are_of_passes(parts: Floats, excess: float) -> bool:
    """Whether most of an excess lies in the passes."""
    return bool(parts.sum() >= MOST * excess)


def finding_of(item: LongWork) -> Finding:
    """The finding for a rank that computes longer; the state of its GPU may say why."""
    share = item.lost_ns / item.step_ns
    return Finding(
        ranks=(item.rank,),
        cause=_cause(item),
        stage=StageRef(name=item.stage, component=Component.COMPUTE if item.computes else Component.HOST),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if item.steps >= _LIKELY_STEPS and item.has_equals else Confidence.SUSPECT,
        evidence=tuple(_evidence(item)),
        anomaly=Anomaly.FAIL_SLOW,
        impact=Impact(round(item.steps * item.lost_ns), round(share, 3), item.steps, "frontier_gain"),
        next_steps=(f"compare clocks, temperature and load of rank {item.rank} with those of {_others_text(item)}",),
    )


def _cause(item: LongWork) -> Cause:
    if item.computes:
        return Cause.COMPUTE_SLOW
    return Cause.UNKNOWN if item.stage is StageName.UNKNOWN else CAUSE_OF_STAGE.get(item.stage, Cause.HOST_STALL)


def _others_text(item: LongWork) -> str:
    return ranks_text(item.peers) if item.peers else "the others"


def _evidence(item: LongWork) -> Iterator[Evidence]:
    yield Evidence(f"{compared_text(item)} of {item.step_ns / 1e6:.0f} ms", item.source)
    cost = f"nobody in its pipeline {'works' if item.on_host else 'computes'} as long"
    won = f"{item.lost_ns / 1e6:.0f} ms of a step would be won at most"
    yield Evidence(f"{cost}: {won}; waiting in collectives and messages is not counted", item.source)
    if item.by_stages:
        yield Evidence("it runs no more operators than they do: it has no more layers", item.source)
        yield Evidence(_OF_WIDTH, item.source, supports=False)
    if item.steps < _LIKELY_STEPS:
        only = f"only {counted(item.steps, 'step')} could be compared: less than a habit shows"
        yield Evidence(only, item.source, supports=False)


def compared_text(item: LongWork) -> str:
    """What a rank works, and what those do that it is compared with."""
    own, usual = f"{item.own_ns / 1e6:.0f} ms", f"{item.usual_ns / 1e6:.0f} ms"
    steps = counted(item.steps, "step")
    if not item.peers:
        return f"rank {item.rank} worked for {own} in {steps}, and for {usual} when others took longer; these were steps"
    if item.by_stages:
        return f"rank {item.rank} worked for {own}, the other stages ({ranks_text(item.peers)}) for {usual}, in each of {steps}"
    if item.on_host:
        return (
            f"rank {item.rank} worked for {own}, {ranks_text(item.peers)}, with the same work, for {usual}, in each of {steps}"
        )
    computed = f"the device of rank {item.rank} computed for {own} in forward and backward passes"
    return f"{computed}, those of {ranks_text(item.peers)}, with the same work, for {usual}, in each of {steps}"
