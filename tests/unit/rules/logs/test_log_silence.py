"""A job without a recorder stands still where its logs are silent for much longer than they paused before."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from forensics.model import Verdict
from tests.recordings.collection import Collection
from tests.recordings.job import MILLISECOND, SECOND, START_NS
from tests.recordings.places import ALL_REDUCE, Place
from tests.recordings.verdicts import verdict_of

BUSY: Place = (("draw", "/srv/job/sampling.py", 6), ("train", "/srv/job/train.py", 31))
WORKER = 2


def lines(count: int, every_s: float, until_ns: int, pad: int = 0, first: int = 1) -> list[str]:
    """Lines of a trainer that counts up to the moment at which it stops."""
    times = [until_ns / SECOND - every_s * back for back in reversed(range(count))]
    dates = [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3] for at in times]
    return [
        f"{date} INFO trainer: step {10 * number} loss 2.{number:03d}{' x' * pad}" for number, date in enumerate(dates, first)
    ]


def collected(silence_s: float, *, lag_s: float = 0.0, **rhythm: float) -> Collection:
    """One rank works while the others wait; a log counts steps up to `silence_s` before, dated `lag_s` after its last line."""
    found = Collection(4, START_NS + 3600 * SECOND)
    for rank in range(4):
        found.rank(rank)
        found.samples(rank, state="R" if rank == WORKER else "S")
        found.stacks(rank, *[BUSY if rank == WORKER else ALL_REDUCE] * 3)
    last_ns = found.at_ns - int(silence_s * SECOND)
    text = lines(int(rhythm.get("count", 8)), rhythm.get("every_s", 0.7), last_ns, int(rhythm.get("pad", 0)))
    found.log(0, *text, written_ns=last_ns + int(lag_s * SECOND))
    return found


def named(verdict: Verdict) -> set[int]:
    return {rank for suspect in verdict.suspects for rank in suspect.ranks}


def test_who_works_while_the_log_is_silent_is_named(tmp_path: Path) -> None:
    found = collected(320.0)
    verdict = verdict_of(found.write(tmp_path))
    assert (verdict.outcome, named(verdict)) == ("hang", {WORKER})
    since = verdict.since
    assert since is not None and (since.time_ns, since.bound_ns) == (found.at_ns - 320 * SECOND, 700 * MILLISECOND)
    statements = [item.statement for item in verdict.suspects[0].evidence]
    assert "no log was written to for 320.0 s; ranks/0/logs/train.log counts steps with recurring gaps of 0.7 s" in statements


@pytest.mark.parametrize(
    "found",
    [
        collected(1.0),
        collected(32.0),
        collected(320.0, every_s=200.0),
        collected(320.0, count=2),
        collected(320.0, every_s=4.0, count=200),
        collected(320.0, lag_s=-40.0),
    ],
    ids=["goes on", "work ends", "usual pause", "no rhythm", "may be buffered", "file server with another clock"],
)
def test_a_silence_that_shows_nothing(tmp_path: Path, found: Collection) -> None:
    assert named(verdict_of(found.write(tmp_path))) == set()


def test_a_log_that_became_sparse_shows_nothing(tmp_path: Path) -> None:
    found = collected(320.0)
    last_ns = found.at_ns - 320 * SECOND
    found.log(0, *lines(8, 0.7, last_ns - 200 * SECOND), *lines(1, 0.7, last_ns, first=9), written_ns=last_ns)
    assert named(verdict_of(found.write(tmp_path))) == set()


def test_another_log_that_goes_on_shows_motion(tmp_path: Path) -> None:
    found = collected(320.0)
    found.log(1, "2026-11-20 10:00:00,000 INFO metrics: flushed", written_ns=found.at_ns)
    assert named(verdict_of(found.write(tmp_path))) == set()
