"""Gaps that a slow NIC leaves in the flows of its group are seen in fine epochs only (Pulse 6 and 7.2.1)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.benchmarks.granularity import APART, BEFORE, BESIDE, SLOW, actual_times


@pytest.mark.slow
def test_coarse_epochs_fold_the_gaps_of_the_others_into_their_time() -> None:
    found = actual_times(f"nic-slow@rank{SLOW}:50%+lasting", 5, (8, 32, 64, 1000))
    fine, usual, coarse, blind = found
    for rank in BESIDE:
        assert all(before[rank] < after[rank] for before, after in pairwise(found))
        assert fine[rank] < 0.7 * fine[SLOW]
        assert coarse[rank] < 0.95 * coarse[SLOW]
        assert coarse[rank] - usual[rank] > 50
        assert blind[rank] == pytest.approx(blind[SLOW], rel=0.02)
    for times in (fine, usual, coarse):
        assert times[BEFORE] == pytest.approx(times[SLOW], rel=0.01)  # a slow NIC receives slowly, too
        assert times[SLOW] == pytest.approx(usual[SLOW], rel=0.01)
        assert max(times[rank] for rank in APART) == pytest.approx(usual[APART[0]], rel=0.03)
