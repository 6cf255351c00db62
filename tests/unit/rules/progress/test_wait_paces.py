"""Context switches of waiting ranks, as real jobs showed them: they tell a wait that ends from one that does not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from duckdb import DuckDBPyConnection

from forensics.case.build import open_case
from forensics.rules.reductions.progress.switches import REASONS, Pace, PaceLimits, WaitPace, WaitPaces
from forensics.rules.supply import Supply
from tests.recordings.collection import Collection, process_sample
from tests.recordings.job import SECOND, Job
from tests.recordings.places import ALL_REDUCE, GRADIENT_HOOK, HOST_CODE, Place

SPANS = (1.52, 2.61)
FUTEX = "futex_do_wait"
STAGE: Place = (("forward_stage", "/srv/job/pipeline.py", 40), ("<module>", "/srv/job/pipeline.py", 97))


def paces(
    tmp_path: Path,
    counts: Sequence[int],
    *,
    place: Place = ALL_REDUCE,
    spans: Sequence[float] = SPANS,
    wchan: str | None = FUTEX,
    state: str = "S",
    ticks: int = 1,
    caught: str | None = "0000000100001002",
) -> WaitPace | None:
    """The pace of rank 0, of which each interval had so many switches; rank 1 is elsewhere, rank 2 waits as rank 0 does."""
    found = Collection(3, Job(3).now_ns)
    for rank in range(3):
        found.rank(rank)
        found.stacks(rank, *[HOST_CODE if rank == 1 else place] * (len(counts) + 1))
        time_ns, switches = found.at_ns, 40
        for number, (span, count) in enumerate(zip((0.0, *spans), (0, *counts), strict=True)):
            time_ns, switches = time_ns + int(span * SECOND), switches + count
            document = json.loads(
                process_sample(rank, time_ns, state=state, wchan="hrtimer_nanosleep" if rank == 1 else wchan, switches=switches)
            )
            document["processes"][0]["threads"][0] |= {"utime_ticks": 300 + ticks * number, "signals_caught": caught}
            found.members[f"ranks/{rank}/proc/{number}.json"] = json.dumps(document).encode()
    connection = open_case([found.write(tmp_path)])
    known = Supply({DuckDBPyConnection: connection}).get(WaitPaces)
    assert 1 not in known
    return known.get(0)


# Ranks that wait, torch 2.13 with gloo on 2 cores with load 12 to 20.
HANGS = [((0, 0), SPANS), ((0, 0, 0), (1.3, 2.1, 0.9)), ((1, 0), SPANS)]
# DDP of 0.4 and 0.05 s a step, two ranks each; messages every 0.2 and 0.05 s.
SOUND = [
    ((5, 8), SPANS),
    ((8, 9), SPANS),
    ((43, 77), SPANS),
    ((45, 72), SPANS),
    ((8, 13), SPANS),
    ((54, 97, 36), (1.3, 2.1, 0.9)),
]


@pytest.mark.parametrize(("counts", "spans"), HANGS)
@pytest.mark.parametrize("place", [ALL_REDUCE, GRADIENT_HOOK, STAGE])
def test_ranks_of_real_hangs_stand_still(tmp_path: Path, place: Place, counts: Sequence[int], spans: Sequence[float]) -> None:
    found = paces(tmp_path, counts, place=place, spans=spans)
    assert found is not None and found.pace is Pace.STILL
    assert f"{sum(counts)} context switches" in found.reason and found.source.endswith(f"ranks/0/proc/{len(counts)}.json")


@pytest.mark.parametrize(("counts", "spans"), SOUND)
def test_ranks_of_real_sound_jobs_move(tmp_path: Path, counts: Sequence[int], spans: Sequence[float]) -> None:
    found = paces(tmp_path, counts, spans=spans)
    assert found is not None and found.pace is Pace.MOVING


def test_a_timer_that_wakes_a_waiting_rank_is_no_progress(tmp_path: Path) -> None:
    """Measured: SIGALRM every 50 ms in a main thread that waits in an all_reduce for good."""
    handled = paces(tmp_path / "handled", (25, 43, 17), spans=(1.3, 2.1, 0.9), caught="0000000100003002")
    unknown = paces(tmp_path / "unknown", (25, 43, 17), spans=(1.3, 2.1, 0.9), caught=None)
    assert handled is not None and handled.pace is None and "timer" in handled.reason
    assert unknown is not None and unknown.pace is None


def test_steps_of_uneven_length_are_no_timers(tmp_path: Path) -> None:
    found = paces(tmp_path, (8, 40), caught=None)
    assert found is not None and found.pace is Pace.MOVING


def test_one_interval_cannot_tell_a_timer_from_a_job(tmp_path: Path) -> None:
    unknown = paces(tmp_path / "unknown", (40,), spans=(2.0,), caught=None)
    assert unknown is not None and unknown.pace is None
    without = paces(tmp_path / "without", (40,), spans=(2.0,))
    assert without is not None and without.pace is Pace.MOVING


def test_a_thread_that_asks_again_and_again_tells_nothing(tmp_path: Path) -> None:
    asleep = paces(tmp_path / "asleep", (24, 52), wchan="hrtimer_nanosleep")
    spinning = paces(tmp_path / "spinning", (0, 0), state="R", wchan=None, ticks=180)
    assert asleep is not None and asleep.pace is None and "polls" in asleep.reason
    assert spinning is not None and spinning.pace is None and "uses a CPU" in spinning.reason


def test_a_pause_of_a_sound_job_is_neither(tmp_path: Path) -> None:
    found = paces(tmp_path, (2, 0))
    assert found is not None and found.pace is None


def test_counters_of_another_process_tell_nothing(tmp_path: Path) -> None:
    found = paces(tmp_path, (30, -40))
    assert found is not None and found.pace is None


def test_a_rank_that_waits_for_nobody_is_not_judged(tmp_path: Path) -> None:
    assert paces(tmp_path, (0, 0), place=HOST_CODE, wchan="hrtimer_nanosleep") is None


def test_every_number_has_its_reason() -> None:
    assert REASONS.keys() == {entry.name for entry in dataclasses.fields(PaceLimits)}
