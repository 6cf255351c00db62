"""The stage of a slow transfer that is of no pass, as its call path tells: gradients behind all passes, updated parameters."""

from __future__ import annotations

from dataclasses import replace

from forensics.model import StageName, StageRef
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.delay import Delay
from forensics.rules.reductions.stacks.call_paths import call_paths
from forensics.rules.reductions.stacks.recorded_stages import stage_of_path
from forensics.rules.reductions.steps.records import UNKNOWN


def with_stage_of_path(places: CallPlaces, delay: Delay, stage: StageRef) -> StageRef:
    """The stage of a transfer, with the name that all members' call paths agree on where none is known.

    Of a rank that comes late its call shows no stage: what it did before may be of another one.
    """
    if not delay.is_transfer or stage.name is not StageName.UNKNOWN:
        return stage
    own = [steps for rank in delay.ranks if (steps := places.steps(rank)) is not None]
    calls = [(steps.record, steps.record.issued(delay.communicator, delay.sequence)) for steps in own]
    paths = {int(record.call_path[at]) for record, at in calls if at is not None} - {UNKNOWN}
    names = {stage_of_path(path) for path in call_paths(places.connection, paths).values()}
    return replace(stage, name=names.pop()) if len(names) == 1 else stage
