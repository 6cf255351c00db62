"""What held up the first call behind a turn may be of the pass before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from forensics.rules.reductions.pipeline.call_places import CallPlace
from forensics.rules.reductions.pipeline.delay import Delay
from forensics.rules.reductions.pipeline.passes import BACKWARD, FORWARD
from forensics.rules.reductions.pipeline.turns import of_either

LATE = Delay(7, 1.0, (1,), "tp", 7, "all_reduce", 0, (0, 0), 1.0)
PLACE = CallPlace("backward", microbatch=3, stage=3, in_pass=True)


def placed(at: int, before: tuple[int, int], *, is_message: bool = False) -> tuple[str | None, int | None]:
    """Of a call of the backward pass of microbatch 3, behind one of a direction and number."""
    record = SimpleNamespace(issued=lambda communicator, sequence: at, is_message=np.array([is_message, False]))
    passes = SimpleNamespace(direction=np.array([before[0], BACKWARD]), ordinal=np.array([before[1], 3]))
    places = SimpleNamespace(steps=lambda rank: SimpleNamespace(record=record, passes=passes))
    found = of_either(cast("Any", places), LATE, PLACE)
    return found.direction, found.microbatch


@pytest.mark.parametrize(
    ("at", "before", "is_message", "said"),
    [
        (1, (FORWARD, 3), False, (None, 3)),
        (1, (FORWARD, 4), False, (None, None)),
        (1, (BACKWARD, 3), False, ("backward", 3)),
        (1, (FORWARD, 3), True, ("backward", 3)),
        (0, (FORWARD, 3), False, ("backward", 3)),
    ],
    ids=["a turn", "of another microbatch", "amid a pass", "a message opens it", "the first call"],
)
def test_the_first_call_behind_a_turn_is_of_either_pass(
    at: int, before: tuple[int, int], is_message: bool, said: tuple[str | None, int | None]
) -> None:
    assert placed(at, before, is_message=is_message) == said
