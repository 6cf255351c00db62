"""Who held up a long step: a rank by the time inside calls, its group by their ends, a transfer, nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Parallelism
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.suites import frontier
from forensics.model import Cause, Confidence, Outcome, StageName, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import supply_of
from forensics.rules.reductions.pipeline.delay import Delays
from forensics.rules.reductions.steps.times import StepTimes
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=4, data=2), model=replace(DENSE.model, forward_ns=60 * MS))


def verdict(fault: str, folder: Path, *, timing: bool = True, seed: int = 3) -> tuple[Verdict, int | None]:
    """What is said of the dumps, and the microbatch that the fault struck."""
    made = simulate(JOB, [parse(each) for each in fault.split(" ")], seed, iterations=14)
    position = made.injections[0].position if made.injections else None
    with case_of(made, folder, timing=timing) as connection:
        return diagnose(connection), position.op.microbatch if position else None


def named(found: Verdict) -> list[tuple[int, ...]]:
    return [suspect.ranks for suspect in found.suspects if "FX175" in suspect.rules]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["compute-delay@rank6:900ms/backward", "compute-delay@rank13:700ms/forward"])
def test_the_last_to_come_is_named_with_its_pass(fault: str, tmp_path: Path) -> None:
    found, microbatch = verdict(fault, tmp_path)
    (suspect,) = found.suspects
    assert found.outcome is Outcome.SLOWDOWN
    assert suspect.ranks == (int(fault.split("@rank")[1].split(":")[0]),)
    assert (suspect.stage.name, suspect.stage.microbatch) == (fault.rsplit("/")[-1], microbatch)
    assert suspect.stage.pipeline_stage == JOB.parallel.stage_of(suspect.ranks[0])[0]
    assert (suspect.cause, suspect.confidence) == (Cause.COMPUTE_SLOW, Confidence.LIKELY)


def test_a_host_that_was_late_itself_is_distinguished_from_its_device(tmp_path: Path) -> None:
    found, _ = verdict("host-delay@rank6:1500ms", tmp_path)
    assert named(found) == [(6,)]
    assert found.suspects[0].cause is Cause.HOST_STALL


@pytest.mark.parametrize(
    ("fault", "is_device"), [("data", False), ("forward-host", False), ("forward-device", True), ("backward", True)]
)
def test_whose_host_comes_late_to_a_step_that_waits_for_nothing_is_not_called_a_slow_device(
    fault: str, is_device: bool, tmp_path: Path
) -> None:
    """All hosts read the loss of a step: each comes as late to the next one as the rank that is late."""
    made = simulate(frontier.job(8), [parse(f"frontier-{fault}@rank3:120ms")], 3, iterations=20, onset=8)
    with case_of(made, tmp_path, timing=True) as connection:
        delays, found = supply_of(connection).get(Delays).found, diagnose(connection)
    assert len(delays) >= 5 and {delay.ranks for delay in delays} == {(3,)}
    assert {delay.on_host for delay in delays} == {False if is_device else None}
    assert [suspect.ranks for suspect in found.suspects] == [(3,)]
    assert (found.suspects[0].cause is Cause.COMPUTE_SLOW) is is_device


def test_without_times_inside_calls_the_group_is_suspected(tmp_path: Path) -> None:
    found, microbatch = verdict("compute-delay@rank6:900ms/backward", tmp_path, timing=False)
    assert named(found) == [(6, 7)]
    assert (found.suspects[0].stage.microbatch, found.suspects[0].confidence) == (microbatch, Confidence.SUSPECT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["gpu-throttled@rank1:250", "compute-delay@rank0:900ms/backward", "compute-delay@rank3:900ms/forward"]
)
def test_by_ends_of_messages_no_sender_is_named_for_its_receiver(fault: str, tmp_path: Path) -> None:
    """Hosts that run ahead begin each step late where the one before was long, and some passes send nothing."""
    made = simulate(replace(JOB, parallel=Parallelism(pipeline=4)), [parse(fault)], 3, iterations=14)
    with case_of(made, tmp_path, timing=False) as connection:
        found = diagnose(connection)
    assert all(int(fault.split("@rank")[1].split(":")[0]) in ranks for ranks in named(found))


def test_a_transfer_that_all_had_come_to_is_of_its_group(tmp_path: Path) -> None:
    made = simulate(JOB, [parse("transfer-delay@rank6:900ms")], 5, iterations=14)
    position = made.injections[0].position
    assert position is not None
    with case_of(made, tmp_path, timing=True) as connection:
        found = diagnose(connection)
    (group,) = named(found)
    assert 6 in group
    assert found.suspects[0].cause is Cause.NETWORK_SLOW


@pytest.mark.parametrize(
    ("fault", "ranks", "stages"),
    [
        ("transfer-delay@rank6:900ms/optimizer", (4, 6), {StageName.OPTIMIZER}),
        ("host-delay@rank6:900ms/optimizer", (6,), {*StageName}),
    ],
    ids=["a transfer", "a member that comes late to it"],
)
def test_what_ends_a_step_holds_up_the_next_one(
    fault: str, ranks: tuple[int, ...], stages: set[StageName], tmp_path: Path
) -> None:
    """Hosts go on while parameters are gathered, and the step after is the one that is long."""
    made = simulate(replace(JOB, data_mode="zero1", gpus_per_host=2), [parse(fault)], 3, iterations=14)
    with case_of(made, tmp_path, timing=True) as connection:
        found = diagnose(connection)
    assert named(found) == [ranks]
    (suspect,) = found.suspects
    assert ((suspect.cause is Cause.NETWORK_SLOW) is (len(ranks) > 1), suspect.stage.name in stages) == (True, True)


def test_two_ranks_that_are_late_in_one_step_are_both_named(tmp_path: Path) -> None:
    found, _ = verdict("compute-delay@rank0:900ms/forward compute-delay@rank6:900ms/forward", tmp_path)
    assert {rank for ranks in named(found) for rank in ranks} == {0, 6}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "timing"), [("none", True), ("none", False), ("compute-delay@rank6:8ms/forward", True)])
def test_nobody_is_named_where_no_step_was_long(fault: str, timing: bool, tmp_path: Path) -> None:
    found, _ = verdict(fault, tmp_path, timing=timing)
    assert named(found) == []


def test_a_gpu_that_is_late_bit_by_bit_is_named_and_nobody_downstream(tmp_path: Path) -> None:
    found, _ = verdict("gpu-throttled@rank6:250", tmp_path)
    assert named(found) == [(6,)]
    assert found.suspects[0].stage.microbatch is None


def test_no_transfer_is_accused_where_a_member_left_no_record(tmp_path: Path) -> None:
    """The one who is missing may be the one that the others waited for."""
    made = simulate(JOB, [parse("compute-delay@rank6:900ms/backward")], 3, iterations=14)
    with case_of(made, tmp_path, timing=True, missing="6") as connection:
        found = diagnose(connection)
    assert [suspect for suspect in found.suspects if suspect.cause is Cause.NETWORK_SLOW] == []


def test_a_gpu_that_was_slow_from_the_first_step_is_named_by_its_equals(tmp_path: Path) -> None:
    made = simulate(JOB, [parse("gpu-throttled@rank6:250")], 3, iterations=12, onset=0)
    with case_of(made, tmp_path, timing=True) as connection:
        found = diagnose(connection)
    assert [(suspect.ranks, suspect.rules) for suspect in found.suspects] == [((6,), ("FX160",))]


@pytest.mark.parametrize(("fault", "ranks"), [
    ("compute-delay@rank6:2500ms/backward", [(6,)]), ("none", []), ("compute-delay@rank13:2500ms/forward", [(13,)]),
])  # fmt: skip
def test_steps_whose_microbatches_differ_in_length_are_compared_by_the_forms_of_their_calls(
    fault: str, ranks: list[tuple[int, ...]], tmp_path: Path
) -> None:
    made = simulate(replace(JOB, shortest=4), [parse(fault)], 3, iterations=24)
    with case_of(made, tmp_path, ring=8000, timing=True) as connection:
        found = diagnose(connection)
        assert len(supply_of(connection).get(StepTimes).number) > 15
    assert [suspect.ranks for suspect in found.suspects] == ranks
