"""StageFrontier's own counts (sections 6.1 and 6.2) on fixtures of the same kind: 120 of 120, 240 of 240, none of 105."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.rules.reductions.frontier.accounting import Floats, account
from tests.unit.frontier.jobs import MS, job, judged, matrix

pytestmark = pytest.mark.slow
STRONG = {"direct_exposure", "sync_wait_dependent", "likely_sync_wait", "forward_device_supported"}


def waiting(seed: int) -> tuple[Floats, int]:
    """One rank is late out of a stage, all others spend that time in the next one, waiting; `[step, stage, rank]` in ns."""
    chance = np.random.default_rng(seed)
    steps, stages, ranks = 40, int(chance.integers(3, 7)), int(chance.integers(2, 33))
    values = chance.uniform(5, 15, (steps, stages, ranks))
    late, rank = int(chance.integers(0, stages - 1)), int(chance.integers(0, ranks))
    delay = chance.uniform(40, 200)
    values[:, late, rank] += delay
    left = values[:, : late + 1].sum(axis=1)
    values[:, late + 1] += left.max(axis=1, keepdims=True) - left
    return values * MS, late


def test_the_stage_before_a_wait_is_recovered_where_maxima_and_averages_recover_none() -> None:
    hits = {"frontier": 0, "max": 0, "average": 0}
    for seed in range(120):
        values, late = waiting(seed)
        hits["frontier"] += int(account(values).advances.sum(axis=0).argmax()) == late
        hits["max"] += int(values.max(axis=2).sum(axis=0).argmax()) == late
        hits["average"] += int(values.mean(axis=2).sum(axis=0).argmax()) == late
    assert hits["frontier"] == 120
    # A wait as long as the delay is on top of the work of its own stage; with two ranks, averages may still be near each other.
    assert hits["max"] <= 60 and hits["average"] <= 12


def test_direct_exposure_is_recovered() -> None:
    for seed in range(240):
        chance = np.random.default_rng(seed)
        stages, ranks = int(chance.integers(2, 6)), int(chance.integers(3, 33))
        values = chance.uniform(9, 11, (40, stages, ranks))
        stage, rank = int(chance.integers(0, stages)), int(chance.integers(0, ranks))
        values[:, stage, rank] += chance.uniform(40, 120)
        found = judged(matrix(values)).examined
        named = {where for label, where, _ in found.labels if label == "direct_exposure"}
        assert named == {found.stages[stage]}, seed


def test_sound_jobs_get_no_strong_label() -> None:
    for seed in range(105):
        found = judged(job(ranks=(8, 16, 32)[seed % 3], seed=1000 + seed, steps=60))
        assert not {label for label, _, _ in found.examined.labels} & STRONG, seed
        assert found.attribution.culprits == (), seed
