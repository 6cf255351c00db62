"""What an iteration waited for: critical path, slack, what would be won without a delay, and where a hang begins.

The critical path method (Kelley and Walker 1959) on a `Dag` with durations in ns. It stands in place of VenusTrace's algorithms
1 to 3, whose printed steps differ (docs/decisions/0019-printed-algorithms.md). `lags`, where given, are ns from the end of an
edge's source to the earliest start of its target, one for each edge: the transfer of a message.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.pipeline.avoiding import longest_avoiding
from forensics.rules.reductions.pipeline.dag import Dag, Flags, Floats, Ints, Sweep

TOLERANCE_NS = 1_000.0
"""Differences up to this count as none: calls are logged in microseconds."""
M_NODE = 0.5
"""Share beyond the expected duration from which a pass is over-long (VenusTrace section 4, m = 50 %)."""


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """When each node starts at the earliest and at the latest for the whole to end after `makespan`; all in ns, by node."""

    durations: Floats
    earliest_start: Floats
    latest_start: Floats
    makespan: float

    @property
    def earliest_finish(self) -> Floats:
        """When each node ends if it starts as early as it can."""
        return self.earliest_start + self.durations

    @property
    def latest_finish(self) -> Floats:
        """When each node has to end."""
        return self.latest_start + self.durations

    @property
    def slack(self) -> Floats:
        """By how much each node may be late without any effect on the end; 0 where rounding made it negative."""
        return np.maximum(self.latest_start - self.earliest_start, 0.0)

    def critical(self, tolerance: float = TOLERANCE_NS) -> Flags:
        """Nodes on a longest path, or on one that is shorter by no more than `tolerance`."""
        return self.slack <= tolerance


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Over-long nodes: `late` ones, without which the whole would end earlier, and `absorbed` ones (bubbles took them up).

    `alone` is what each late one costs by itself, in ns, others unchanged: 0 for delays side by side. `recoverable` is what
    all over-long nodes of the critical path cost together.
    """

    late: Ints
    absorbed: Ints
    alone: Floats
    recoverable: float
    times: Times


def longest(graph: Dag, durations: Floats, lags: Floats | None = None) -> Times:
    """Compute the earliest and latest times of all nodes.

    Raises ValueError unless durations and lags are finite, not negative, and one for each node and each edge.
    """
    _check("duration", durations, graph.size)
    if lags is not None:
        _check("lag", lags, len(graph.source))
    before = _longest_before(graph.onwards, durations, lags)
    after = _longest_before(graph.backwards, durations, lags)
    makespan = float((before + durations).max(initial=0.0))
    return Times(durations, before, makespan - durations - after, makespan)


def critical_edges(graph: Dag, times: Times, lags: Floats | None = None, tolerance: float = TOLERANCE_NS) -> Flags:
    """Return which edges lie on a longest path, or on one that is shorter by no more than `tolerance`.

    Ways along them that begin and end where the graph does are the parallel critical paths.
    """
    room = times.latest_start[graph.target] - times.earliest_finish[graph.source]
    return np.asarray((room if lags is None else room - lags) <= tolerance)


def makespan_without(graph: Dag, durations: Floats, expected: Floats, chosen: Flags, lags: Floats | None = None) -> float:
    """Return the makespan if the chosen nodes had taken no longer than expected; NaN as expectation changes nothing.

    The difference to the makespan of `longest` is what could be recovered, and never negative: what was quicker than expected
    stays as it was.
    """
    spared = np.where(chosen, np.fmin(durations, expected), durations)
    _check("duration", spared, graph.size)
    return float((_longest_before(graph.onwards, spared, lags) + spared).max(initial=0.0))


