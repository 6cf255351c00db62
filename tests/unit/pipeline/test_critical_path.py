"""The critical path against networkx, and what slack, counterfactuals and judgements promise."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.rules.reductions.pipeline.avoiding import longest_avoiding
from forensics.rules.reductions.pipeline.critical_path import (
    critical_edges,
    halted,
    judged,
    longest,
    makespan_without,
    out_of_order,
    recoverable_alone,
    straggling,
)
from forensics.rules.reductions.pipeline.dag import Dag, dag
from forensics.rules.reductions.pipeline.schedules import Schedule, graph
from tests.unit.pipeline.graphs import Example, examples, networkx_makespan

EXACT = 0.0


@given(examples())
@settings(max_examples=150, deadline=None)
def test_the_makespan_is_the_longest_path_of_networkx(example: Example) -> None:
    assert longest(example.graph, example.durations, example.lags).makespan == networkx_makespan(example)


@given(examples())
@settings(max_examples=100, deadline=None)
def test_times_keep_every_edge_and_fit_into_the_makespan(example: Example) -> None:
    graph, lags = example.graph, example.lags
    times = longest(graph, example.durations, lags)
    assert (times.latest_start >= times.earliest_start).all() and (times.slack >= 0).all()
    assert (times.earliest_finish[graph.source] + lags <= times.earliest_start[graph.target]).all()
    assert (times.latest_finish[graph.source] + lags <= times.latest_start[graph.target]).all()
    assert times.latest_finish.max() == times.makespan
    assert times.critical(EXACT).any()


@given(examples(8))
@settings(max_examples=100, deadline=None)
def test_critical_edges_are_all_the_parallel_longest_paths_and_no_others(example: Example) -> None:
    times = longest(example.graph, example.durations, example.lags)
    chosen = critical_edges(example.graph, times, example.lags, EXACT)
    ends = list(zip(example.graph.source.tolist(), example.graph.target.tolist(), strict=True))
    lag = dict(zip(ends, example.lags, strict=True))
    whole = nx.DiGraph()
    whole.add_nodes_from(range(example.graph.size))
    whole.add_edges_from(ends)
    on_longest: set[tuple[int, int]] = set()
    for first in (node for node in whole if not whole.in_degree(node)):
        for last in (node for node in whole if not whole.out_degree(node)):
            for path in nx.all_simple_paths(whole, first, last) if first != last else ():
                steps = list(pairwise(path))
                if sum(example.durations[path]) + sum(lag[step] for step in steps) == times.makespan:
                    on_longest.update(steps)
    assert {end for end, is_chosen in zip(ends, chosen, strict=True) if is_chosen} == on_longest


@given(examples(), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_durations_and_lags_times_a_number_make_all_times_longer_by_it(example: Example, factor: int) -> None:
    once = longest(example.graph, example.durations, example.lags)
    often = longest(example.graph, example.durations * factor, example.lags * factor)
    assert often.makespan == once.makespan * factor
    assert (often.slack == once.slack * factor).all()


@given(examples(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_delay_up_to_the_slack_changes_nothing_and_a_longer_one_all_that_is_beyond(
    example: Example, data: st.DataObject
) -> None:
    node, delay = data.draw(st.integers(0, example.graph.size - 1)), data.draw(st.integers(1, 100))
    before = longest(example.graph, example.durations, example.lags)
    late = example.durations.copy()
    late[node] += delay
    after = longest(example.graph, late, example.lags)
    assert after.makespan == before.makespan + max(delay - before.slack[node], 0)
    found = judged(example.graph, late, example.durations, m_node=0.0, tolerance=EXACT, lags=example.lags)
    assert found.late.tolist() == ([node] if delay > before.slack[node] else [])
    assert found.absorbed.tolist() == ([] if delay > before.slack[node] else [node])
    assert found.recoverable == after.makespan - before.makespan


@given(examples(), st.data())
@settings(max_examples=100, deadline=None)
def test_with_many_delays_none_is_blamed_without_loss_and_no_loss_is_without_blame(
    example: Example, data: st.DataObject
) -> None:
    size = example.graph.size
    delays = np.array(data.draw(st.lists(st.integers(0, 60), min_size=size, max_size=size)), dtype=float)
    late = example.durations + delays
    before, after = (longest(example.graph, each, example.lags) for each in (example.durations, late))
    found = judged(example.graph, late, example.durations, m_node=0.0, tolerance=EXACT, lags=example.lags)
    assert sorted([*found.late, *found.absorbed]) == np.flatnonzero(delays).tolist()
    assert bool(len(found.late)) == (after.makespan > before.makespan)
    assert after.critical(EXACT)[found.late].all()
    assert (found.alone <= delays[found.late]).all() and (found.alone <= found.recoverable).all()


@given(examples())
@settings(max_examples=100, deadline=None)
def test_the_longest_way_around_each_node_is_that_of_paths_without_it(example: Example) -> None:
    times = longest(example.graph, example.durations, example.lags)
    found = longest_avoiding(example.graph, times.earliest_finish, times.makespan - times.latest_start, example.lags)
    assert found.tolist() == [networkx_makespan(example, without=node) for node in range(example.graph.size)]


@given(examples(), st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_recovered_from_one_node_is_what_the_makespan_loses_without_its_excess(
    example: Example, data: st.DataObject
) -> None:
    size = example.graph.size
    expected = np.array(data.draw(st.lists(st.integers(0, 60), min_size=size, max_size=size)), dtype=float)
    times = longest(example.graph, example.durations, example.lags)
    found = recoverable_alone(example.graph, times, example.durations - expected, example.lags)
    for node, each in enumerate(np.eye(size, dtype=bool)):
        lost = times.makespan - makespan_without(example.graph, example.durations, expected, each, example.lags)
        assert found[node] == lost >= 0


@given(examples(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_hang_begins_at_the_nodes_that_were_to_run_when_all_else_stood(example: Example, data: st.DataObject) -> None:
    """Let nodes run until each that is left waits for one of the stuck ones."""
    graph = example.graph
    stuck = data.draw(st.sets(st.integers(0, graph.size - 1), min_size=1))
    complete = np.zeros(graph.size, dtype=bool)
    for node in np.argsort(graph.position):
        complete[node] = node not in stuck and complete[graph.source[graph.target == node]].all()
    found = set(halted(graph, complete).tolist())
    assert found <= stuck and found
    assert len(out_of_order(graph, complete)) == 0


def test_a_completed_node_behind_an_incomplete_one_contradicts_the_order() -> None:
    chain = dag(4, [0, 1, 2], [1, 2, 3])
    complete = np.array([True, False, True, False])
    assert halted(chain, complete).tolist() == [1, 3]
    assert out_of_order(chain, complete).tolist() == [2]


def test_equal_delays_side_by_side_are_both_late_though_neither_alone_costs_anything() -> None:
    replicas = graph(Schedule.ONE_F_ONE_B, 2, 2, pipelines=2)
    expected = np.full(replicas.dag.size, 1e6)
    slow = expected.copy()
    both = np.flatnonzero((replicas.stage == 1) & replicas.is_forward & (replicas.microbatch == 0))
    slow[both] += 9e6
    found = judged(replicas.dag, slow, expected)
    assert found.late.tolist() == both.tolist() and len(both) == 2
    assert found.alone.tolist() == [0.0, 0.0] and found.recoverable == 9e6


def chains_beside_a_wait(count: int) -> Dag:
    """Node 0, then side by side node 1 alone and chains of two nodes each (2 and 3, 4 and 5, ...)."""
    firsts = [1, *(2 + 2 * chain for chain in range(count))]
    return dag(2 + 2 * count, [*[0] * len(firsts), *firsts[1:]], [*firsts, *(first + 1 for first in firsts[1:])])


@pytest.mark.parametrize(
    ("chains", "delays", "late", "alone", "recoverable"),
    [
        (1, [0, 0, 3, 3], [2, 3], [2, 2], 2),  # neither is beyond the slack of 4, both together are
        (1, [5, 0, 3, 3], [0, 2, 3], [5, 2, 2], 7),
        (2, [5, 0, 6, 0, 6, 0], [0, 2, 4], [5, 0, 0], 7),  # side by side after one that all wait for
        (2, [0, 0, 3, 3, 3, 3], [2, 3, 4, 5], [0, 0, 0, 0], 2),
        (2, [0, 0, 4, 0, 2, 2], [], [], 0),  # they fill their slack, and are on the critical path
        (2, [5, 0, 4, 0, 1, 1], [0], [5], 5),
    ],
)
def test_who_is_late_where_delays_meet(
    chains: int, delays: list[float], late: list[int], alone: list[float], recoverable: float
) -> None:
    waits = chains_beside_a_wait(chains)
    expected = np.array([10.0, 24.0, *[10.0] * 2 * chains])
    found = judged(waits, expected + delays, expected, m_node=0.0, tolerance=EXACT)
    assert (found.late.tolist(), found.alone.tolist(), found.recoverable) == (late, alone, recoverable)
    assert found.absorbed.tolist() == [node for node, delay in enumerate(delays) if delay and node not in late]


def test_what_is_a_little_longer_or_of_unknown_length_is_not_judged() -> None:
    pair = dag(3, [0, 1], [1, 2])
    found = judged(pair, np.array([149e6, 900e6, 151e6]), np.array([100e6, np.nan, 100e6]))
    assert (found.late.tolist(), found.absorbed.tolist()) == ([2], [])
    assert found.alone.tolist() == [51e6] and found.recoverable == 51e6


def test_a_pass_that_was_quick_is_not_made_slower_in_the_counterfactual() -> None:
    pair = dag(2, [0], [1])
    assert makespan_without(pair, np.array([5.0, 5.0]), np.array([9.0, 2.0]), np.array([True, True])) == 7.0


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4), st.integers(0, 20), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_pipelines_that_straggle_give_the_answer_that_all_of_them_give(
    pipelines: int, stages: int, microbatches: int, tolerance: int, random: Random
) -> None:
    every = graph(Schedule.ONE_F_ONE_B, stages, microbatches, pipelines=pipelines)
    expected = np.array([random.randint(1, 9) for _ in range(every.dag.size)], dtype=float)
    durations = expected + [random.choice((0, 0, 0, 1, 5, 30)) for _ in range(every.dag.size)]
    times = longest(every.dag, durations)
    spans = np.zeros(pipelines)
    np.maximum.at(spans, every.pipeline, times.earliest_finish)
    kept, next_longest = straggling(spans, tolerance)
    assert set(every.pipeline[times.critical(tolerance)]) == set(kept.tolist())
    among = np.flatnonzero(np.isin(every.pipeline, kept))
    few = graph(Schedule.ONE_F_ONE_B, stages, microbatches, pipelines=len(kept)).dag
    whole = judged(every.dag, durations, expected, 0.5, tolerance)
    pruned = judged(few, durations[among], expected[among], 0.5, tolerance, at_least=next_longest)
    assert among[pruned.late].tolist() == whole.late.tolist()
    assert (pruned.alone.tolist(), pruned.recoverable) == (whole.alone.tolist(), whole.recoverable)
    assert among[pruned.absorbed].tolist() == [node for node in whole.absorbed if node in among]


def test_a_cycle_is_refused_with_the_number_of_nodes_it_holds_up() -> None:
    with pytest.raises(ValueError, match="cycle: 3 of 4 nodes"):
        dag(4, [0, 1, 2, 2], [1, 2, 1, 3])
    with pytest.raises(ValueError, match="cycle"):
        dag(1, [0], [0])


@pytest.mark.parametrize(("source", "target"), [([0], [2]), ([-1], [0]), ([0.5], [1]), ([0, 1], [1])])
def test_edges_that_lead_nowhere_are_refused(source: list[int], target: list[int]) -> None:
    with pytest.raises(ValueError, match="edge"):
        dag(2, source, target)


@pytest.mark.parametrize("durations", [[1.0], [1.0, -1.0], [1.0, np.nan], [np.inf, 1.0]])
def test_durations_that_mean_nothing_are_refused(durations: list[float]) -> None:
    with pytest.raises(ValueError, match="duration"):
        longest(dag(2, [0], [1]), np.array(durations))


def test_lags_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="lag 0 is -2"):
        longest(dag(2, [0], [1]), np.array([1.0, 1.0]), np.array([-2.0]))


def test_a_graph_of_nothing_takes_no_time() -> None:
    nothing = dag(0, [], [])
    assert longest(nothing, np.array([])).makespan == 0.0
    assert len(halted(nothing, np.array([], dtype=bool))) == 0
