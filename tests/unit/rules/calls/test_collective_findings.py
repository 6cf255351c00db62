"""What ranks called, in which order, with which sizes: skipped, mismatching, crossed and unfinished operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, StageName
from tests.recordings.collection import Collection, iso_time, loose, whole
from tests.recordings.job import SECOND, Group, Job, as_pickle
from tests.recordings.places import ALL_REDUCE, BARRIER, BROADCAST, HOST_CODE, LOADER_QUEUE
from tests.recordings.verdicts import leaders, named, stated, verdict_of, victims

METRIC = ((1,),)
DOWN = "mlx5_core 0000:1a:00.0 ens5: Link down"


def iterations(job: Job, count: int) -> None:
    """Gradients, a metric, and a norm: each step has three different collectives."""
    for _ in range(count):
        job.call(job.everyone)
        job.call(job.everyone, "all_gather", shapes=METRIC)
        job.call(job.everyone, "all_reduce", shapes=((8,),))


def test_a_rank_that_skips_a_call_is_the_odd_one(tmp_path: Path) -> None:
    job = Job(4)
    iterations(job, 8)
    job.call(job.everyone)
    job.call(job.everyone, "all_gather", (0, 1, 3), done=False, shapes=METRIC)
    job.call(job.everyone, "all_reduce", (2,), done=False, shapes=((8,),))
    verdict = verdict_of(loose(job, tmp_path))
    (first,) = leaders(verdict)
    assert (first.ranks, first.cause, first.rules) == ((2,), Cause.EXTRA_OR_MISSING_COLLECTIVE, ("FX120",))
    assert first.stage.sequence == 26


def test_a_call_that_is_left_out_is_of_the_stage_in_which_the_others_make_it(tmp_path: Path) -> None:
    """What the rank issues under its number is the first call of the pass that comes behind it."""
    job, site = Job(4), "/opt/venv/lib/python3.11/site-packages/torch"
    forward = (("Module._call_impl", f"{site}/nn/modules/module.py", 1773), ("main", "/opt/job/train.py", 40))
    norm = (("norm", "/opt/job/clip.py", 12), ("Optimizer.step", f"{site}/optim/optimizer.py", 488))
    for _ in range(8):
        job.call(job.everyone, "all_gather", frames=forward)
        job.call(job.everyone, shapes=METRIC, frames=norm)
    job.call(job.everyone, "all_gather", frames=forward)
    job.call(job.everyone, "all_reduce", (0, 1, 3), done=False, shapes=METRIC, frames=norm)
    job.call(job.everyone, "all_gather", (2,), done=False, frames=forward)
    (first,) = leaders(verdict_of(loose(job, tmp_path)))
    assert (first.ranks, first.cause) == ((2,), Cause.EXTRA_OR_MISSING_COLLECTIVE)
    assert (first.stage.name, first.stage.operation) == (StageName.OPTIMIZER, "all_reduce")


def test_a_rank_that_makes_one_call_more_is_the_odd_one(tmp_path: Path) -> None:
    job = Job(4)
    iterations(job, 8)
    job.call(job.everyone)
    job.call(job.everyone, "broadcast", (1,), done=False, shapes=METRIC)
    job.call(job.everyone, "all_gather", (0, 2, 3), done=False, shapes=METRIC)
    verdict = verdict_of(loose(job, tmp_path))
    (first,) = leaders(verdict)
    assert first.ranks == (1,)
    assert first.cause in (Cause.EXTRA_OR_MISSING_COLLECTIVE, Cause.COLLECTIVE_MISMATCH)


def test_another_operation_under_the_same_number_is_a_mismatch(tmp_path: Path) -> None:
    """Rank 0 is the odd one: taking the first file as the reference would blame the three others."""
    job = Job(4)
    job.steps(10)
    job.call(job.everyone, "broadcast", (0,), done=False)
    job.call(job.everyone, "all_reduce", (1, 2, 3), done=False)
    verdict = verdict_of(loose(job, tmp_path))
    (first,) = leaders(verdict)
    assert (first.ranks, first.cause, first.rules) == ((0,), Cause.COLLECTIVE_MISMATCH, ("FX121",))
    assert "broadcast" in stated(verdict) and "all_reduce" in stated(verdict)


def test_other_sizes_are_a_shape_mismatch(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(10)
    job.call(job.everyone, ranks=(3,), done=False, shapes=((4095,),))
    job.call(job.everyone, ranks=(0, 1, 2), done=False)
    verdict = verdict_of(loose(job, tmp_path))
    (first,) = leaders(verdict)
    assert (first.ranks, first.cause) == ((3,), Cause.SHAPE_MISMATCH)
    assert "4095" in stated(verdict) and "4096" in stated(verdict)


def test_other_types_are_a_mismatch(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(10)
    job.call(job.everyone, ranks=(3,), done=False, dtype="BFloat16")
    job.call(job.everyone, ranks=(0, 1, 2), done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert leaders(verdict)[0].ranks == (3,)
    assert "BFloat16" in stated(verdict)


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all", "reduce_scatter", "gather"])
def test_operations_that_may_be_uneven_are_not_compared_by_size(tmp_path: Path, kind: str) -> None:
    """The rank that did not come is behind; that its peers bring different sizes is legal."""
    job = Job(4)
    job.steps(10)
    for rank in (0, 1, 3):
        job.call(job.everyone, kind, (rank,), done=False, shapes=((rank + 1, 16),))
    verdict = verdict_of(whole(job, {2: LOADER_QUEUE}).write(tmp_path))
    assert [(suspect.ranks, suspect.cause) for suspect in verdict.suspects] == [((2,), Cause.DATALOADER_STALL)]


def test_a_disagreement_that_everybody_got_past_explains_nothing(tmp_path: Path) -> None:
    """Equal elements in another shape are legal: the reduction finished, and today's stall is somewhere else."""
    job = Job(4)
    job.steps(4)
    job.call(job.everyone, ranks=(3,), shapes=((64, 64),))
    job.call(job.everyone, ranks=(0, 1, 2))
    job.steps(10)
    job.hang({2})
    verdict = verdict_of(whole(job, {2: LOADER_QUEUE}).write(tmp_path))
    assert [(suspect.ranks, suspect.cause) for suspect in verdict.suspects] == [((2,), Cause.DATALOADER_STALL)]


