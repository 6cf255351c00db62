"""The training stage of an operation, from where it was called and whom it passes data to: hosts run ahead of devices."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from forensics.model import StageName
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.stacks.call_paths import CallPaths
from forensics.rules.reductions.stacks.recorded_stages import stage_of_path
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.waits.graph import Wait

_PIPELINE = re.compile(r"pipe|(?:^|[^a-z])pp(?:[^a-z]|$)", re.IGNORECASE)


@reduction
@dataclass(frozen=True, slots=True)
class CallStages:
    """What tells the stage of a call: where it was made, who is in its communicator, and where the hosts are."""

    paths: CallPaths
    groups: Communicators
    stacks: StacksByRank

    def of_wait(self, wait: Wait, ranks: Collection[int]) -> StageName:
        """The one stage in which these ranks made the call they are in; unknown when they differ or nothing tells."""
        calls = [call.call_path for rank, call in sorted(wait.waiting.items()) if call is not None and rank in ranks]
        passed = StageName.UNKNOWN if self._stages(calls) - {StageName.UNKNOWN} else self._passed_on(wait)
        return self.agreed(calls, ranks) if passed is StageName.UNKNOWN else passed

    def agreed(self, calls: Iterable[int | None], ranks: Collection[int]) -> StageName:
        """The one stage of some call paths; where none is recorded, of the places of the hosts, which run ahead of devices."""
        places = (found.stage for rank in ranks if (found := activity_of(self.stacks, rank)))
        stages = (self._stages(calls) or set(places)) - {StageName.UNKNOWN}
        return stages.pop() if len(stages) == 1 else StageName.UNKNOWN

    def _stages(self, calls: Iterable[int | None]) -> set[StageName]:
        return {stage_of_path(self.paths[call]) for call in calls if call is not None and call in self.paths}

    def _passed_on(self, wait: Wait) -> StageName:
        """Along a pipeline activations go up and gradients come down; round its end they go on in the same direction."""
        group = next((group for group in self.groups if group.label == wait.communicator), None)
        if not wait.peers or group is None or not _PIPELINE.search(group.label) or not set(wait.peers) <= set(group.members):
            return StageName.UNKNOWN
        sender, receiver = (group.members.index(rank) for rank in wait.peers)
        count = len(group.members)
        if count == 2:
            return StageName.FORWARD if sender < receiver else StageName.BACKWARD
        steps = {1: StageName.FORWARD, count - 1: StageName.BACKWARD}
        return steps.get((receiver - sender) % count, StageName.UNKNOWN)
