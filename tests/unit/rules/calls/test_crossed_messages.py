"""Two ranks that both send before they receive: a deadlock, unless such messages went through before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.collection import loose
from tests.recordings.job import Group, Job
from tests.recordings.verdicts import verdict_of


def _exchange(job: Job, channel: Group, size: int, *, done: bool = True) -> None:
    """Each rank sends, and then receives."""
    for call in ("send 0->1", "recv 0<-1"):
        job.call(channel, call, [0], shapes=((size,),), done=done)
    for call in ("send 1->0", "recv 1<-0"):
        job.call(channel, call, [1], shapes=((size,),), done=done)


@pytest.mark.parametrize(
    ("before", "size", "is_deadlock"), [(0, 64, True), (4, 64, False), (4, 1 << 20, True)], ids=["first", "as before", "larger"]
)
def test_messages_that_went_through_in_the_same_order_are_no_deadlock(
    before: int, size: int, is_deadlock: bool, tmp_path: Path
) -> None:
    job = Job(2, "nccl")
    channel = job.group((0, 1), "pp")
    for _ in range(before):
        _exchange(job, channel, 64)
        job.steps(1)
    _exchange(job, channel, size, done=False)
    rules = {rule for suspect in verdict_of(loose(job, tmp_path, ranks=(0, 1))).suspects for rule in suspect.rules}
    assert ("FX130" in rules) is is_deadlock
