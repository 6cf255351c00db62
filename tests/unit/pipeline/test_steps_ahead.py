"""How long steps are where hosts issue several of them ahead of the device: what a host takes for one is not its length."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.rules.reductions.steps.records import records
from forensics.rules.reductions.steps.times import step_times
from tests.unit.pipeline.made_up_calls import Call, case

STEP = [Call("all", "all_reduce"), Call("all", "all_reduce", 1)]
STEPS, DEVICE_NS, MS = 12, 900_000_000, 1_000_000


@pytest.mark.parametrize(
    ("every", "host_ms", "expected_ms"),
    [(12, 50, 900), (4, 50, 900), (1, 900, 900), (1, 50, 50)],
    ids=["never waits", "waits every four steps", "waits in each step", "ends before the next step"],
)
def test_ends_tell_the_length_where_the_host_runs_ahead(every: int, host_ms: int, expected_ms: int) -> None:
    """A step takes the device 900 ms, or as long as the host where that is what takes so long."""
    connection = case({"all": (0, 1)}, dict.fromkeys(range(2), STEP * STEPS), first=1)
    device = min(DEVICE_NS, host_ms * MS) if every == 1 else DEVICE_NS
    for step in range(STEPS):
        waited = step // every * every * device
        begin = waited + step % every * host_ms * MS
        for part in range(2):
            connection.execute(
                "UPDATE operations SET enqueued_ns = ?, device_end_ns = ? WHERE locator = ?",
                [begin + part * 20 * MS, (step + 1) * device - (1 - part) * 30 * MS, 2 * step + part],
            )
    found = step_times(records(connection))
    assert np.median(found.length) == expected_ms * MS
    assert not found.long()


def test_what_is_queued_behind_a_step_is_free_to_begin_when_that_is_over() -> None:
    """The host makes all calls in the first second."""
    connection = case({"all": (0, 1)}, dict.fromkeys(range(2), STEP * STEPS), first=1)
    for place in range(2 * STEPS):
        times = [place * MS, (place + 1) * DEVICE_NS]
        connection.execute("UPDATE operations SET enqueued_ns = ?, device_end_ns = ? WHERE locator = ?", [*times, place])
    steps = step_times(records(connection)).ranks[0]
    assert (steps.free_ns == steps.begin * DEVICE_NS).all()
    assert (steps.before_ns == (steps.begin - 1) * MS).all()
