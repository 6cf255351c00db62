"""Logs of a pipeline whose ranks gave up on messages, and one that waits for none."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Confidence
from tests.recordings.rank_logs import RankLogs
from tests.recordings.verdicts import named, pasted


def pipeline(waiting: dict[int, tuple[int, int]], heard: dict[int, tuple[int, int]], operation: str = "COALESCED") -> str:
    """Who gave up on which work after how many, and who only heard of it with what enqueued and completed."""
    logs = RankLogs()
    for rank, (number, enqueued) in waiting.items():
        logs.timed_out(rank, number, enqueued, operation=operation)
    for rank, (enqueued, completed) in heard.items():
        logs.signalled(rank, enqueued, completed, by=min(waiting))
    return "\n".join(line for rank in sorted(logs.lines) for line in logs.lines[rank]) + "\n"


WAITING = {0: (141, 180), 1: (267, 336), 3: (115, 120)}


@pytest.mark.parametrize("operation", ["COALESCED", "SEND", "RECV"])
def test_the_one_rank_that_waits_for_no_message(operation: str, tmp_path: Path) -> None:
    verdict = pasted(tmp_path, pipeline(WAITING, {2: (240, 240)}, operation))
    (found,) = verdict.suspects
    assert (found.ranks, found.cause, found.confidence, found.rules) == (
        (2,),
        Cause.HOST_STALL,
        Confidence.SUSPECT,
        ("FX151",),
    )


@pytest.mark.parametrize(
    ("waiting", "heard"),
    [
        (WAITING, {2: (241, 240)}),
        ({0: (141, 180), 3: (115, 120)}, {1: (336, 336), 2: (240, 240)}),
        ({0: (141, 180)}, {1: (240, 240)}),
        ({0: (141, 180), 1: (267, 336), 4: (115, 120)}, {2: (240, 240)}),
    ],
    ids=["it waits as well", "two of them", "one of two", "one is not heard"],
)
def test_nobody(waiting: dict[int, tuple[int, int]], heard: dict[int, tuple[int, int]], tmp_path: Path) -> None:
    assert named(pasted(tmp_path, pipeline(waiting, heard))) == set()
