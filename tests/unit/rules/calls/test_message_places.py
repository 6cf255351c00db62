"""The pass of a message that stopped, whichever of its two ends is named for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import create_autospec

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.model import (
    Anomaly,
    Cause,
    Component,
    Confidence,
    Granularity,
    Members,
    Resource,
    StageName,
    StageRef,
    Suspect,
)
from forensics.rules.arbitration import Judgement
from forensics.rules.engine import supply_of
from forensics.rules.located import _filled, _stage, located
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from tests.recordings.collection import loose
from tests.recordings.job import Job

MICROBATCHES = 4


def stopped(direction: str) -> Job:
    """A pipeline of two ranks, whose message of microbatch 2 there, or back, does not arrive in the fourth step."""
    job = Job(2, "nccl")
    pair = job.group(range(2), "pp")
    for number in range(3 * MICROBATCHES + 3):
        for sender in (0, 1):
            is_last = number == 3 * MICROBATCHES + 2 and sender == (direction == "backward")
            job.call(pair, f"send {sender}->{1 - sender}", [sender], done=not is_last)
            job.call(pair, f"recv {1 - sender}<-{sender}", [1 - sender], done=not is_last)
            if is_last:
                return job
        if number % MICROBATCHES == MICROBATCHES - 1:
            job.steps(1)
    return job


def suspect_of(rank: int, stage: StageRef) -> Suspect:
    return Suspect(
        fault=1, ranks=(rank,), members=Members.EACH, hosts=(), granularity=Granularity.RANK, resource=None,
        anomaly=Anomaly.FAIL_STOP, stage=stage, cause=Cause.UNKNOWN, mechanism=None, impact=None, since=None,
        confidence=Confidence.SUSPECT, rules=("FX143",), evidence=(), next_steps=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("direction", "rank", "peer"),
    [("forward", 0, 1), ("forward", 1, 0), ("forward", 1, 1), ("backward", 0, 1), ("backward", 1, 0), ("backward", 0, 0)],
)
def test_a_message_is_of_its_pass_whichever_end_is_named(direction: str, rank: int, peer: int, tmp_path: Path) -> None:
    """Also where its own NIC is named, as the other end of what a peer sends."""
    stage = StageRef(component=Component.COMMUNICATION, operation="send")
    suspect = replace(suspect_of(rank, stage), resource=Resource(peer_ranks=(peer,)))
    with open_case([loose(stopped(direction), tmp_path)]) as connection:
        found = supply_of(connection, None, {Judgement: Judgement((suspect,), (), ())}).call(located)[0].stage
    assert (found.name, found.direction, found.microbatch) == (StageName(direction), direction, 2)


@pytest.mark.parametrize(
    ("name", "opens", "direction"), [("unknown", True, None), ("unknown", False, "forward"), ("forward", True, "forward")]
)
def test_before_the_call_that_opens_a_step_a_rank_may_load_data(name: str, opens: bool, direction: str | None) -> None:
    """Without a stage of its own it has no direction either."""
    found = _filled(StageRef(name=StageName(name)), (CallPlace("forward", 0, None, 0, opens=opens),))
    assert (found.direction, found.microbatch) == (direction, 0)
    assert found.name is (StageName.UNKNOWN if direction is None else StageName.FORWARD)


@pytest.mark.parametrize(
    ("cause", "done", "microbatch"),
    [(Cause.PROCESS_DEAD, (True, False), 2), (Cause.PROCESS_DEAD, (False, False), None), (Cause.HOST_STALL, (False, False), 2)],
)
def test_how_far_a_process_came_that_ended_is_not_seen_where_hosts_run_ahead(
    cause: Cause, done: tuple[bool, ...], microbatch: int | None
) -> None:
    """Rank 0 waits for rank 1, which left no record. The device of a host that stands still comes to all that it launched."""
    places = create_autospec(CallPlaces, instance=True)
    places.of_stop.return_value = None
    places.of_call.side_effect = lambda rank, *_: CallPlace("forward", 2, None, 0) if rank == 0 else None
    places.has.side_effect = lambda rank, _: rank == 0
    places.steps.return_value.record.done = np.array(done)
    stage = StageRef(StageName.FORWARD, operation="all_reduce", communicator="tp", sequence=9)
    found = _stage(replace(suspect_of(1, stage), cause=cause), places, {"tp": (0, 1)})
    assert (found.microbatch, found.pipeline_stage) == (microbatch, 0)
