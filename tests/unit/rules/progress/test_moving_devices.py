"""Hosts that made the calls of a step long ago, and devices that still work them off, or do not."""

from __future__ import annotations

import pytest

from forensics.rules.reductions.calls.positions import Operation
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.progress.motion import moved_by_devices
from forensics.rules.reductions.progress.standstill import Standing, _Dates, _not_there_yet
from forensics.rules.reductions.ranks.shim_logs import ShimLog
from forensics.rules.reductions.waits.graph import Wait

SECOND = 1_000_000_000
STALLED = Liveness(Motion.STALLED, "no new operation for 28.0 s", silence_ns=28 * SECOND, pause_ns=2 * SECOND)


def log(rank: int, chunk_s: float | None, *, ended: bool = False) -> ShimLog:
    """A log of 100 s, whose last chunk moved at a second."""
    chunk_ns = None if chunk_s is None else int(chunk_s * SECOND)
    return ShimLog(rank, rank, f"{rank}.frx", "a", 0, 100 * SECOND, None, ended, chunk_ns, chunk_ns, SECOND, frozenset())


@pytest.mark.parametrize(
    ("chunks", "silent", "moves"),
    [((99.9, 99.8, 73.0), (), True), ((73.0, 73.0, 73.0), (), False), ((99.9, 73.0, None), (), False),
     ((99.9, 99.8, 73.0), (1,), False)],
    ids=["two ends moved a chunk", "all stand since", "one rank alone", "a process without a heartbeat"],
)  # fmt: skip
def test_a_job_whose_devices_go_on_is_not_stalled(
    chunks: tuple[float | None, ...], silent: tuple[int, ...], moves: bool
) -> None:
    found = moved_by_devices(STALLED, {rank: log(rank, at) for rank, at in enumerate(chunks)}, silent)
    assert found.motion is (Motion.TOO_EARLY if moves else Motion.STALLED)
    assert ("ranks moved 0.1 s before" in found.reason) is moves


def test_a_process_that_left_in_order_moves_nothing() -> None:
    logs = {rank: log(rank, 99.9, ended=True) for rank in range(3)}
    assert moved_by_devices(STALLED, logs, ()).motion is Motion.STALLED


def call(rank: int, order: int) -> Operation:
    return Operation("all_reduce", "[[4]]", 72 * SECOND, None, f"{rank}.fr#entry={order}", order=order)


@pytest.mark.parametrize(
    ("chunk_s", "standing"),
    [(99.9, {0: Standing.USUAL, 1: Standing.USUAL}), (71.0, {}), (90.0, {})],
    ids=["just now", "before the call was made", "long ago"],
)
def test_a_call_stands_not_still_while_devices_come_to_it(chunk_s: float, standing: dict[int, Standing]) -> None:
    """Rank 1 moves on in a group of which rank 0 waits, and rank 2 waits for rank 0 in another one."""
    waits = [
        Wait("data", 7, {0: call(0, 3), 1: call(1, 3)}, ()),
        Wait("tied", 9, {0: call(0, 4), 2: call(2, 4)}, ()),
        Wait("apart", 5, {3: call(3, 3), 0: call(0, 2)}, ()),
    ]
    captured = dict.fromkeys(range(4), 100 * SECOND)
    dates = _Dates(captured, {}, {}, {}, {}, {}, {1: int(chunk_s * SECOND)}, {}, {}, {})
    assert {place: state.standing for place, state in _not_there_yet(waits, dates).items()} == standing
