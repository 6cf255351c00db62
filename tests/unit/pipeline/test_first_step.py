"""Places in a step of which no whole one is recorded: jobs that hang in their first one, and steps of different lengths."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from forensics.case.build import open_case
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Parallelism, TrainingJob
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.steps.records import Recorded
from tests.recordings.collection import loose
from tests.recordings.job import Job
from tests.recordings.verdicts import verdict_of
from tests.unit.pipeline.simulated import case_of
from tests.unit.pipeline.test_call_places import JOBS

slow = pytest.mark.slow
SCENARIO = Path(__file__).parents[3] / "fixtures/scenarios/pipeline-pass-stuck/bundle.tar.zst"


def hung(job: TrainingJob, rank: int, phase: str, onset: int) -> Simulation:
    """A job whose run is all that it ever did."""
    made = simulate(job, [parse(f"host-hang@rank{rank}/{phase}")], 11 + rank, iterations=onset + 2, onset=onset)
    return replace(made, first_step=0, job=replace(made.job, first_step=0))


def found_and_true(made: Simulation, rank: int, phase: str, folder: Path) -> tuple[CallPlace | None, CallPlace]:
    position = made.injections[0].position
    assert position is not None
    with case_of(made, folder) as connection:
        found = CallPlaces(connection, Recorded(connection)).of_stop(rank, phase)
    return found, CallPlace(phase, position.op.microbatch, stage=made.job.parallel.stage_of(rank)[0])


@pytest.mark.parametrize("name", ["1F1B", pytest.param("GPipe", marks=slow), pytest.param("sequence parallel", marks=slow)])
@pytest.mark.parametrize(
    ("rank", "phase"), [(5, "forward"), (5, "backward"), (15, "forward"), (15, "backward"), (0, "backward")]
)
def test_messages_count_microbatches_in_the_first_step_of_a_job(name: str, rank: int, phase: str, tmp_path: Path) -> None:
    found, true = found_and_true(hung(JOBS[name], rank, phase, 0), rank, phase, tmp_path)
    assert found is not None
    assert (found.direction, found.microbatch, found.stage) == (true.direction, true.microbatch, true.stage)


@pytest.mark.parametrize(
    ("rank", "phase"),
    [(5, "forward"), (5, "backward"), pytest.param(0, "forward", marks=slow), pytest.param(15, "backward", marks=slow)],
)
def test_the_second_step_of_a_job_begins_as_the_first_one_did(rank: int, phase: str, tmp_path: Path) -> None:
    """All buckets of gradients that were reduced so far are of one step, and no message lies between them."""
    found, true = found_and_true(hung(JOBS["1F1B"], rank, phase, 1), rank, phase, tmp_path)
    assert found is not None
    assert (found.direction, found.microbatch, found.stage) == (true.direction, true.microbatch, true.stage)


@pytest.mark.parametrize(("rank", "phase"), [(13, "forward"), pytest.param(6, "backward", marks=slow)])
def test_layers_of_the_largest_group_end_no_steps(rank: int, phase: str, tmp_path: Path) -> None:
    job = replace(JOBS["1F1B"], parallel=Parallelism(tensor=4, pipeline=4, data=1))
    found, true = found_and_true(hung(job, rank, phase, 0), rank, phase, tmp_path)
    assert found is not None
    assert (found.direction, found.microbatch, found.stage) == (true.direction, true.microbatch, true.stage)


def messages_and_steps(steps: int, *, sends_first: bool, buckets: int) -> Job:
    """Two ranks that exchange messages and then reduce gradients as large as a message, step by step."""
    job = Job(2, "nccl")
    pair = job.group(range(2), "pp")
    for _ in range(steps):
        for sender in (0, 1) if sends_first else (1, 0):
            job.call(pair, f"send {sender}->{1 - sender}", [sender])
            job.call(pair, f"recv {1 - sender}<-{sender}", [1 - sender])
        job.steps(buckets)
    return job


@pytest.mark.parametrize(("steps", "buckets"), [(5, 1), (4, 6), (2, 6)])
@pytest.mark.parametrize("sends_first", [True, False])
def test_gradients_of_the_size_of_a_message_end_steps_all_the_same(
    steps: int, buckets: int, sends_first: bool, tmp_path: Path
) -> None:
    job = messages_and_steps(steps, sends_first=sends_first, buckets=buckets)
    with open_case([loose(job, tmp_path)]) as connection:
        places = CallPlaces(connection, Recorded(connection))
        found = [places.pass_at(rank, at) for rank in (0, 1) for at in range(len(job.calls[rank]))]
    assert {place.microbatch for place in found if place} == {None}


@pytest.mark.parametrize(
    "name", [pytest.param("interleaved", marks=slow), "two stages, interleaved", pytest.param("two stages", marks=slow)]
)
@pytest.mark.parametrize(
    ("rank", "phase"), [(0, "forward"), (0, "backward"), (5, "backward"), (15, "forward"), (15, "backward")]
)
def test_chunks_that_may_have_come_round_have_no_wrong_number(name: str, rank: int, phase: str, tmp_path: Path) -> None:
    """Messages of a second chunk look like those of later microbatches: what they cannot tell is left out."""
    found, true = found_and_true(hung(JOBS[name], rank, phase, 0), rank, phase, tmp_path)
    for name in ("direction", "microbatch", "stage"):
        assert found is None or getattr(found, name) in (None, getattr(true, name))


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_microbatches_of_different_lengths_are_of_one_step_all_the_same(phase: str, tmp_path: Path) -> None:
    found, true = found_and_true(hung(replace(JOBS["1F1B"], shortest=4), 6, phase, 2), 6, phase, tmp_path)
    assert found is not None
    assert (found.direction, found.microbatch, found.stage) == (true.direction, true.microbatch, true.stage)


STAGES, LAYERS = 3, 2


def without_call_paths(microbatches: int, stopped: str, made: int = 1) -> Job:
    """Three stages of two ranks each; microbatches go there and back one by one. In the last one a stage stops in a pass."""
    job = Job(2 * STAGES, "nccl")
    pipes = [job.group(range(side, 2 * STAGES, 2), "pp") for side in (0, 1)]
    layers = [job.group((2 * stage, 2 * stage + 1), "tp") for stage in range(STAGES)]
    path = [("forward", stage) for stage in range(STAGES)] + [("backward", stage) for stage in reversed(range(STAGES))]
    for microbatch in range(microbatches):
        for (way, stage), (_, following) in pairwise([*path, path[0]]):
            is_last = microbatch == microbatches - 1 and f"{way} {stage}" == stopped
            for _ in range(made if is_last else LAYERS):
                job.call(layers[stage])
            if is_last:
                return job
            for side, pipe in enumerate(pipes):
                if following != stage and (way, stage) != ("backward", 0):
                    job.call(pipe, f"send {stage}->{following}", [2 * stage + side])
                    job.call(pipe, f"recv {following}<-{stage}", [2 * following + side])
    return job


@pytest.mark.parametrize("stopped", ["forward 1", "backward 1", "forward 2", "backward 2"])
@pytest.mark.parametrize("microbatches", [2, 3])
def test_messages_tell_passes_without_call_paths(stopped: str, microbatches: int, tmp_path: Path) -> None:
    """The last stage goes forward and back between two messages, and makes the calls that the stage before it makes in each."""
    direction, stage = stopped.split()[0], int(stopped[-1])
    with open_case([loose(without_call_paths(microbatches, stopped), tmp_path)]) as connection:
        found = CallPlaces(connection, Recorded(connection)).of_stop(2 * stage, direction)
    assert found is not None
    assert (found.direction, found.microbatch, found.stage) == (direction, microbatches - 1, stage)


def test_a_pass_that_ends_with_no_message_may_not_have_ended(tmp_path: Path) -> None:
    """All forward passes first: after the last call of one, its rank may still be in it, or wait for the next message."""
    job = Job(2, "nccl")
    pipe, layers = job.group(range(2), "pp"), job.group((1,), "tp")
    for _ in range(3):
        job.call(pipe, "send 0->1", [0])
        job.call(pipe, "recv 1<-0", [1])
        for _ in range(LAYERS):
            job.call(layers, "all_reduce", [1])
    with open_case([loose(job, tmp_path)]) as connection:
        found = CallPlaces(connection, Recorded(connection)).of_stop(1, "forward")
    assert found is None or (found.direction, found.microbatch) == (None, None)


FORWARD_FRAMES = (("forward_step", "schedules.py", 278),)
BACKWARD_FRAMES = (("backward_step", "schedules.py", 361),)


def with_broadcasts(steps: int, microbatches: int) -> Job:
    """Two stages of two ranks: each step begins with its data, given to the tensor peers, and ends with a call of all."""
    job = Job(4, "nccl")
    pipes = [job.group((side, side + 2), "pp") for side in (0, 1)]
    layers = [job.group((2 * stage, 2 * stage + 1), "tp") for stage in (0, 1)]
    for _ in range(steps):
        for group in layers:
            job.call(group, "broadcast", shapes=((8,),))
        for _ in range(microbatches):
            for sender, frames in ((0, FORWARD_FRAMES), (1, BACKWARD_FRAMES)):
                job.call(layers[sender], frames=frames)
                for side, pipe in enumerate(pipes):
                    job.call(pipe, f"send {sender}->{1 - sender}", [2 * sender + side], frames=frames)
                    job.call(pipe, f"recv {1 - sender}<-{sender}", [2 * (1 - sender) + side], frames=frames)
            job.call(layers[0], frames=BACKWARD_FRAMES)
        job.call(job.everyone, shapes=((1,),))
    return job


@pytest.mark.parametrize("microbatches", [1, 2])
def test_what_begins_steps_in_a_small_group_is_no_part_of_them(microbatches: int, tmp_path: Path) -> None:
    """A call of all in each part tells steps from microbatches: they are counted from each step anew."""
    job = with_broadcasts(3, microbatches)
    with open_case([loose(job, tmp_path)]) as connection:
        places = CallPlaces(connection, Recorded(connection))
        found = {place.microbatch for at in range(len(job.calls[0])) if (place := places.pass_at(0, at))}
    assert found - {None} <= set(range(microbatches))


THERE = [(stage, stage + 1) for stage in (0, 1)]
BACK = [(stage, stage - 1) for stage in (2, 1)]
ALL_FORWARD = [*THERE * 4, *BACK * 4]
IN_TURN = [*THERE, (0, 1), (2, 1), (1, 2), (0, 1), (1, 0), (2, 1), (1, 2), (1, 0), *BACK]
"""Messages of a step of three stages: four microbatches by GPipe, three by 1F1B."""


def stopped_in_second_step(order: list[tuple[int, int]], made: int, *, marked: bool) -> Job:
    """A job that stops in its second step behind so many messages; `marked`: a call of all ranks ends the first one."""
    job = Job(3, "nccl")
    pipe = job.group(range(3), "pp")
    for number, (sender, receiver) in enumerate([*order, *order[:made]]):
        if marked and number == len(order):
            job.call(job.everyone, shapes=((1,),))
        job.call(pipe, f"send {sender}->{receiver}", [sender])
        job.call(pipe, f"recv {receiver}<-{sender}", [receiver])
    if marked and not made:
        job.call(job.everyone, shapes=((1,),))
    return job


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("order", "made", "rank", "expected"),
    [
        (ALL_FORWARD, 2, 0, ("forward", 1)),
        (ALL_FORWARD, 2, 2, ("forward", 0)),
        (ALL_FORWARD, 10, 0, ("backward", 0)),
        (IN_TURN, 5, 2, (None, 1)),
        (IN_TURN, 5, 0, ("forward", 2)),
    ],
)
def test_messages_that_came_back_end_a_step_where_no_call_of_all_does(
    order: list[tuple[int, int]], made: int, rank: int, expected: tuple[str | None, int], marked: bool, tmp_path: Path
) -> None:
    with open_case([loose(stopped_in_second_step(order, made, marked=marked), tmp_path)]) as connection:
        found = CallPlaces(connection, Recorded(connection)).of_stop(rank, None)
    assert found is not None
    assert (found.direction, found.microbatch, found.stage) == (*expected, rank)


@pytest.mark.parametrize(("marked", "expected"), [(True, ("forward", 0)), (False, (None, None))])
def test_behind_the_last_message_of_a_step_the_next_one_begins_where_a_call_ended_it(
    marked: bool, expected: tuple[str | None, int | None], tmp_path: Path
) -> None:
    """The first stage sends nothing of its last backward pass, which may still go on."""
    with open_case([loose(stopped_in_second_step(ALL_FORWARD, 0, marked=marked), tmp_path)]) as connection:
        found = CallPlaces(connection, Recorded(connection)).of_stop(0, None)
    assert found is not None
    assert (found.direction, found.microbatch, found.opens) == (*expected, True)


def pipeline_alone(steps: int, stop: int, setup: int) -> Job:
    """Three stages in 1F1B of four microbatches that meet nowhere; the second one stops in a forward pass of the last step.

    Before the first step `setup` messages go from stage to stage, of sizes that none of a pass has.
    """
    job = Job(3, "nccl")
    pairs = job.group(range(3), "pp")
    for size in range(setup):
        for rank in range(2):
            job.call(pairs, f"send {rank}->{rank + 1}", [rank], shapes=((1 + size // 2,),))
            job.call(pairs, f"recv {rank + 1}<-{rank}", [rank + 1], shapes=((1 + size // 2,),))
    for step in range(steps):
        for rank in range(3):
            warm = 2 - rank
            order = [("f", number) for number in range(warm)]
            order += [each for number in range(4 - warm) for each in (("f", warm + number), ("b", number))]
            order += [("b", number) for number in range(4 - warm, 4)]
            for kind, number in order:
                source, target = (rank - 1, rank + 1) if kind == "f" else (rank + 1, rank - 1)
                if source in range(3):
                    job.call(pairs, f"recv {rank}<-{source}", [rank])
                if (rank, step, kind, number) == (1, steps - 1, "f", stop):
                    break
                if target in range(3):
                    job.call(pairs, f"send {rank}->{target}", [rank])
    return job


@pytest.mark.parametrize("setup", [0, 1, 3, 4])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_messages_that_set_a_pipeline_up_are_of_no_microbatch(steps: int, setup: int, tmp_path: Path) -> None:
    with open_case([loose(pipeline_alone(steps, 2, setup), tmp_path)]) as connection:
        found = CallPlaces(connection, Recorded(connection)).of_stop(1, "forward")
    assert found is not None
    assert (found.direction, found.microbatch, found.stage) == ("forward", 2, 1)


def test_a_rank_without_a_record_is_in_no_pass_that_its_peers_wait_for(tmp_path: Path) -> None:
    """What others wait for comes behind the pass that it stopped in; dumps of the first two stages of a recorded job."""
    with zstandard.open(SCENARIO, "rb") as content, tarfile.open(fileobj=content, mode="r|") as bundle:
        for member in bundle:
            if member.name.startswith(("ranks/0/fr/", "ranks/1/fr/")) and (dump := bundle.extractfile(member)):
                (tmp_path / member.name.rpartition("/")[2]).write_bytes(dump.read())
    (suspect,) = verdict_of(tmp_path).suspects
    assert (suspect.ranks, suspect.stage.microbatch, suspect.stage.pipeline_stage) == ((2,), None, None)