def judged(
    graph: Dag,
    durations: Floats,
    expected: Floats,
    m_node: float = M_NODE,
    tolerance: float = TOLERANCE_NS,
    lags: Floats | None = None,
    at_least: float = 0.0,
) -> Judged:
    """Tell nodes longer than (1 + `m_node`) times what is expected that made the whole later from those that did not.

    NaN as expectation judges nothing. A node on the critical path is late only if the end would be earlier without its excess,
    or later with its excess than without that of any node there: one that just fills its slack is absorbed. The end comes after
    `at_least` ns in any case: the longest span of pipelines that were left out.
    """
    times = longest(graph, durations, lags)
    excess = durations - expected
    is_long = (durations > (1 + m_node) * expected) & (excess > tolerance)
    on_path = is_long & times.critical(tolerance)
    most = max(times.makespan - at_least, 0.0)
    alone = np.where(on_path, np.minimum(recoverable_alone(graph, times, excess, lags), most), 0.0)
    usual = longest(graph, np.where(on_path, expected, durations), lags)
    room = usual.slack + max(at_least - usual.makespan, 0.0)
    counts = on_path & ((alone > tolerance) | (excess > room + tolerance))
    together = min(times.makespan - usual.makespan, most)
    if not counts.any() and together > tolerance:  # several delays that matter only as a whole
        counts = on_path
    late, absorbed = np.flatnonzero(counts), np.flatnonzero(is_long & ~counts)
    return Judged(late, absorbed, alone[late], together if counts.any() else 0.0, times)


def recoverable_alone(graph: Dag, times: Times, excess: Floats, lags: Floats | None = None) -> Floats:
    """Return the ns by which the whole would end earlier without the excess of each node, all others unchanged."""
    avoiding = longest_avoiding(graph, times.earliest_finish, times.makespan - times.latest_start, lags)
    through = times.makespan - times.slack - np.fmax(excess, 0.0)
    return np.asarray(np.maximum(times.makespan - np.maximum(through, avoiding), 0.0))


def halted(graph: Dag, complete: Flags) -> Ints:
    """Return the incomplete nodes whose predecessors are all complete: where a hang begins (VenusTrace, incomplete graph).

    A pass is complete when what it sends was received as well, or was sent at least: the caller decides, by its evidence.
    """
    held = np.zeros(graph.size, dtype=np.bool_)
    held[graph.target[~complete[graph.source]]] = True
    return np.flatnonzero(~complete & ~held)


def out_of_order(graph: Dag, complete: Flags) -> Ints:
    """Return the complete nodes with an incomplete predecessor: not this schedule, or records are missing."""
    early = complete[graph.target] & ~complete[graph.source]
    return np.unique(graph.target[early])


def straggling(spans: Floats, tolerance: float = TOLERANCE_NS) -> tuple[Ints, float]:
    """Return the pipelines that took longest (ns of one iteration, by pipeline), up to `tolerance`, and the next longest span.

    Pipelines of a data-parallel job meet only at the end of an iteration: every critical node lies in one of these, and the
    graph of the others need not be made (MegaTrace section III.C; by span, as a sum of work says nothing of bubbles). The
    longest span among the others, 0 without any, bounds what can be recovered: it is `at_least` of `judged`.
    """
    kept = spans >= spans.max(initial=0.0) - tolerance
    return np.flatnonzero(kept), float(spans[~kept].max(initial=0.0))


def _longest_before(sweep: Sweep, durations: Floats, lags: Floats | None) -> Floats:
    """Longest way to each node in the direction of a sweep, itself not counted."""
    before = np.zeros(len(durations))
    through = np.array(durations, dtype=np.float64)
    for first, end, first_edge, end_edge in sweep.levels:
        came = through[sweep.others[first_edge:end_edge]]
        if lags is not None:
            came += lags[sweep.edges[first_edge:end_edge]]
        latest = np.maximum.reduceat(came, sweep.begin[first:end] - first_edge)
        nodes = sweep.nodes[first:end]
        before[nodes] = latest
        through[nodes] += latest
    return before


def _check(what: str, values: Floats, wanted: int) -> None:
    if values.shape != (wanted,):
        raise ValueError(f"{wanted} values wanted, one {what} each; got an array of shape {values.shape}")
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        raise ValueError(f"{what} {bad[0]} is {values[bad[0]]}: neither negative ones nor unknown ones can be used")
