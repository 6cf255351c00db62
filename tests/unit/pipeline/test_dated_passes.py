"""Durations of passes by the times inside calls alone, and that what a bubble takes up changes nothing and accuses nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.rules.reductions.pipeline.critical_path import judged, longest
from forensics.rules.reductions.pipeline.dag import Floats
from forensics.rules.reductions.pipeline.dated import observed, usual
from forensics.rules.reductions.pipeline.iteration import UnknownPassesError, Work
from forensics.rules.reductions.pipeline.schedules import Schedule
from tests.unit.pipeline.made_up_iterations import as_long_as, inside, made_iteration

FORWARD_NS, BACKWARD_NS = 40e6, 80e6
NEAR_NS = 1.5e6
SHARED = 0.6
"""Passes between two messages of a rank share what is left over: only beyond this part of all of them each is over-long."""
SCHEDULES = [Schedule.ONE_F_ONE_B, Schedule.GPIPE]


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 8), (8, 4)])
def test_the_usual_durations_are_found_again(schedule: Schedule, stages: int, microbatches: int, ahead: bool) -> None:
    made = made_iteration(schedule, stages, microbatches)
    durations = as_long_as(made, FORWARD_NS, BACKWARD_NS)
    known = usual(made, inside(made, durations, ahead=ahead))
    assert np.abs(known.passes - durations).max() < NEAR_NS
    assert abs(longest(made.graph, known.passes, known.lags).makespan - longest(made.graph, durations).makespan) < 0.02e9


@given(st.data(), st.sampled_from(SCHEDULES), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_delay_is_dated_at_its_pass_or_taken_up_by_its_slack(data: st.DataObject, schedule: Schedule, ahead: bool) -> None:
    made = made_iteration(schedule, data.draw(st.integers(2, 5)), data.draw(st.integers(2, 6)))
    durations = as_long_as(made, FORWARD_NS, BACKWARD_NS)
    known = usual(made, inside(made, durations, ahead=ahead))
    node = data.draw(st.integers(0, made.graph.size - 1))
    delay = data.draw(st.floats(0, 5e8))
    late = durations.copy()
    late[node] += delay
    took = observed(made, known, inside(made, late, ahead=ahead))
    slack = float(longest(made.graph, known.passes, known.lags).slack[node])
    found = judged(made.graph, took, known.passes, lags=known.lags)
    if delay < slack - 3 * NEAR_NS:  # never accuses, and the whole is as long as before
        assert len(found.late) == 0
        assert abs(found.times.makespan - longest(made.graph, known.passes, known.lags).makespan) < 3 * NEAR_NS
    elif delay > slack + SHARED * _shared_ns(made.works[int(made.stage[node])], node, durations):
        late_stages = {int(made.stage[each]) for each in found.late}
        assert late_stages == {int(made.stage[node])}
        assert abs(found.recoverable - (delay - slack)) < 10 * NEAR_NS


def _shared_ns(work: Work, node: int, durations: Floats) -> float:
    """How long the passes take from one message that was sent to the next; what follows on the last one no message tells."""
    place = int(np.flatnonzero(work.passes == node)[0])
    sends = np.flatnonzero(work.sent >= 0)
    if place > sends.max(initial=-1):
        return float("inf")
    first = int(sends[sends < place].max(initial=-1)) + 1
    return float(durations[work.passes[first : sends[sends >= place].min() + 1]].sum())


def test_times_that_fit_no_pipeline_are_refused() -> None:
    made = made_iteration(Schedule.ONE_F_ONE_B, 4, 8)
    random = np.random.default_rng(1)
    noise = {rank: random.uniform(0, 3e8, len(each)) for rank, each in inside(made, np.ones(64), ahead=True).items()}
    with pytest.raises(UnknownPassesError, match="do not fit"):
        usual(made, noise)


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
def test_without_possible_times_inside_calls_nothing_is_dated(value: float) -> None:
    made = made_iteration(Schedule.ONE_F_ONE_B, 2, 4)
    times = dict(inside(made, as_long_as(made, FORWARD_NS, BACKWARD_NS), ahead=True))
    times[1] = np.full_like(times[1], value)
    with pytest.raises(UnknownPassesError, match="not recorded"):
        usual(made, times)


def test_a_peer_that_waits_inside_a_pass_dates_it() -> None:
    """Two ranks of one stage: one waits in a collective for the other, whose own times show nothing."""
    made = made_iteration(Schedule.ONE_F_ONE_B, 2, 4)
    durations = as_long_as(made, FORWARD_NS, BACKWARD_NS)
    own = dict(inside(made, durations, ahead=True))
    node = int(made.works[1].passes[2])
    size = len(own[1])
    works = (made.works[0], replace(made.works[1], inside=np.array([size]), of=np.array([node])))
    both = replace(made, works=works)
    known = usual(both, own | {1: np.append(own[1], 1e6)})
    took = observed(both, known, own | {1: np.append(own[1], 301e6)})
    assert took[node] - known.passes[node] > 290e6
