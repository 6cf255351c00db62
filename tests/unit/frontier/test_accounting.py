"""The identities and bounds of StageFrontier: theorem 1, the slack identity, propositions 1 to 3."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forensics.rules.reductions.frontier.accounting import account, gain, over_ranks, slack

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 7), st.integers(1, 6))
DURATIONS = SHAPES.flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(0, 1e6, width=32)))


@given(DURATIONS)
@settings(max_examples=60, deadline=None)
def test_advances_add_up_to_the_exposed_time(durations: Any) -> None:
    found = account(durations)
    longest = durations.sum(axis=1).max(axis=1)
    assert np.allclose(found.advances.sum(axis=1), longest, rtol=1e-12, atol=1e-9)
    assert (found.advances >= 0).all()
    assert found.shares().sum() == 0 or np.isclose(found.shares().sum(), 1)


@given(DURATIONS)
@settings(max_examples=60, deadline=None)
def test_an_advance_is_the_most_that_any_rank_adds_beyond_its_slack(durations: Any) -> None:
    found, owed = account(durations), slack(durations)
    assert (owed >= 0).all()
    assert np.allclose((durations - owed).max(axis=2).clip(0), found.advances, rtol=1e-9, atol=1e-6)


@given(DURATIONS)
@settings(max_examples=60, deadline=None)
def test_maxima_overcount_and_averages_undercount_within_their_bounds(durations: Any) -> None:
    _, stages, ranks = durations.shape
    exposed = durations.sum(axis=1).max(axis=1)
    highest, mean = durations.max(axis=2).sum(axis=1), durations.mean(axis=2).sum(axis=1)
    room = 1e-9 * (1 + exposed)
    assert (exposed <= highest + room).all() and (highest <= min(ranks, stages) * exposed + room).all()
    assert (exposed / ranks <= mean + room).all() and (mean <= exposed + room).all()


def test_both_bounds_are_tight() -> None:
    diagonal = np.eye(4)[None] * 7.0
    assert diagonal.max(axis=2).sum() == 4 * account(diagonal).exposed
    alone = np.zeros((1, 3, 5))
    alone[0, 1, 2] = 9.0
    assert alone.mean(axis=2).sum() * 5 == account(alone).exposed


@given(DURATIONS, st.floats(0, 10), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_errors_of_measurement_stay_small(durations: Any, error: float, seed: int) -> None:
    noise = np.random.default_rng(seed).uniform(-error, error, durations.shape)
    measured = np.maximum(durations + noise, 0.0)
    true, seen = account(durations), account(measured)
    place = np.arange(1, durations.shape[1] + 1)
    assert (np.abs(seen.frontier - true.frontier) <= place * error + 1e-6).all()
    assert (np.abs(seen.advances - true.advances) <= (2 * place - 1) * error + 1e-6).all()


@given(DURATIONS)
@settings(max_examples=40, deadline=None)
def test_a_gain_is_never_negative_and_never_more_than_there_is(durations: Any) -> None:
    exposed = durations.sum(axis=1).max(axis=1)
    for stage in range(durations.shape[1]):
        won = gain(durations, [stage], over_ranks(durations)[:, [stage]])
        assert (won >= -1e-6).all() and (won <= exposed + 1e-6).all()


def test_the_example_of_the_paper() -> None:
    """Figure 1: maxima say 13.2 s, the frontier 6.0, 1.0 and 1.2."""
    durations = np.array([[[6.0, 1.0, 1.1], [1.0, 1.0, 1.0], [1.2, 6.2, 6.0]]])
    found = account(durations)
    assert np.allclose(found.advances, [[6.0, 1.0, 1.2]])
    assert np.isclose(durations.max(axis=2).sum(), 13.2)
    assert found.leader[0, 0] == 0
