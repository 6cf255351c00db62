"""The graph of an iteration: a million passes beside networkx, and jobs up to 65,536 ranks.

Printed, and nothing is asserted of time. It is processor time of one thread, the best of several rounds, as the machine may
be busy.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

import networkx as nx
import numpy as np

from forensics.rules.reductions.pipeline.critical_path import Judged, judged, longest, straggling
from forensics.rules.reductions.pipeline.dag import Dag, Floats, Ints, dag
from forensics.rules.reductions.pipeline.schedules import Graph, Schedule, graph

ROUNDS = 3
TENSOR, STAGES, MICROBATCHES = 2, 4, 8  # TP2 PP4, global batch 8: VenusTrace section 4 and figure 9
WORLDS = (64, 256, 1_024, 4_096, 16_384, 65_536)
FORWARD_NS, BACKWARD_NS, DELAY_NS = 40e6, 80e6, 60e6
Made = TypeVar("Made")


def best_of(make: Callable[[], Made]) -> tuple[float, Made]:
    """Processor time in seconds of the quickest round, and what it made."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        made = make()
        times.append(time.process_time() - begin)
    return min(times), made


def jittered(passes: Graph, random: np.random.Generator) -> Floats:
    usual = np.where(passes.is_forward, FORWARD_NS, BACKWARD_NS)
    return np.rint(usual * random.uniform(0.98, 1.02, passes.dag.size))


def test_a_million_passes_beside_networkx() -> None:
    random = np.random.default_rng(0)
    large, small = (graph(Schedule.ONE_F_ONE_B, 4, 16, pipelines=count) for count in (8_192, 256))
    source, target = large.dag.source.copy(), large.dag.target.copy()
    durations, few = jittered(large, random), jittered(small, random)
    ordering, ordered = best_of(lambda: dag(large.dag.size, source, target))
    path, times = best_of(lambda: longest(ordered, durations))
    tracemalloc.start()
    longest(dag(large.dag.size, source, target), durations)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    building, whole = best_of(lambda: as_networkx(small.dag, few))
    theirs, length = best_of(lambda: nx.dag_longest_path_length(whole))
    assert length == longest(small.dag, few).makespan
    assert times.makespan == times.earliest_finish.max()
    each, their_each = ((seconds / count) for seconds, count in ((ordering + path, large.dag.size), (theirs, small.dag.size)))
    print(f"\n{large.dag.size:,} passes, {len(source):,} edges: ordered in {ordering:.2f} s, all times in {path:.2f} s more,")
    print(
        f"{peak / 1e6:.0f} MB at most; networkx, {small.dag.size:,} passes: made in {building:.2f} s, length in {theirs:.2f} s,"
    )
    print(f"{their_each / each:.0f} times as long a pass ({each * 1e9:.0f} ns, {their_each * 1e9:.0f} ns)")


def as_networkx(ordered: Dag, durations: Floats) -> nx.DiGraph:
    made = nx.DiGraph()
    made.add_weighted_edges_from((node, -1, durations[node]) for node in range(ordered.size))
    ends = zip(ordered.source.tolist(), ordered.target.tolist(), durations[ordered.source], strict=True)
    made.add_weighted_edges_from(ends)
    return made


def test_one_iteration_of_jobs_of_all_sizes() -> None:
    print("\n| ranks | pipelines | passes | all of them | the straggling one | ratio |\n|---|---|---|---|---|---|")
    for world in WORLDS:
        print(row(world))


def row(world: int) -> str:
    """One pass of one pipeline is late; both ways name it and nothing else."""
    pipelines = world // TENSOR // STAGES
    every = graph(Schedule.ONE_F_ONE_B, STAGES, MICROBATCHES, pipelines=pipelines)
    durations = np.stack([jittered(every, np.random.default_rng(rank)) for rank in range(TENSOR)])
    at = (every.pipeline == pipelines // 2) & (every.stage == 1) & (every.microbatch == 3) & every.is_forward
    durations[0, at] += DELAY_NS
    ends = longest(every.dag, durations.max(axis=0)).earliest_finish
    spans = np.zeros(pipelines)
    np.maximum.at(spans, every.pipeline, ends)
    whole, found = best_of(lambda: analysed(durations, np.arange(pipelines), 0.0, pipelines))
    pruned, also = best_of(lambda: analysed(durations, *straggling(spans), pipelines))
    assert found.late.tolist() == np.flatnonzero(at).tolist()
    assert (every.place[found.late].tolist(), found.recoverable) == (every.place[also.late].tolist(), also.recoverable)
    times = f"{whole * 1e3:.1f} ms | {pruned * 1e3:.1f} ms | {whole / pruned:.0f}"
    return f"| {world:,} | {pipelines:,} | {every.dag.size:,} | {times} |"


def analysed(durations: Floats, kept: Ints, at_least: float, pipelines: int) -> Judged:
    """Graph, critical path and judgement of some pipelines; a pass is as long as on its slowest tensor-parallel rank."""
    passes = graph(Schedule.ONE_F_ONE_B, STAGES, MICROBATCHES, pipelines=len(kept))
    slowest = durations.reshape(TENSOR, pipelines, -1)[:, kept].max(axis=0).ravel()
    return judged(passes.dag, slowest, np.where(passes.is_forward, FORWARD_NS, BACKWARD_NS), at_least=at_least)
