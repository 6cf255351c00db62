"""What is in progress is looked at ten times a second; what stays the same is not written again and again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.native.shim_jobs import HERE, compile_c, only_log, ring_objects, run

MS = 1_000_000
pytestmark = pytest.mark.slow  # the program runs for some seconds, so that a stuck operation is looked at often


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """Samples of the moving operation (channel 0) and of the stuck one (channel 1)."""
    folder = tmp_path_factory.mktemp("sampling")
    program = compile_c(folder / "sampling", [HERE / "sampling.c", *ring_objects()])
    assert run([program], folder / "logs").returncode == 0
    rows = [row for row in only_log(folder / "logs").rows("chunk_states") if row["locator"] >= 0]
    return {channel: [row for row in rows if row["channel"] == channel] for channel in (0, 1)}


def test_a_moving_operation_is_sampled_ten_times_a_second(samples: dict[int, list[dict[str, Any]]]) -> None:
    times = [row["time_ns"] for row in samples[0]]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) >= 8  # of 16, on a machine that may be busy
    assert min(gaps) >= 90 * MS
    posted = [row["posted"] for row in samples[0]]
    assert posted == sorted(set(posted))


def test_a_stuck_one_is_written_ever_more_rarely(samples: dict[int, list[dict[str, Any]]]) -> None:
    assert 3 <= len(samples[1]) <= 7
    assert {row["posted"] for row in samples[1]} == {7}
    stuck = [row["stuck_ns"] for row in samples[1]]
    assert stuck == sorted(stuck)
    assert stuck[-1] >= 300 * MS
