"""A shim log of which only the end is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.rings import Ring, newest, threads
from tests.unit.ingest.reading import sample

NAME = "shim_log/one_of_everything.frx"


def ring(ring_class: str, times: Sequence[int], comms: Sequence[int] = (), overwritten: int = 0) -> Ring:
    records = np.zeros(len(times), layout.RECORD)
    records["time"], records["kind"] = times, 1
    records["comm"] = comms or 0
    places = np.arange(len(times))
    return Ring(ring_class, 7, "main", 0, records, places, places + overwritten, len(times), overwritten, 0, 0)


def kept(rings: Sequence[Ring]) -> list[list[int]]:
    return [each.records["time"].tolist() for each in rings]


def test_samples_and_flows_begin_at_the_moment_and_rare_records_are_kept() -> None:
    rings = [ring("rare", [1, 9]), ring("flows", [1, 2, 3, 8, 9]), ring("samples", [1, 2, 3, 8, 9], overwritten=4)]
    found = newest(rings, 8)
    assert kept(found) == [[1, 9], [8, 9], [8, 9]]
    assert [(each.unread, each.overwritten, each.written) for each in found] == [(0, 0, 2), (3, 0, 5), (3, 4, 5)]


def test_calls_go_back_to_the_last_one_of_each_communicator() -> None:
    """A rank whose last call on a communicator was not read would seem to have made none there."""
    one, other = ring("calls", [1, 1, 1, 1, 2, 3, 8, 9], [0, 0, 0, 0, 4, 0, 0, 0]), ring("calls", [1, 1, 1, 2, 9], [5] * 5)
    assert kept(newest([one, other], 8)) == [[2, 3, 8, 9], [2, 9]]


def test_a_history_that_is_mostly_in_the_window_is_read_whole() -> None:
    assert kept(newest([ring("flows", [1, 2, 8, 9, 10])], 8)) == [[1, 2, 8, 9, 10]]


def test_who_made_the_calls_is_still_known() -> None:
    """A thread says once that it took a ring; those behind are its own."""
    one = ring("calls", [1, 1, 2, 3, 4, 8])
    one.records["kind"][0] = layout.THREAD
    one.records["payload"][0, 8] = 7
    (end,) = newest([one], 8)
    assert (threads(end), end.unread) == (["main (7)"], 5)


def test_the_last_record_is_kept_whatever_its_time() -> None:
    """A thread that ended long ago still shows that it was there, and the last sign of life is not lost."""
    assert kept(newest([ring("samples", [1, 2, 3])], 8)) == [[3]]


def test_records_that_were_not_read_are_counted_and_are_not_overwritten() -> None:
    whole, end = sample(NAME), sample(NAME, newest_ns=0)
    counted = {key.removeprefix("shim.records."): text for key, text in end.config().items() if "unread" in text}
    assert counted == {
        "calls": "written=8 kept=2 unread=6 overwritten=0 torn=0 dropped=0",
        "flows": "written=4 kept=1 unread=3 overwritten=0 torn=0 dropped=0",
        "samples": "written=9 kept=4 unread=5 overwritten=0 torn=0 dropped=0",
    }
    (stated,) = (row for row in end.rows("coverage") if row["kind"] == "shim_history")
    assert (stated["status"], stated["reason"]) == (
        "partial", "14 records before the onset of the fault not read; --full reads them",
    )  # fmt: skip
    assert whole.rows("communicator_states") == end.rows("communicator_states")


def test_what_ended_before_the_moment_is_still_known_to_have_ended() -> None:
    whole, end = sample(NAME), sample(NAME, newest_ns=0)
    states = {row["op_id"]: row["state"] for row in whole.rows("operations")}
    assert end.rows("operations")
    assert all(states[row["op_id"]] == row["state"] for row in end.rows("operations"))


@pytest.mark.parametrize("newest_ns", [1 << 62, 0, -1])
def test_any_length_is_read(newest_ns: int) -> None:
    assert not sample(NAME, newest_ns=newest_ns).problems