def test_a_disagreement_that_everybody_got_past_does_not_hide_the_one_that_blocks(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(4)
    job.call(job.everyone, ranks=(3,), shapes=((64, 64),))
    job.call(job.everyone, ranks=(0, 1, 2))
    job.steps(10)
    job.call(job.everyone, "broadcast", (1,), done=False)
    job.call(job.everyone, "all_reduce", (0, 2, 3), done=False)
    (first,) = leaders(verdict_of(loose(job, tmp_path)))
    assert (first.ranks, first.cause) == ((1,), Cause.COLLECTIVE_MISMATCH)


def test_agreement_is_said(tmp_path: Path) -> None:
    job = Job(4)
    iterations(job, 5)
    job.hang({2})
    verdict = verdict_of(loose(job, tmp_path))
    assert {"FX120", "FX121"} <= {outcome.rule for outcome in verdict.ruled_out if outcome.status == "ruled_out"}


def test_stacks_alone_show_who_called_something_else(tmp_path: Path) -> None:
    found = Collection(4, Job(1).now_ns)
    for rank in range(4):
        found.stacks(rank, *[BROADCAST if rank == 1 else ALL_REDUCE] * 3)
    verdict = verdict_of(found.write(tmp_path))
    assert [(suspect.ranks, suspect.confidence) for suspect in leaders(verdict)] == [((1,), Confidence.SUSPECT)]


def test_stacks_alone_do_not_decide_between_two_halves(tmp_path: Path) -> None:
    found = Collection(4, Job(1).now_ns)
    for rank in range(4):
        found.stacks(rank, *[BROADCAST if rank < 2 else ALL_REDUCE] * 3)
    verdict = verdict_of(found.write(tmp_path))
    assert all(suspect.members == "one_of" for suspect in verdict.suspects)


def crossed(world: int, odd: tuple[int, ...], *, history: bool = True, backend: str = "gloo") -> tuple[Job, Group, Group]:
    """Everybody uses DATA before EXPERT; at the end the odd ranks come the other way round."""
    job = Job(world, backend)
    data, expert = job.group(range(world), "DATA"), job.group(range(world), "EXPERT")
    for _ in range(6 if history else 0):
        job.call(data)
        job.call(expert, "all_to_all")
    others = [rank for rank in range(world) if rank not in odd]
    job.call(data, ranks=others, done=False)
    job.call(expert, "all_to_all", odd, done=False)
    return job, data, expert


def test_the_rank_that_broke_its_own_order_is_named_first(tmp_path: Path) -> None:
    job, *_ = crossed(4, (2,))
    verdict = verdict_of(whole(job, dict.fromkeys(range(4), BARRIER)).write(tmp_path))
    first = verdict.suspects[0]
    assert (first.ranks, first.cause, first.rules) == ((2,), Cause.DEADLOCK, ("FX130",))
    assert (first.stage.name, first.stage.operation) == (StageName.UNKNOWN, "all_to_all"), "no stage is made up"
    assert {suspect.fault for suspect in verdict.suspects} == {first.fault}


def test_in_a_crossing_of_two_ranks_the_history_decides(tmp_path: Path) -> None:
    job, *_ = crossed(2, (1,))
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    assert (verdict.suspects[0].ranks, verdict.suspects[0].cause) == ((1,), Cause.DEADLOCK)


def test_without_a_history_two_ranks_are_a_circle(tmp_path: Path) -> None:
    job, *_ = crossed(2, (1,), history=False, backend="nccl")
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    assert [(suspect.ranks, suspect.cause) for suspect in verdict.suspects] == [((0, 1), Cause.DEADLOCK)]


def test_without_a_history_the_smaller_camp_is_the_odd_one(tmp_path: Path) -> None:
    job, *_ = crossed(4, (3,), history=False, backend="nccl")
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    assert [suspect.ranks for suspect in verdict.suspects] == [(3,)], "three ranks agree, each of them itself"


def test_a_camp_that_is_smaller_by_little_keeps_the_circle_beside_it(tmp_path: Path) -> None:
    job, *_ = crossed(5, (3, 4), history=False, backend="nccl")
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    assert [suspect.ranks for suspect in verdict.suspects] == [(3, 4), (0, 1, 2, 3, 4)]


def test_ranks_outside_the_circle_are_its_victims(tmp_path: Path) -> None:
    job = Job(4)
    left, right = job.group((0, 1, 2), "LEFT"), job.group((1, 2, 3), "RIGHT")
    for _ in range(6):
        job.call(left)
        job.call(right)
    job.call(left, ranks=(0, 1), done=False)
    job.call(right, ranks=(2, 3), done=False)
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    assert verdict.suspects[0].ranks == (2,)
    assert verdict.suspects[0].cause is Cause.DEADLOCK
    assert named(verdict) <= {1, 2}
    assert {0, 3} <= set(victims(verdict))


def test_a_circle_that_waits_for_a_stalled_rank_is_not_the_root(tmp_path: Path) -> None:
    job = Job(3)
    data, pair = job.group((0, 1, 2), "DATA"), job.group((0, 1), "PAIR")
    for _ in range(6):
        job.call(data)
        job.call(pair)
    job.call(data, ranks=(0,), done=False)
    job.call(pair, ranks=(1,), done=False)
    verdict = verdict_of(whole(job, {2: LOADER_QUEUE}).write(tmp_path))
    assert named(verdict) == {2}


@pytest.mark.parametrize(("groups", "pairs"), [(1, [(0, 1)]), (2, [(0, 1), (2, 3)]), (3, [])])
def test_many_groups_that_stand_still_at_once_are_held_up_by_something_else(
    groups: int, pairs: list[tuple[int, ...]], tmp_path: Path
) -> None:
    job = Job(8, "nccl")
    job.steps(4)
    for first in range(0, 2 * groups, 2):
        pair = job.group((first, first + 1), f"PAIR{first}")
        job.call(pair)
        job.call(pair, done=False)
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    assert sorted(each.ranks for each in verdict.suspects if "FX140" in each.rules) == pairs


def test_everybody_inside_one_operation_is_a_group_that_cannot_be_distinguished(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(10)
    job.hang(set())
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    (first,) = verdict.suspects
    assert (first.ranks, first.members, first.granularity) == ((0, 1, 2, 3), "one_of", "group")
    assert (first.confidence, first.rules) == (Confidence.SUSPECT, ("FX140",))


def test_all_ranks_of_a_job_of_several_nodes_are_nobody(tmp_path: Path) -> None:
    job = Job(16)
    job.steps(6)
    job.hang(set())
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    assert (verdict.suspects, verdict.outcome) == ((), "hang")
    assert any("one of all 16 ranks" in (each.withheld or "") for each in verdict.assessments)


def test_some_of_a_group_finished_is_said(tmp_path: Path) -> None:
    """gloo's ring lets some members out before others."""
    job = Job(4)
    job.steps(10)
    job.call(job.everyone, ranks=(0, 1))
    job.call(job.everyone, ranks=(2, 3), done=False)
    verdict = verdict_of(whole(job, {0: HOST_CODE, 1: HOST_CODE}).write(tmp_path))
    assert verdict.suspects
    assert all(suspect.confidence is Confidence.SUSPECT for suspect in verdict.suspects)
    assert "ranks 0-1 finished it" in stated(verdict)


@pytest.mark.parametrize(("cut", "ranks"), [((), (1, 2)), ((0,), (0, 1, 2)), ((0, 3), (0, 1, 2))], ids=str)
def test_who_may_still_be_inside_an_operation_is_named_beside_those_who_are(
    cut: tuple[int, ...], ranks: tuple[int, ...], tmp_path: Path
) -> None:
    """Of a member whose dump is cut before the call others show that it came; counters show that rank 3 got out."""
    job = Job(5, "nccl")
    job.steps(10)
    inside = {1, 2, *cut} - {3}
    job.call(job.everyone, "all_to_all", sorted({0, 3, 4} - inside))
    job.call(job.everyone, "all_to_all", sorted(inside), done=False)
    found = whole(job, {})
    for rank in cut:
        dump = as_pickle(job.dump(rank))
        found.members[f"ranks/{rank}/fr/0.json"] = dump[: len(dump) // 2]
    (first,) = (each for each in verdict_of(found.write(tmp_path)).suspects if "FX140" in each.rules)
    assert first.ranks == ranks
    assert ("is unknown" in first.evidence[0].statement) is bool(cut)


def test_an_unfinished_group_beside_a_named_root_is_not_another_fault(tmp_path: Path) -> None:
    job = Job(4)
    low = job.group((0, 1), "LOW")
    for _ in range(6):
        job.call(low)
        job.steps(1)
    job.call(low, done=False)
    job.call(job.everyone, ranks=(3,), done=False)
    verdict = verdict_of(whole(job, {2: LOADER_QUEUE}).write(tmp_path))
    assert verdict.suspects[0].ranks == (2,)
    assert {suspect.fault for suspect in verdict.suspects if suspect.members == "each"} == {1}


@pytest.mark.parametrize(
    ("line", "cause", "confidence"),
    [
        (None, Cause.UNKNOWN, Confidence.SUSPECT),
        (
            "gpu-1:88:91 [2] NCCL WARN NET/IB : mlx5_0:1 Got async error event: port error",
            Cause.NETWORK_DOWN,
            Confidence.LIKELY,
        ),
        (f"kernel: {DOWN}", Cause.NETWORK_DOWN, Confidence.SUSPECT),
        (
            f"kernel: {DOWN}\n{{time}} gpu-017 kernel: mlx5_core 0000:1a:00.0 ens5: Link up",
            Cause.UNKNOWN,
            Confidence.SUSPECT,
        ),
    ],
    ids=["nothing", "a log", "the kernel", "it came up again"],
)
def test_the_network_is_the_cause_only_where_something_tells_of_it(
    line: str | None, cause: Cause, confidence: Confidence, tmp_path: Path
) -> None:
    """That all live and are inside the same call leaves the network, a device and a library; a rank's own NIC names it."""
    job = Job(4)
    job.steps(12)
    job.hang(())
    found = whole(job, {})
    if line and "kernel" in line:
        found.kernel_log(line.replace("kernel:", "{time} gpu-017 kernel:", 1).format(time=iso_time(job.now_ns + 2 * SECOND)))
    elif line:
        found.log(2, line)
    (first,) = verdict_of(found.write(tmp_path)).suspects
    assert (first.cause, first.confidence, first.rules) == (cause, confidence, ("FX140",))
    assert (first.ranks == (2,)) == (confidence is Confidence.LIKELY)
