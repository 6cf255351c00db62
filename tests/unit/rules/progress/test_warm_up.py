"""Steps in which a job warms up are left out of its speed, and none of a job that became slower."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.rules.reductions.onset import warmed_up


@pytest.mark.parametrize(
    ("lengths", "first"),
    [
        ([6, 2, 1.5, *[1] * 9], 3), ([1] * 12, 1), ([*[1] * 6, *[2] * 8], 1), ([2, 1, 2, *[1] * 9], 1),
        ([*[3] * 5, *[1] * 7], 4),
    ],
    ids=["at the begin", "none", "slower later", "not amid the record", "a third at most"],
)  # fmt: skip
def test_what_is_longer_at_the_begin_alone_is_left_out(lengths: list[float], first: int) -> None:
    assert warmed_up(np.array(lengths, float), 1.33) == first
