"""Steps in the full ring of a pipeline whose ranks meet nobody else: no call of all ranks ends one."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.emptied import emptied_begins
from forensics.rules.reductions.pipeline.passes import FORWARD
from forensics.rules.reductions.steps.records import Recorded, records
from tests.unit.pipeline.made_up_calls import Call, case
from tests.unit.pipeline.test_end_stages import ALIKE, GROUPS, Work, step

Made = list[tuple[Call, int, int]]
"""Calls with direction and microbatch."""


def program(stage: int, work: Work, *, joined: bool, steps: int = 4) -> Made:
    batches, found = count(stage * 1000), list[tuple[Call, int, int]]()
    for _ in range(steps):
        seen: Counter[tuple[str, int, int]] = Counter()
        for call, direction in list(step(stage, work, batches, joined=joined))[:-1]:
            key = (call.kind, direction, call.elements)
            found.append((call, direction, seen[key]))
            seen[key] += 1
    return found


@pytest.mark.parametrize("work", [([], []), ALIKE], ids=["messages alone", "layers of two ranks"])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("cut", [2, 9])
def test_steps_end_where_nothing_is_under_way(cut: int, joined: bool, work: Work) -> None:
    made = {stage: program(stage, work, joined=joined)[cut:] for stage in range(3)}
    connection = case(GROUPS, {rank: [call for call, *_ in calls] for rank, calls in made.items()})
    places = CallPlaces(connection, Recorded(connection))
    for rank in (0, 1):
        own = places.steps(rank)
        assert own is not None and len(own.begins) >= 2
        for at in range(int(own.begins[0]), len(own.record)):
            call, direction, microbatch = made[rank][at]
            if call.kind in ("send", "recv"):
                found = places.pass_at(rank, at)
                assert found is not None
                assert (found.direction, found.microbatch) == ("forward" if direction == FORWARD else "backward", microbatch)


def test_the_steady_part_of_a_long_step_and_passes_of_one_direction_at_once_show_no_end() -> None:
    steady = [Call("pp", kind, 4096, 1) for _ in range(20) for kind in ("send", "recv")]
    at_once = [Call("pp", kind, 4096, 1) for _ in range(4) for kind in ["send"] * 5 + ["recv"] * 5]
    for calls in (steady, at_once):
        connection = case(GROUPS, {0: calls})
        assert not len(emptied_begins(records(connection, [0])[0]))
