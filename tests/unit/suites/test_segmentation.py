"""Operators of simulated traffic have a cut of their own where gaps and volumes cut them (Pulse 5.2)."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.fixtures.suites.nic import GPT, MOE
from tests.benchmarks.segmentation import cuts


@pytest.mark.slow
@pytest.mark.parametrize("name", [GPT, MOE])
def test_gaps_and_volumes_cut_nearly_all_operators(name: str) -> None:
    by_gaps, by_both = cuts(name, 7)
    assert len(by_both.begins) >= 0.95 * by_both.operators > 0
    assert len(by_both.begins) >= len(by_gaps.begins)
    assert float(np.quantile(np.abs(by_both.ends), 0.9)) <= 2
    assert 0 <= float(np.median(by_both.volumes)) < 0.05
