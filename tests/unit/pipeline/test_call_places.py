"""Which pass, microbatch, chunk and stage the calls of a rank are of, against the programs of simulated jobs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Parallelism, TrainingJob
from forensics.fixtures.simulator.program import Op, program
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.steps.begins import step_begins, usual_step
from forensics.rules.reductions.steps.records import UNKNOWN, Record, Recorded, records
from tests.recordings.collection import loose
from tests.recordings.job import Job
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

DEEP = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=4, data=2), model=replace(DENSE.model, layers=8))
JOBS = {
    "1F1B": DEEP,
    "GPipe": replace(DEEP, schedule="gpipe"),
    "interleaved": replace(DEEP, schedule="interleaved", chunks=2, microbatches=8),
    "two stages": DENSE,
    "two stages, interleaved": replace(DENSE, schedule="interleaved", chunks=2),
    "sequence parallel": replace(DEEP, tensor_mode="sequence_parallel", data_mode="zero1"),
}


@cache
def sound(job: TrainingJob) -> Simulation:
    return simulate(job, [parse("none")], 3, after_s=8.0)


def expected(job: TrainingJob, rank: int) -> list[Op]:
    """The communication of one iteration."""
    stage, _ = job.parallel.stage_of(rank)
    return [op for op in program(job, stage, 0) if op.kind in ("collective", "send", "recv") and _is_recorded(job, op)]


def _is_recorded(job: TrainingJob, op: Op) -> bool:
    return op.peer is not None or job.parallel.group_size(op.axis or "world") > 1


def place_of(job: TrainingJob, rank: int, op: Op) -> CallPlace:
    stage, _ = job.parallel.stage_of(rank)
    if op.microbatch is None:
        return CallPlace(stage=stage)
    chunk = op.chunk if job.chunks > 1 else None
    return CallPlace("forward" if op.is_forward else "backward", op.microbatch, chunk, stage, in_pass=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_every_call_of_a_step_has_its_place(name: str, tmp_path: Path) -> None:
    """Without call paths too, where each stage holds one chunk."""
    job = JOBS[name]
    with case_of(sound(job), tmp_path) as connection:
        all_places = [CallPlaces(connection, Recorded(connection))]
        if job.chunks == 1:
            known = records(connection)
            blind = {rank: replace(each, call_path=np.full_like(each.call_path, UNKNOWN)) for rank, each in known.items()}
            all_places.append(CallPlaces(connection, Recorded(connection, blind)))
        for rank in range(0, job.parallel.world, job.parallel.width // 2):
            record = records(connection, [rank])[rank]
            begin, end = usual_step(record, step_begins(record)) or (0, 0)
            ops = expected(job, rank)
            assert end - begin == len(ops)
            for at, op in zip(range(begin, end), ops, strict=True):
                if op.axis not in ("dp", "embedding", "world"):
                    for places in all_places:
                        found = places.of_call(rank, record.label(at), int(record.sequence[at]))
                        assert found is not None
                        assert replace(found, opens=False) == place_of(job, rank, op), (rank, at - begin)


@pytest.mark.parametrize("name", ["1F1B", "interleaved", "two stages"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_the_call_that_a_stopped_rank_did_not_make_is_the_one_that_follows(name: str, phase: str, tmp_path: Path) -> None:
    job = JOBS[name]
    made = simulate(job, [parse(f"host-hang@rank5/{phase}")], 11, iterations=4, onset=2)
    position = made.injections[0].position
    assert position is not None
    with case_of(made, tmp_path) as connection:
        found = CallPlaces(connection, Recorded(connection)).of_next(5)
    assert found is not None
    assert (found.direction, found.microbatch) == (phase, position.op.microbatch)
    assert found.stage == job.parallel.stage_of(5)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tensor", "known"), [("interleaved", 2, True), ("interleaved", 1, False), ("1F1B", 1, True)])
def test_without_the_record_of_the_first_stage_chunks_are_those_of_ranks_on_the_same_passes(
    name: str, tensor: int, known: bool, tmp_path: Path
) -> None:
    """Without any, a stage that works ahead like one of several chunks numbers no microbatch."""
    job = replace(JOBS[name], parallel=Parallelism(tensor=tensor, pipeline=4, data=4 // tensor))
    with case_of(sound(job), tmp_path, missing="0") as connection:
        places = CallPlaces(connection, Recorded(connection))
        record = records(connection, [4])[4]
        begin, end = usual_step(record, step_begins(record)) or (0, 0)
        sends = [(at, op) for at, op in zip(range(begin, end), expected(job, 4), strict=True) if op.kind == "send"]
        found = [places.pass_at(4, at) for at, _ in sends]
    true = [place_of(job, 4, op) for _, op in sends]
    assert [(place.microbatch, place.chunk) for place in found if place] == [
        (each.microbatch, each.chunk) if known else (None, None) for each in true
    ]


def test_a_record_of_less_than_a_step_tells_no_microbatch(tmp_path: Path) -> None:
    """Where a step began is not in the record: nothing counts from there."""
    with case_of(sound(JOBS["1F1B"]), tmp_path, ring=20) as connection:
        places = CallPlaces(connection, Recorded(connection))
        record = records(connection, [0])[0]
        found = [places.of_call(0, record.label(at), int(record.sequence[at])) for at in range(len(record))]
    assert {place.microbatch for place in found if place} == {None}


def test_a_job_without_a_pipeline_has_no_stage_and_no_microbatch(tmp_path: Path) -> None:
    slower = replace(DENSE.model, forward_ns=200 * MS)
    job = replace(DENSE, parallel=Parallelism(tensor=2, data=4), model=slower, microbatches=1)
    with case_of(sound(job), tmp_path) as connection:
        record = records(connection, [0])[0]
        places = CallPlaces(connection, Recorded(connection))
        found = {places.of_call(0, record.label(at), int(record.sequence[at])) for at in range(len(record))}
    assert {(place.microbatch, place.stage) for place in found if place} == {(None, None)}
    assert {place.direction for place in found if place} >= {"forward", "backward"}


def test_a_ring_of_messages_is_no_pipeline(tmp_path: Path) -> None:
    """Context-parallel ranks pass keys and values around: each sends to the next and receives from the one before."""
    job = Job(4, "nccl")
    for _ in range(5):
        for _ in range(6):
            for rank in range(4):
                job.call(job.everyone, f"send {rank}->{(rank + 1) % 4}", [rank])
            for rank in range(4):
                job.call(job.everyone, f"recv {rank}<-{(rank - 1) % 4}", [rank])
        job.call(job.everyone, shapes=((1,),))
    with open_case([loose(job, tmp_path, form="json")]) as connection:
        found = records(connection)
        places = CallPlaces(connection, Recorded(connection))
        known = {
            places.of_call(rank, record.label(at), int(record.sequence[at]))
            for rank, record in found.items()
            for at in range(len(record))
        }
    assert {rank: len(step_begins(record)) for rank, record in found.items()} == dict.fromkeys(range(4), 5)
    assert {(place.direction, place.microbatch, place.stage) for place in known if place} == {(None, None, None)}


@pytest.mark.slow
def test_without_collectives_the_last_stage_does_not_tell_forward_from_backward(tmp_path: Path) -> None:
    """It receives, works both ways, and sends back; the first one works back with one microbatch and on with another."""
    job = replace(DEEP, parallel=Parallelism(pipeline=4, data=4), microbatches=6)
    with case_of(sound(job), tmp_path) as connection:
        places = CallPlaces(connection, Recorded(connection))
        stated = {rank: [places.of_call(rank, record.label(at), int(record.sequence[at])) for at in _sends(record)]
                for rank, record in records(connection, [0, 4, 12]).items()}  # fmt: skip
    assert {(place.direction, place.microbatch) for place in stated[12] if place} == {(None, number) for number in range(6)}
    assert (None, None) in {(place.direction, place.microbatch) for place in stated[0] if place}
    assert None not in {place.direction for place in stated[4] if place}


def _sends(record: Record) -> list[int]:
    """Messages that a rank sends in its usual step."""
    begin, end = usual_step(record, step_begins(record)) or (0, 0)
    return [at for at in range(begin, end) if record.is_send[at]]


def test_between_two_backward_passes_a_first_stage_is_in_either(tmp_path: Path) -> None:
    """It sends nothing of the one; the host stops before it asks for the gradients of the next."""
    job = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=4, data=2))
    made = simulate(job, [parse("host-hang@rank0/backward")], 7, iterations=6)
    position = made.injections[0].position
    assert position is not None and position.op.kind == "recv"
    with case_of(made, tmp_path) as connection:
        found = CallPlaces(connection, Recorded(connection)).of_stop(0, "backward")
    assert found is not None and (found.direction, found.microbatch, found.stage) == ("backward", None, 0)


@pytest.mark.parametrize(
    ("fault", "seed", "struck", "known", "expected"),
    [
        ("backward", 26, ("embedding", 3), None, (None, None)),
        ("forward", 9, ("attention", 7), None, (None, None)),
        ("backward", 26, ("embedding", 3), "backward", ("backward", 3)),
        ("forward", 9, ("attention", 7), "forward", ("forward", 7)),
        ("backward", 18, ("embedding", 5), None, ("backward", None)),
        ("forward", 4, ("mlp", 4), None, ("forward", 4)),
    ],
    ids=["its end", "the begin of the next", "its end, shown", "the next, shown", "two of one direction", "amid a pass"],
)
def test_between_two_passes_of_a_first_stage_only_a_stack_shows_the_one(
    fault: str, seed: int, struck: tuple[str, int], known: str | None, expected: tuple[str | None, int | None], tmp_path: Path
) -> None:
    """A backward pass of it ends, and a forward pass begins, without a message."""
    job = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=4, data=2), microbatches=8)
    made = simulate(job, [parse(f"host-hang@rank0/{fault}")], seed, iterations=4)
    position = made.injections[0].position
    assert position is not None and (position.op.name, position.op.microbatch) == struck
    with case_of(made, tmp_path) as connection:
        found = CallPlaces(connection, Recorded(connection)).of_stop(0, known)
    assert found is not None and (found.direction, found.microbatch, found.stage) == (*expected, 0)


def test_what_comes_before_the_passes_of_a_step_may_differ(tmp_path: Path) -> None:
    """As a checkpoint, or what ended the step before where that counts with the next one; not its passes."""
    made = simulate(DEEP, [parse("host-hang@rank4/forward")], 7, iterations=6)
    position = made.injections[0].position
    assert position is not None
    with case_of(made, tmp_path) as connection:
        places = CallPlaces(connection, Recorded(connection))
        own = places.steps(4)
        assert own is not None and own.usual is not None
        begin = int(own.begins[-1])
        assert own.record.is_message[begin] and not own.record.is_message[begin - 1]
        behind = np.append(own.begins[:-1], begin - 1)
        places.known[4] = replace(own, begins=behind)
        found = places.of_next(4)
        assert found is not None and (found.direction, found.microbatch) == ("forward", position.op.microbatch)
        differs = own.record.form.copy()
        differs[begin] += 1
        places.known[4] = replace(own, record=replace(own.record, form=differs))
        assert places.of_next(4) is None
        nothing = np.append(own.begins[:-1], len(own.record) - 1)
        places.known[4] = replace(own, begins=nothing)
        assert places.of_next(4) is None


@pytest.mark.parametrize("closing", [1, 2, 3])
def test_a_step_ends_with_the_last_of_equal_calls_of_all_ranks(closing: int, tmp_path: Path) -> None:
    """As often recurs a reduction of gradients, behind which the last message of the step is still sent."""
    job = Job(6, "nccl")
    pipe, replicas = job.group(range(3), "pp"), job.group((1, 4), "dp")
    for _ in range(4):
        for way in ("f", "b"):
            for number in range(3):
                source, target = (0, 2) if way == "f" else (2, 0)
                job.call(pipe, f"recv 1<-{source}", [1])
                if way == "b" and number >= 3 - closing:
                    job.call(replicas, shapes=((1024,),))
                job.call(pipe, f"send 1->{target}", [1])
        for _ in range(closing):
            job.call(job.everyone, shapes=((1,),))
    with open_case([loose(job, tmp_path)]) as connection:
        own = CallPlaces(connection, Recorded(connection)).steps(1)
    assert own is not None and own.ends is not None
    assert (own.ends.before, own.ends.after, own.ends.is_first) == (0, 2, False)
    assert {int(size) for size in np.diff(own.begins)} == {12 + 2 * closing}
