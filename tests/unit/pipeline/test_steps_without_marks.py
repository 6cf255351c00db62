"""Steps of jobs in which nothing recurs once a step: buckets of one size, gradients of every layer."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.rules.reductions.steps.begins import step_begins
from forensics.rules.reductions.steps.records import records
from tests.unit.pipeline.made_up_calls import Call, case

GROUPS = {"all": (0, 1, 2, 3)}
BUCKET, GATHER, SCATTER = Call("all", "all_reduce"), Call("all", "_all_gather_base"), Call("all", "_reduce_scatter_base")
BARRIER = Call("all", "all_reduce_barrier", 1)
SHARDED = [*[GATHER] * 5, *[SCATTER, GATHER] * 4, SCATTER]
STEPS, MS = 9, 1_000_000


def lengths(program: list[Call], pauses_ms: list[int]) -> list[int]:
    """Calls of each step of a job whose host pauses so many ms before each call of its program, with some jitter."""
    connection = case(GROUPS, dict.fromkeys(range(4), program))
    jitter = np.random.default_rng(7).integers(-2, 3, len(program))
    for place, at in enumerate(np.cumsum(np.array(pauses_ms) + jitter).tolist()):
        connection.execute("UPDATE operations SET enqueued_ns = ? WHERE locator = ?", [at * MS, place])
    return list(np.diff(step_begins(records(connection)[0])).tolist())


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_buckets_of_one_size_are_distinguished_by_the_pause_of_the_forward_pass(cut: int) -> None:
    """Wherever the record begins; now and then the host is held up amid a step."""
    pauses = [200, 15, 15, 15] * STEPS
    pauses[13] += 90
    assert set(lengths([BUCKET] * (4 * STEPS - cut), pauses[cut:])) == {4}


def test_a_barrier_in_each_step_is_no_other_pause() -> None:
    assert set(lengths([BUCKET, BUCKET, BARRIER] * STEPS, [150, 15, 60] * STEPS)) == {3}


def test_one_bucket_a_step_is_a_step_each() -> None:
    """Logging every few steps takes less than the step."""
    pauses = [200, 200, 290] * STEPS
    assert set(lengths([BUCKET] * len(pauses), pauses)) == {1}


def test_the_gathers_of_the_forward_pass_tell_sharded_steps_apart() -> None:
    program = SHARDED * STEPS
    assert set(lengths(program[3:], [20] * len(program[3:]))) == {len(SHARDED)}


def test_evaluation_every_few_steps_leaves_the_steps_as_they_are() -> None:
    """Here something recurs once a step, the loss, and a step has calls of several layers."""
    step = [GATHER, SCATTER, GATHER, SCATTER, Call("all", "all_reduce", 1)]
    program = [call for number in range(24) for call in (*[GATHER] * (12 * (number % 8 == 7)), *step)]
    assert set(lengths(program, [20] * len(program))) == {5, 17}


@pytest.mark.parametrize(("odd", "steps"), [([SCATTER], {8}), ([GATHER, GATHER], {17})], ids=["replaced", "one more"])
def test_a_step_that_stands_still_at_one_other_call_is_a_step(odd: list[Call], steps: set[int]) -> None:
    """One call more may as well be what only every second part of a step ends with."""
    loss = Call("all", "all_reduce", 1)
    program = [*[GATHER] * 3, loss, *[GATHER] * 7, loss, *[GATHER] * 3, *odd, *[GATHER] * 3, loss]
    assert set(lengths(program, [20] * len(program))) == steps


def routed(steps: int, layers: int, sizes: list[int], head: int = 0) -> list[Call]:
    """Steps of a model of experts: tokens go out in buffers of one size and come back in sizes that data decides."""
    out, back = Call("all", "all_to_all", 4096), iter(sizes)
    passes = [
        [call for _ in range(2 * layers) for call in (BUCKET, out, Call("all", "all_to_all", next(back)))] for _ in range(steps)
    ]
    return [call for each in passes for call in (*each, Call("all", "all_reduce", 1))][head:]


@pytest.mark.parametrize("head", [0, 5])
@pytest.mark.parametrize("chosen", [40, 4000], ids=["sizes that recur by chance", "sizes of which few recur"])
def test_sizes_that_data_decides_make_no_steps(chosen: int, head: int) -> None:
    sizes = (5000 + np.random.default_rng(3).integers(0, chosen, 8 * STEPS)).tolist()
    program = routed(STEPS, 4, sizes, head)
    assert set(lengths(program, [20] * len(program))) == {25}


@pytest.mark.parametrize("steps", [2, STEPS])
def test_sizes_of_layers_that_recur_in_each_step_tell_them_apart(steps: int) -> None:
    """Nothing else recurs once a step."""
    step = [Call("all", "all_to_all", 100 + layer) for layer in range(8)]
    assert set(lengths(step * steps + step[:3], [20] * (8 * steps + 3))) == {8}


LOSS = Call("all", "all_reduce", 1)


def test_a_batch_that_grows_makes_longer_steps() -> None:
    """Two steps of it look like one that ends with two losses."""
    program = [call for batches in (4, 5, 6) for call in (*[GATHER, SCATTER] * batches, LOSS)]
    assert lengths(program, [20] * len(program)) == [11, 13]


def test_a_batch_that_grows_now_and_then_makes_steps_of_its_lengths() -> None:
    batches = (4, 5, 5, 6, 6, 7, 8, 8)
    program = [call for count in batches for call in (*[GATHER, SCATTER] * count, LOSS)]
    assert lengths(program, [20] * len(program)) == [2 * count + 1 for count in batches[1:]]
    shrinks = [call for count in (4, 6, 5, 7, 6, 8) for call in (*[GATHER, SCATTER] * count, LOSS)]
    assert lengths(shrinks, [20] * len(shrinks)) != [13, 11, 15, 13, 17]


@pytest.mark.parametrize(
    ("step", "times", "found"),
    [([GATHER, LOSS, GATHER, GATHER, LOSS], 3, {5}), ([GATHER, LOSS, GATHER, SCATTER, LOSS], 2, {5})],
    ids=["it comes again", "another part has other calls"],
)
def test_a_step_with_two_losses_is_none_that_grows(step: list[Call], times: int, found: set[int]) -> None:
    assert set(lengths(step * times, [20] * len(step) * times)) == found
