"""The training stage of an operation, from where it was called and whom it passes data to: hosts run ahead of devices."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from forensics.model import StageName
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.stacks.recorded_stages import stage_of_path
from forensics.rules.reductions.waits.graph import Wait

_PIPELINE = re.compile(r"pipe|(?:^|[^a-z])pp(?:[^a-z]|$)", re.IGNORECASE)


def call_stage(job: Job, wait: Wait, ranks: Collection[int]) -> StageName:
    """The one stage in which these ranks made the call they are in; unknown when they differ or nothing tells."""
    calls = [call.call_path for rank, call in sorted(wait.waiting.items()) if call is not None and rank in ranks]
    stages = _stages(job, calls)
    passed = StageName.UNKNOWN if stages - {StageName.UNKNOWN} else _passed_on(job, wait)
    return agreed_stage(job, calls, ranks) if passed is StageName.UNKNOWN else passed


def agreed_stage(job: Job, calls: Iterable[int | None], ranks: Collection[int]) -> StageName:
    """The one stage of some call paths; where none is recorded, of the places of the hosts, which run ahead of devices."""
    places = (found.stage for rank in ranks if (found := job.activity(rank)))
    stages = (_stages(job, calls) or set(places)) - {StageName.UNKNOWN}
    return stages.pop() if len(stages) == 1 else StageName.UNKNOWN


def _stages(job: Job, calls: Iterable[int | None]) -> set[StageName]:
    return {stage_of_path(job.paths[call]) for call in calls if call is not None and call in job.paths}


def _passed_on(job: Job, wait: Wait) -> StageName:
    """Along a pipeline activations go up and gradients come down; round its end they go on in the same direction."""
    group = next((group for group in job.groups if group.label == wait.communicator), None)
    if not wait.peers or group is None or not _PIPELINE.search(group.label) or not set(wait.peers) <= set(group.members):
        return StageName.UNKNOWN
    sender, receiver = (group.members.index(rank) for rank in wait.peers)
    count = len(group.members)
    if count == 2:
        return StageName.FORWARD if sender < receiver else StageName.BACKWARD
    steps = {1: StageName.FORWARD, count - 1: StageName.BACKWARD}
    return steps.get((receiver - sender) % count, StageName.UNKNOWN)
