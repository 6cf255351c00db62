"""Messages that get through when a collective of their sender is over, and those that are slow themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forensics.case.database import Connection
from forensics.rules.engine import supply_of
from forensics.rules.reductions.pipeline.delay import Delays
from tests.recordings.grouped_calls import case_of_dumps

MS = 1_000_000
STEPS, LONG = 20, (6, 10, 15)
GROUPS = {"pp": (0, 1), "dp": (1, 2), "all": (0, 1, 2)}
_COLUMNS = (
    "source_id locator snapshot rank communicator backend record_id kind is_p2p peer count sequence state "
    "enqueued_ns duration_ns device_end_ns"
)


def case(reduces_ms: int, reduces_long_ms: int) -> Connection:
    """Rank 1 reduces with rank 2, sends to rank 0, and all meet; in long steps the message takes 272 ms in place of 2 ms."""
    rows = (row for rank in range(3) for row in _rows(rank, reduces_ms, reduces_long_ms))
    return case_of_dumps(GROUPS, _COLUMNS, rows)


def _rows(rank: int, reduces_ms: int, reduces_long_ms: int) -> Iterator[tuple[object, ...]]:
    for step in range(STEPS):
        is_long = step in LONG
        begin = (step * 500 + 270 * sum(each < step for each in LONG)) * MS
        reduces, sends, waits = reduces_long_ms if is_long else reduces_ms, 272 if is_long else 2, 270 if is_long else 0
        calls: list[tuple[str, str, bool, int | None, int, int, int]]
        calls = [("dp", "reduce_scatter", False, None, 10, 0, reduces)] if rank else []
        calls += [("pp", "send" if rank else "recv", True, 1 - rank, 20, 1, sends)] if rank < 2 else []
        calls += [("all", "all_reduce", False, None, 30, 300 + waits, 10)]
        for at, (group, kind, is_p2p, peer, count, after, took) in enumerate(calls):
            number, issued = step * 3 + at, begin + after * MS
            place = (rank, number, 0, rank, group, "nccl", 100 + number, kind, is_p2p, peer, count, 100 + step, "done")
            yield (*place, issued, took * MS, issued + took * MS)


@pytest.mark.parametrize(
    ("reduces_ms", "reduces_long_ms", "found"),
    [(273, 273, 0), (100, 100, len(LONG)), (20, 273, len(LONG))],
    ids=["until the collective is over", "longer than that", "the collective is longer as well"],
)
def test_a_message_is_slow_unless_it_ends_with_a_usual_collective_of_its_sender(
    reduces_ms: int, reduces_long_ms: int, found: int
) -> None:
    delays = supply_of(case(reduces_ms, reduces_long_ms), None).get(Delays)
    assert len(delays.found) == found and delays.unexplained == len(LONG) - found
    assert all(delay.is_transfer for delay in delays.found if reduces_ms == reduces_long_ms)
