"""What is added to a slow suspect: the pass of the transfer that is slow, and how few cores a slow host has."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import create_autospec

import numpy as np
import pytest

from forensics.case.database import new_case
from forensics.model import Anomaly, Cause, Component, Confidence, Granularity, Members, StageName, StageRef, Suspect
from forensics.rules.arbitration import Judgement
from forensics.rules.engine import supply_of
from forensics.rules.located import located
from forensics.rules.reductions.calls.positions import Communicator, Communicators
from forensics.rules.reductions.hardware.allowed_cores import Allowed, AllowedCores
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.delay import Delay
from forensics.rules.reductions.pipeline.layout import AxisOf, Layout
from forensics.rules.slow.step_delayed import _may_be_earlier

RANKS = (0, 1, 2, 3)
TRANSFER = StageRef(component=Component.COMMUNICATION, operation="all_reduce", communicator="dp")
PINNED = AllowedCores({rank: Allowed(1 if rank == 2 else 12, f"{rank}.json") for rank in RANKS})
GROUPS = Communicators((Communicator("dp", RANKS, "read", {}),))
SLOW = Suspect(
    fault=1, ranks=(), members=Members.EACH, hosts=(), granularity=Granularity.JOB, resource=None, anomaly=Anomaly.FAIL_SLOW,
    stage=TRANSFER, cause=Cause.NETWORK_SLOW, mechanism=None, impact=None, since=None, confidence=Confidence.SUSPECT,
    rules=("FX175",), evidence=(), next_steps=(),
)  # fmt: skip


def placed(suspect: Suspect, axis: Axis = Axis.DATA) -> Suspect:
    """The suspect of a job whose ranks reduce over one communicator, which is of this axis."""
    layout = Layout({"dp": AxisOf(axis, "calls", "inferred")}, {"dp": RANKS})
    given: dict[object, object] = {
        Judgement: Judgement((suspect,), (), ()), Communicators: GROUPS, Layout: layout, AllowedCores: PINNED,
    }  # fmt: skip
    return supply_of(new_case(), None, given).call(located)[0]


@pytest.mark.parametrize(
    ("stage", "axis", "expected"),
    [
        (TRANSFER, Axis.DATA, StageName.BACKWARD),
        (replace(TRANSFER, operation="reduce_scatter_tensor"), Axis.DATA, StageName.BACKWARD),
        (replace(TRANSFER, operation="all_gather_into_tensor"), Axis.DATA, StageName.UNKNOWN),
        (TRANSFER, Axis.TENSOR, StageName.UNKNOWN),
        (replace(TRANSFER, component=Component.COMPUTE), Axis.DATA, StageName.UNKNOWN),
        (replace(TRANSFER, name=StageName.OPTIMIZER), Axis.DATA, StageName.OPTIMIZER),
    ],
    ids=["gradients", "their shards", "parameters", "inside a layer", "a late device", "told otherwise"],
)
def test_a_slow_reduction_of_gradients_is_of_the_backward_pass(stage: StageRef, axis: Axis, expected: StageName) -> None:
    assert placed(replace(SLOW, stage=stage), axis).stage.name is expected


@pytest.mark.parametrize(
    ("ranks", "members", "stage", "is_said"),
    [
        ((2,), Members.EACH, StageRef(), True),
        ((1,), Members.EACH, StageRef(), False),
        ((2, 3), Members.ONE_OF, StageRef(), False),
        ((2,), Members.EACH, TRANSFER, False),
    ],
    ids=["pinned", "as the others", "one of two", "its network"],
)
def test_few_cores_stand_beside_a_rank_that_is_slow_by_what_it_works(
    ranks: tuple[int, ...], members: Members, stage: StageRef, is_said: bool
) -> None:
    found = placed(replace(SLOW, ranks=ranks, members=members, stage=stage, cause=Cause.HOST_STALL))
    said = ["rank 2 may run on 1 core (Cpus_allowed_list), the others on 12"] if is_said else []
    assert [each.statement for each in found.evidence] == said
    assert found.next_steps == (("give rank 2 the cores that the others have, and see who is late then",) if is_said else ())
    assert found.cause is Cause.HOST_STALL


@pytest.mark.parametrize(
    ("at", "on_host", "direction", "expected"),
    [
        (20, False, "backward", True),
        (21, False, "backward", False),
        (20, True, "backward", False),
        (20, False, "forward", False),
    ],
    ids=["the first call", "a later one", "its host", "forward has calls"],
)
def test_a_device_late_to_the_first_call_of_a_step_may_have_computed_longer_in_forward(
    at: int, on_host: bool, direction: str, expected: bool
) -> None:
    """Without a call in forward, as with DDP, gradients are the first that a step shows."""
    delay = Delay(3, 1e8, (1,), "dp", 9, "all_reduce", 0, (0, 0), 1e8, on_host=on_host)
    places = create_autospec(CallPlaces, instance=True)
    own = places.steps.return_value
    own.begins, own.record.issued.return_value = np.array([10, 20, 30]), at
    assert _may_be_earlier(delay, CallPlace(direction, 0, in_pass=True), places) is expected
