"""An error that no line shows the rank of, beside a rank that waits for a thread of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.collection import Collection
from tests.recordings.job import SECOND, Job
from tests.recordings.places import BARRIER, JOB, LIB, Place
from tests.recordings.verdicts import named, verdict_of

FEEDS: Place = (
    ("Condition.wait", f"{LIB}threading.py", 327),
    ("Queue.get", f"{LIB}queue.py", 171),
    ("Feed.__next__", JOB, 18),
    ("<module>", JOB, 97),
)
RAISED = (
    "Exception in thread Thread-{0} (fill):\nTraceback (most recent call last):\n"
    '  File "/opt/job/feed.py", line {0}, in fill\n    self.put(row)\nValueError: bad record in part {0}\n'
)
LOST = (
    'Traceback (most recent call last):\n  File "/opt/job/train.py", line 9, in <module>\n    dist.barrier()\n'
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:1182\n"
)


def with_log(text: str) -> Collection:
    found = Collection(3, Job(3).now_ns + 60 * SECOND)
    for rank in range(3):
        found.rank(rank)
        found.samples(rank, wchan="futex_do_wait")
        found.stacks(rank, *[FEEDS if rank == 2 else BARRIER] * 3)
    found.members["nodes/node-1/logs/train.log"] = text.encode()
    return found


def test_the_only_error_is_read_first(tmp_path: Path) -> None:
    verdict = verdict_of(with_log(RAISED.format(7)).write(tmp_path))
    assert verdict.outcome is Outcome.HANG
    assert named(verdict) == {2}
    assert "ValueError: bad record in part 7 (nodes/node-1/logs/train.log#line=" in verdict.suspects[0].next_steps[0]


@pytest.mark.parametrize(
    "text", [RAISED.format(7) + RAISED.format(8), LOST, "step 1\n"], ids=["two errors", "a peer was lost", "none"]
)
def test_no_error_is_picked(text: str, tmp_path: Path) -> None:
    verdict = verdict_of(with_log(text).write(tmp_path))
    assert named(verdict) == {2}
    assert not any("the error" in step for step in verdict.suspects[0].next_steps)
