"""What held up the first call behind a turn may be of the pass before it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.delay import Delay
from forensics.rules.reductions.pipeline.passes import BACKWARD, FORWARD
from forensics.rules.reductions.pipeline.turns import of_either, of_two_passes

LATE = Delay(7, 1.0, (1,), "tp", 7, "all_reduce", 0, (0, 0), 1.0)
PLACE = CallPlace("backward", microbatch=3, stage=3, in_pass=True)


def placed(
    at: int, before: tuple[int, int], *, between: str = "", in_turn: bool = False, lasts_ns: int = 5
) -> tuple[str | None, int | None]:
    """Of a call of the backward pass of microbatch 3, behind one of a direction and number, with a message `between`.

    The host makes a call every 3 ns, each of which `lasts_ns`.
    """
    last = 1 + bool(between)
    is_message = np.array([False, *[True] * bool(between), False])
    made = np.arange(last + 1) * 3
    record = SimpleNamespace(
        issued=lambda communicator, sequence: at * last, is_message=is_message, is_send=is_message & (between == "sent"),
        enqueued_ns=made, end_ns=made + lasts_ns,
    )  # fmt: skip
    directions, numbers = [before[0], *[BACKWARD] * last], [before[1], *[3] * last]
    passes = SimpleNamespace(direction=np.array(directions), ordinal=np.array(numbers))
    places = SimpleNamespace(steps=lambda rank: SimpleNamespace(record=record, passes=passes))
    found = of_either(cast("Any", places), LATE, PLACE, in_turn=in_turn)
    return found.direction, found.microbatch


@pytest.mark.parametrize(
    ("at", "before", "between", "said"),
    [
        (1, (FORWARD, 3), "", (None, 3)),
        (1, (FORWARD, 4), "", (None, None)),
        (1, (BACKWARD, 3), "", ("backward", 3)),
        (1, (BACKWARD, 2), "", ("backward", None)),
        (1, (FORWARD, 3), "sent", ("backward", 3)),
        (1, (BACKWARD, 2), "sent", ("backward", 3)),
        (1, (BACKWARD, 2), "received", ("backward", None)),
        (1, (FORWARD, 5), "received", (None, None)),
        (0, (FORWARD, 3), "", ("backward", 3)),
    ],
    ids=[
        "a turn", "of another microbatch", "amid a pass", "two passes", "a message closes the one before",
        "of one direction too", "a message came meanwhile", "behind a forward pass", "the first call",
    ],
)  # fmt: skip
def test_the_first_call_behind_a_turn_is_of_either_pass(
    at: int, before: tuple[int, int], between: str, said: tuple[str | None, int | None]
) -> None:
    assert placed(at, before, between=between) == said


def test_a_receive_that_is_called_in_turn_would_have_been_late_before() -> None:
    assert placed(1, (BACKWARD, 2), between="received", in_turn=True) == ("backward", 3)
    assert placed(1, (FORWARD, 3), in_turn=True) == (None, 3)


def test_a_host_that_waits_for_the_message_behind_one_pass_is_late_in_the_next() -> None:
    assert placed(1, (BACKWARD, 2), between="received", lasts_ns=2) == ("backward", 3)
    assert placed(1, (FORWARD, 3), lasts_ns=2) == (None, 3), "no message is between them"


def test_what_is_said_of_two_passes() -> None:
    (of_one,) = of_two_passes(PLACE, replace(PLACE, microbatch=None))
    (of_both,) = of_two_passes(PLACE, replace(PLACE, direction=None))
    assert (
        "the end of the backward pass before" in of_one.statement and "the end of the forward pass counts" in of_both.statement
    )
    assert not list(of_two_passes(PLACE, PLACE))
