"""Forward and backward work of the first and the last stage of a pipeline of which no call path is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import pytest

from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.passes import BACKWARD, FORWARD, NEITHER
from forensics.rules.reductions.steps.records import Recorded
from tests.unit.pipeline.made_up_calls import Call, case

STAGES, MICROBATCHES, STEPS = 3, 4, 3
GROUPS = {"pp": (0, 1, 2), **{f"tp{rank}": (rank, 10 + rank) for rank in range(STAGES)}, "world": (0, 1, 2, 10, 11, 12)}
LAYER, LOSS, HEAD = 4096, 64, 128
Work = tuple[Sequence[int], Sequence[int]]
"""Elements of the collectives of a forward pass, and of a backward one."""


def step(
    stage: int, work: Work, batches: Iterator[int], *, joined: bool, microbatches: int = MICROBATCHES
) -> Iterator[tuple[Call, int]]:
    """One step of 1F1B, each call with its direction; where `joined`, a receive and the send before it are one group call."""
    warm = STAGES - stage - 1
    turns = [FORWARD] * warm + [FORWARD, BACKWARD] * (microbatches - warm) + [BACKWARD] * warm
    parts: list[tuple[list[tuple[Call, int]], list[tuple[Call, int]], list[tuple[Call, int]]]] = []
    for direction in turns:
        source, target = (stage - 1, stage + 1) if direction == FORWARD else (stage + 1, stage - 1)
        received = [(Call("pp", "recv", LAYER, source), direction)] if 0 <= source < STAGES else []
        sent = [(Call("pp", "send", LAYER, target), direction)] if 0 <= target < STAGES else []
        calls = [(Call(f"tp{stage}", "all_reduce", size), direction) for size in work[direction == BACKWARD]]
        parts.append((received, calls, sent))
    for number, (received, calls, sent) in enumerate(parts):
        yield from received if number == 0 or not joined else ()
        yield from calls
        following = parts[number + 1][0] if number + 1 < len(parts) and joined else []
        batch = next(batches) if sent and following else None
        yield from ((call._replace(batch=batch), direction) for call, direction in (*following, *sent))
    yield Call("world", "all_reduce", 1), NEITHER


def directions(
    works: Sequence[Work], stage: int, *, joined: bool = False, cut: int = 0, steps: int = STEPS
) -> tuple[list[int], list[int]]:
    """The directions of the collectives of passes that a stage shows in its last step, and the true ones."""
    program, true = {}, {}
    for rank, work in enumerate(works):
        batches = count(rank * 1000)
        made = [pair for _ in range(steps) for pair in step(rank, work, batches, joined=joined)]
        made = made[: len(made) - cut] if steps == 1 else made
        program[rank], true[rank] = [call for call, _ in made], [direction for _, direction in made]
    connection = case(GROUPS, program, first=0)
    own = CallPlaces(connection, Recorded(connection)).steps(stage)
    assert own is not None and own.passes is not None
    last = int(own.begins[-1] if own.begins[-1] < len(own.record) else own.begins[-2])
    wanted = np.flatnonzero(~own.record.is_message & (own.record.members < len(GROUPS["world"])))
    wanted = wanted[wanted >= last]
    return own.passes.direction[wanted].tolist(), [true[stage][at] for at in wanted.tolist()]


ALIKE: Work = ([LAYER] * 4, [LAYER] * 4)
LASTS: dict[str, tuple[Work, Work, float]] = {
    "as many layers": (ALIKE, ALIKE, 1.0),
    "a loss at the turn": (ALIKE, ([LAYER] * 4 + [LOSS], [LAYER] * 4), 8 / 9),
    "fewer layers": (ALIKE, ([LAYER] * 3, [LAYER] * 3), 4 / 6),
    "more layers": (ALIKE, ([LAYER] * 6, [LAYER] * 6), 8 / 12),
    "recomputed before, not in the last": (([LAYER] * 4, [LAYER] * 8), ALIKE, 4 / 8),
    "recomputed in the last, not before": (ALIKE, ([LAYER] * 4, [LAYER] * 8), 8 / 12),
    "a layer less, hidden by calls of the loss": (ALIKE, ([LAYER] * 3 + [LOSS], [HEAD] + [LAYER] * 3), 0.0),
}


@pytest.mark.parametrize("name", LASTS)
def test_the_turn_of_a_last_stage_lies_where_both_its_work_and_that_of_the_stage_before_put_it(name: str) -> None:
    before, last, share = LASTS[name]
    for joined in (False, True):
        found, true = directions([before, before, last], 2, joined=joined)
        assert not [direction for direction, is_so in zip(found, true, strict=True) if direction not in (is_so, NEITHER)]
        assert np.mean([direction != NEITHER for direction in found]) == pytest.approx(share)


@pytest.mark.parametrize("joined", [False, True])
def test_the_first_stage_counts_forward_work_while_the_pipeline_fills(joined: bool) -> None:
    found, true = directions([([LOSS] + [LAYER] * 4, [LAYER] * 6), ALIKE, ALIKE], 0, joined=joined)
    assert found == true


@pytest.mark.parametrize("stage", [0, 2])
def test_the_first_step_of_a_job_is_read_alike(stage: int) -> None:
    found, true = directions([ALIKE] * 3, stage, steps=1, cut=8)
    assert found == true


def test_behind_a_message_that_may_end_a_step_nothing_is_known() -> None:
    """The first stage has all gradients back: it may work on the last one, or on a step that nothing has opened."""
    found, _ = directions([ALIKE] * 3, 0, steps=1, cut=3)
    assert set(found) == {NEITHER}


def test_passes_beyond_those_of_a_usual_step_have_no_number() -> None:
    """Batches that grow have more microbatches than any step before."""
    calls = [call for size in (*[4] * 6, 6) for call, _ in step(1, ALIKE, count(), joined=False, microbatches=size)]
    connection = case(GROUPS, {1: calls}, first=0)
    own = CallPlaces(connection, Recorded(connection)).steps(1)
    assert own is not None and own.passes is not None
    begin = int(own.begins[-2])
    sent = begin + np.flatnonzero(own.record.is_send[begin:] & (own.passes.direction[begin:] == FORWARD))
    assert own.passes.ordinal[sent].tolist() == [0, 1, 2, 3, -1, -1]
