"""A rank that left nothing and is awaited in a message: the transfer may stand as well as the rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Confidence
from tests.recordings.collection import loose
from tests.recordings.job import Group, Job
from tests.recordings.verdicts import verdict_of


def _pass(job: Job, channel: Group, *, done: bool = True, received: bool = True) -> None:
    """A message from the first to the second stage; `received` says whether its receiver is there to be recorded."""
    sender, receiver = channel.members
    job.call(channel, "send 0->1", [sender], done=done)
    if received:
        job.call(channel, "recv 1<-0", [receiver], done=done)


def _stages() -> tuple[Job, tuple[Group, Group], tuple[Group, Group]]:
    """Two stages of two ranks that reduce among each other before and after a message; the job reduces after every step."""
    job = Job(4, "nccl")
    pairs = job.group((0, 1), "tp"), job.group((2, 3), "tp")
    channels = job.group((0, 2), "pp"), job.group((1, 3), "pp")
    for _ in range(6):
        for _ in range(2):
            job.call(pairs[0])
            for channel in channels:
                _pass(job, channel)
            job.call(pairs[1])
        job.steps(1)
    return job, pairs, channels


@pytest.mark.parametrize("before", [0, 1])
def test_a_message_that_the_silent_rank_had_to_finish_first_suspects_both_its_ends(before: int, tmp_path: Path) -> None:
    """Ranks 0 and 2 have the message behind them, 1 and 3 do not: 3 never called for it, or the two cannot reach each other."""
    job, pairs, channels = _stages()
    for _ in range(before):
        job.call(pairs[0])
        for channel in channels:
            _pass(job, channel)
        job.call(pairs[1])
    job.call(pairs[0])
    _pass(job, channels[0])
    _pass(job, channels[1], done=False, received=False)
    job.call(pairs[1], ranks=[2], done=False)
    job.hang({2, 3})
    (first,) = verdict_of(loose(job, tmp_path, ranks=(0, 1, 2))).suspects
    assert (first.ranks, first.members, first.confidence) == ((1, 3), "one_of", Confidence.SUSPECT)
    assert first.stage.operation == "send"


def test_a_rank_that_had_finished_its_last_message_is_named_alone(tmp_path: Path) -> None:
    """Rank 3 took the message as rank 2 did, and is missing in the reduction after it: the next message waits for that."""
    job, pairs, channels = _stages()
    job.call(pairs[0])
    for channel in channels:
        _pass(job, channel)
    job.call(pairs[1], ranks=[2], done=False)
    job.call(pairs[0])
    for channel in channels:
        _pass(job, channel, done=False, received=False)
    (first,) = verdict_of(loose(job, tmp_path, ranks=(0, 1, 2))).suspects
    assert (first.ranks, first.members) == ((3,), "each")
