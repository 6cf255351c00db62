"""FX132: operations of several communicators that all members entered, on NCCL; and what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Confidence, Granularity, Verdict
from forensics.rules.collectives import communicators_entangled
from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.hardware.gpu_errors import GpuError, GpuErrors
from forensics.rules.reductions.network.flow_ends import Flow, FlowState
from forensics.rules.reductions.network.flow_faults import RootFlows
from tests.recordings.coalesced import batch, single
from tests.recordings.collection import loose, whole
from tests.recordings.group_scenarios import inverted_launches
from tests.recordings.job import Group, Job
from tests.recordings.places import ALL_REDUCE
from tests.recordings.verdicts import blamed, named, stated, verdict_of


def two_groups(world: int = 4, steps: int = 5, backend: str = "nccl") -> tuple[Job, Group, Group]:
    """Two communicators of all ranks, used one after the other in every step."""
    job = Job(world, backend)
    first, second = job.group(range(world), "EXPERT"), job.group(range(world), "DATA")
    for _ in range(steps):
        for rank in range(world):
            single(job, rank, first, "all_to_all")
            single(job, rank, second, "all_reduce")
    return job, first, second


def rules(verdict: Verdict) -> set[str]:
    return {rule for suspect in verdict.suspects for rule in suspect.rules}


@pytest.mark.parametrize("odd", range(4))
def test_contradicting_orders_of_enqueueing(tmp_path: Path, odd: int) -> None:
    verdict = verdict_of(loose(inverted_launches(odd, 4), tmp_path))
    (suspect,) = verdict.suspects
    assert (suspect.ranks, suspect.cause, suspect.confidence) == ((odd,), Cause.DEADLOCK, Confidence.LIKELY)
    assert (suspect.rules, suspect.granularity, suspect.members) == (("FX132",), Granularity.RANK, "each")
    assert f"rank {odd} never took them in this order before" in stated(verdict)


def test_only_ranks_of_both_communicators_are_named(tmp_path: Path) -> None:
    job = Job(6, "nccl")
    left, right = job.group((0, 1, 2, 3), "LEFT"), job.group((2, 3, 4, 5), "RIGHT")
    for rank in range(6):
        mine = [group for group in (left, right) if rank in group.members]
        for group in mine if rank != 3 else reversed(mine):
            single(job, rank, group, "all_reduce", done=False)
    (suspect,) = verdict_of(loose(job, tmp_path)).suspects
    assert suspect.ranks == (2, 3)


def test_a_circle_of_three_communicators_that_share_one_rank_each(tmp_path: Path) -> None:
    job = Job(3, "nccl")
    groups = [job.group(pair, name) for pair, name in (((0, 2), "A"), ((0, 1), "B"), ((1, 2), "C"))]
    for rank, order in ((0, (0, 1)), (1, (1, 2)), (2, (2, 0))):
        for number in order:
            single(job, rank, groups[number], "all_reduce", done=False)
    (suspect,) = verdict_of(loose(job, tmp_path)).suspects
    assert (suspect.ranks, suspect.rules) == ((0, 1, 2), ("FX132",))


def test_the_same_order_everywhere_is_no_inversion(tmp_path: Path) -> None:
    """The network stands still; the second operation only queues behind the first."""
    job, first, second = two_groups()
    for rank in range(4):
        single(job, rank, first, "all_to_all", done=False)
        single(job, rank, second, "all_reduce", done=False)
    assert rules(verdict_of(whole(job, {}).write(tmp_path))) == {"FX140"}


def test_one_stalled_device_with_everything_queued_behind_it(tmp_path: Path) -> None:
    """Its peers finished the first operation; whatever follows waits for its device, on all communicators."""
    job, first, second = two_groups()
    for rank in range(4):
        single(job, rank, first, "all_to_all", done=rank != 2)
        single(job, rank, second, "all_reduce", done=False)
        single(job, rank, first, "all_to_all", done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert named(verdict) == {2} and rules(verdict) == {"FX141"}


def test_a_collective_that_a_member_finished_is_in_no_inversion(tmp_path: Path) -> None:
    """Contradicting orders, but rank 3 came out of one of them: its kernels had their place on all devices."""
    job, first, second = two_groups()
    for rank in range(4):
        order = [(first, "all_to_all"), (second, "all_reduce")]
        for group, kind in order if rank != 2 else reversed(order):
            single(job, rank, group, kind, done=rank == 3 and group is first)
    assert "FX132" not in rules(verdict_of(loose(job, tmp_path)))


def test_another_hang_beside_it_makes_it_a_suspicion(tmp_path: Path) -> None:
    """Contradicting orders among ranks 0-3 while 4 and 5 hang by themselves: the network would explain both."""
    job = Job(6, "nccl")
    first, second, apart = job.group(range(4), "EXPERT"), job.group(range(4), "DATA"), job.group((4, 5), "DATA")
    for rank in range(4):
        for group in (first, second) if rank else (second, first):
            single(job, rank, group, "all_reduce", done=False)
    for rank in (4, 5):
        single(job, rank, apart, "all_reduce", done=False)
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    assert not blamed(verdict)
    assert any("one fault of the network" in line.statement for suspect in verdict.suspects for line in suspect.evidence)


def test_a_log_that_tells_of_the_network_makes_it_a_suspicion(tmp_path: Path) -> None:
    found = whole(inverted_launches(2, 4), dict.fromkeys(range(4), ALL_REDUCE))
    found.log(0, "gpu-017:12:34 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4791> with status=12 vendor err 129")
    assert not blamed(verdict_of(found.write(tmp_path)))


@pytest.mark.parametrize(
    ("state", "ranks", "remains"),
    [
        (FlowState.NOT_DELIVERED, (0, 1), False),
        (FlowState.GPU_NOT_READY, (0, 1), True),
        (FlowState.NOT_DELIVERED, (8, 9), True),
    ],
)
def test_a_link_that_delivers_nothing_needs_no_order_to_hang(
    state: FlowState, ranks: tuple[int, int], remains: bool, tmp_path: Path
) -> None:
    """Devices that wait for each other leave nothing on the way; a link elsewhere says nothing of them."""
    found = whole(inverted_launches(2, 4), dict.fromkeys(range(4), ALL_REDUCE))
    supply = supply_of(open_case([found.write(tmp_path)]))
    flow = Flow("nccl:a", 1, "all_reduce", 0, *ranks, None, None, state)
    findings = list(supply.call(communicators_entangled.RULE.evaluate, {RootFlows: RootFlows((flow,))}))
    assert bool(findings) is remains


@pytest.mark.parametrize(
    ("rank", "time_ns", "remains"),
    [(1, 5, False), (1, None, True), (9, 5, True)],
    ids=["of a member", "of no known time", "of another rank"],
)
def test_a_gpu_with_an_error_needs_no_order_to_hang(rank: int, time_ns: int | None, remains: bool, tmp_path: Path) -> None:
    error = GpuError("host", "0000:3b:00", "memory error", of_device=True, source="dmesg", time_ns=time_ns)
    with open_case([loose(inverted_launches(2, 4), tmp_path)]) as case:
        supply = supply_of(case, instead={GpuErrors: GpuErrors({rank: error})})
        found = run(supply, [communicators_entangled.RULE], {})[0]
    assert bool(found) is remains


def test_an_order_that_has_worked_before_is_a_suspicion(tmp_path: Path) -> None:
    """Rank 1 always takes them the other way round, and ten steps finished."""
    job = Job(4, "nccl")
    groups = [job.group(range(4), "EXPERT"), job.group(range(4), "DATA")]
    for done in (*[True] * 10, False):
        for rank in range(4):
            for group in groups if rank != 1 else reversed(groups):
                single(job, rank, group, "all_reduce", done=done)
    verdict = verdict_of(loose(job, tmp_path))
    assert not blamed(verdict)
    assert "had finished before" in stated(verdict)


def test_a_host_back_end_has_no_device_to_fill(tmp_path: Path) -> None:
    job, first, second = two_groups(backend="gloo")
    for rank in range(4):
        for group in (first, second) if rank else (second, first):
            single(job, rank, group, "all_reduce", done=False)
    assert "FX132" not in rules(verdict_of(loose(job, tmp_path)))


def test_operations_that_were_not_entered_are_another_rule(tmp_path: Path) -> None:
    """Rank 1 blocks its host in the second communicator before it comes to the first: an order cycle."""
    job, first, second = two_groups()
    for rank in (0, 2, 3):
        single(job, rank, first, "all_to_all", done=False)
    single(job, 1, second, "all_reduce", done=False)
    assert "FX132" not in rules(verdict_of(loose(job, tmp_path)))


def device_order(started: dict[int, str], tmp_path: Path, *, still: bool = True) -> Verdict:
    """The same order of enqueueing everywhere; `started` says which of the two each device has begun: a, b or both.

    A job that is `still` was captured twice.
    """
    job, first, second = two_groups()
    for rank in range(4):
        job.call(first, "all_to_all", [rank], done=False, started="a" in started[rank])
        job.call(second, "all_reduce", [rank], done=False, started="b" in started[rank])
    return verdict_of(whole(job, {}).write(tmp_path) if still else loose(job, tmp_path))


def test_devices_that_began_them_in_opposite_orders(tmp_path: Path) -> None:
    verdict = device_order({0: "a", 1: "a", 2: "b", 3: "a"}, tmp_path, still=False)
    assert verdict.suspects[0].rules[0] == "FX132"
    assert verdict.suspects[0].confidence is Confidence.LIKELY


@pytest.mark.parametrize("third", ["", "a"], ids=["has begun neither", "has begun the first"])
def test_contradicting_orders_behind_a_device_that_has_begun_neither(third: str, tmp_path: Path) -> None:
    """What holds that device up came before both, and whoever is behind it may be in any order."""
    job, first, second = two_groups()
    job.call(first, "all_to_all", started=True)
    for rank in range(4):
        begun = "b" if rank == 3 else third if rank == 2 else "a"
        calls = [(first, "all_to_all", "a"), (second, "all_reduce", "b")]
        for group, kind, which in reversed(calls) if rank == 3 else calls:
            job.call(group, kind, [rank], done=False, started=which == begun)
    assert ("FX132" in rules(verdict_of(whole(job, {}).write(tmp_path)))) == bool(third)


def test_two_that_run_at_the_same_time_are_a_suspicion_behind_the_group(tmp_path: Path) -> None:
    verdict = device_order(dict.fromkeys(range(4), "ab"), tmp_path)
    assert [suspect.rules for suspect in verdict.suspects] == [("FX140",), ("FX132",)]
    assert not blamed(verdict)


@pytest.mark.parametrize("begun", ["a", "ab"])
def test_in_one_capture_a_moving_job_looks_like_this(tmp_path: Path, begun: str) -> None:
    assert rules(device_order(dict.fromkeys(range(4), begun), tmp_path, still=False)) == set()


def test_the_first_begun_everywhere_says_nothing(tmp_path: Path) -> None:
    assert rules(device_order(dict.fromkeys(range(4), "a"), tmp_path)) == {"FX140"}


def test_members_of_a_batch_are_in_no_order(tmp_path: Path) -> None:
    """Pipeline neighbours post send and receive in one batch; one lists the send first, the other the receive."""
    job = Job(2, "nccl")
    pipe = job.group((0, 1), "PIPE")
    for done in (True, True, False):
        batch(job, 0, pipe, ["send 0->1", "recv 0<-1"], done=done)
        batch(job, 1, pipe, ["send 1->0", "recv 1<-0"], done=done)
    assert rules(verdict_of(loose(job, tmp_path))) == {"FX140"}


def test_both_send_before_they_receive(tmp_path: Path) -> None:
    """Not in a batch: each side is stuck in its send. A suspicion, for small messages are buffered."""
    job = Job(2, "nccl")
    pipe = job.group((0, 1), "PIPE")
    for own, peer in ((0, 1), (1, 0)):
        single(job, own, pipe, f"send {own}->{peer}", done=False)
        single(job, own, pipe, f"recv {own}<-{peer}", done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert (verdict.suspects[0].rules, verdict.suspects[0].cause) == (("FX130",), Cause.DEADLOCK)
    assert not blamed(verdict)
