"""One undated set of dumps: what shows the rank that is at fault from those that only share its fate, and a hang from a lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Outcome
from tests.recordings.collection import loose, pid_of, py_spy, write
from tests.recordings.job import MILLISECOND, Group, Job
from tests.recordings.places import BARRIER, GRADIENT_HOOK, HOST_CODE, LOADER_QUEUE, OTHER_CODE, Place
from tests.recordings.verdicts import leaders, named, stated, verdict_of


def timed(*, begun: Sequence[int], timing: bool = True) -> Job:
    """Everybody issued a reduction of which nobody comes out; the devices of `begun` are inside it."""
    job = Job(4, "nccl")
    for _ in range(8):
        job.call(job.everyone, started=timing)
    for rank in range(4):
        job.call(job.everyone, ranks=[rank], done=False, started=rank in begun)
    return job


def test_the_device_that_has_not_begun_holds_up_those_that_are_inside(tmp_path: Path) -> None:
    verdict = verdict_of(loose(timed(begun=(0, 1, 3)), tmp_path))
    (first,) = leaders(verdict)
    assert (first.ranks, first.cause, first.rules, first.confidence) == (
        (2,),
        Cause.COMPUTE_HANG,
        ("FX141",),
        Confidence.LIKELY,
    )
    assert "that of rank 2 has not begun it" in stated(verdict)


@pytest.mark.parametrize(
    "job", [timed(begun=(0,)), timed(begun=()), timed(begun=(0, 1, 2, 3)), timed(begun=(0, 1, 3), timing=False)]
)
def test_starts_tell_nothing_where_most_lack_them_or_they_are_not_recorded(job: Job, tmp_path: Path) -> None:
    """Without timing no dump shows a start; where most devices are behind, they may all wait for what is in front of it."""
    assert named(verdict_of(loose(job, tmp_path))) == set()


def pipeline(*, skips: bool, before: int = 4, swaps: bool = False) -> Job:
    """Two stages that pass on two microbatches and take back two gradients a step; in the last step rank 0 `skips` a send.

    With `swaps` the first stage takes its gradients back in between in every other step.
    """
    job = Job(2, "nccl")
    group = job.group((0, 1), "PIPELINE_MODEL_PARALLEL_GROUP")
    for step in range(before):
        orders = ("01", "01", "10", "10") if not (swaps and step % 2) else ("01", "10", "01", "10")
        for order in orders:
            _transfer(job, group, int(order[0]), int(order[1]))
    _transfer(job, group, 0, 1)
    if skips:
        job.call(group, "recv 0<-1", [0], done=False)
        job.call(group, "recv 1<-0", [1], done=False)
    return job


def _transfer(job: Job, group: Group, sender: int, receiver: int) -> None:
    job.call(group, f"send {sender}->{receiver}", [sender])
    job.call(group, f"recv {receiver}<-{sender}", [receiver])


def test_the_rank_that_skipped_a_send_is_named_and_not_the_one_that_waits_for_it(tmp_path: Path) -> None:
    verdict = verdict_of(loose(pipeline(skips=True), tmp_path))
    (first,) = leaders(verdict)
    assert (first.ranks, first.rules, first.cause) == ((0,), ("FX130",), Cause.DEADLOCK)
    assert len(verdict.suspects) == 1


@pytest.mark.parametrize("job", [pipeline(skips=True, before=1), pipeline(skips=True, swaps=True)])
def test_without_an_order_that_was_always_kept_the_circle_is_named_as_a_whole(job: Job, tmp_path: Path) -> None:
    (first,) = leaders(verdict_of(loose(job, tmp_path)))
    assert (first.ranks, first.rules) == ((0, 1), ("FX130",))


def lagging(late_ms: int, *, arrived: Sequence[int], calls: int = 20) -> Job:
    """Rank 2 comes late to every reduction, and so do others to the last one, which only `arrived` have issued."""
    job = Job(8, "nccl", pace_ns=30 * MILLISECOND)
    for _ in range(calls):
        job.clocks[2] += late_ms * MILLISECOND
        job.call(job.everyone)
    job.call(job.everyone, ranks=arrived, done=False)
    return job


def test_a_wait_for_the_rank_that_is_always_late_is_no_hang(tmp_path: Path) -> None:
    verdict = verdict_of(loose(lagging(500, arrived=(0, 1, 3, 4)), tmp_path))
    (first,) = leaders(verdict)
    assert verdict.outcome is Outcome.SLOWDOWN
    assert (first.ranks, first.rules, first.confidence) == ((2,), ("FX160",), Confidence.SUSPECT)
    assert "nothing shows that the job still moves" in stated(verdict)


def test_several_ranks_that_have_not_come_yet_are_not_stuck_all_at_once(tmp_path: Path) -> None:
    verdict = verdict_of(loose(lagging(0, arrived=(0, 1, 3, 4, 6, 7)), tmp_path))
    assert named(verdict) == set()
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_one_rank_that_everybody_else_waits_for_is(tmp_path: Path) -> None:
    assert named(verdict_of(loose(lagging(0, arrived=(0, 1, 3, 4, 5, 6, 7)), tmp_path))) == {2}


@pytest.mark.parametrize("handed_in", [(0, 1, 2, 3), (0, 1, 3)], ids=["all", "not that of rank 2"])
@pytest.mark.parametrize(
    ("backend", "outcome", "confidence"),
    [("gloo", Outcome.INCONCLUSIVE, Confidence.SUSPECT), ("nccl", Outcome.HANG, Confidence.LIKELY)],
)
def test_dumps_that_only_somebody_who_looks_asks_for_show_no_standstill(
    tmp_path: Path, backend: str, outcome: Outcome, confidence: Confidence, handed_in: Sequence[int]
) -> None:
    """A watchdog writes those of NCCL when a limit has passed; a rank that evaluates for the others looks alike in gloo's.

    That a file was not handed in shows nothing that a look at it would not show.
    """
    job = Job(4, backend)
    for _ in range(20):
        job.call(job.everyone)
    job.call(job.everyone, ranks=(0, 1, 3), done=False)
    verdict = verdict_of(loose(job, tmp_path, ranks=handed_in))
    (first,) = leaders(verdict)
    assert (first.ranks, verdict.outcome, first.confidence) == ((2,), outcome, confidence)


def test_groups_in_which_all_have_come_are_no_two_faults_at_once(tmp_path: Path) -> None:
    """Hosts run ahead: both pairs are inside a call of their own, and have issued the next one of everybody."""
    job = Job(4, "nccl")
    pairs = [job.group((first, first + 1), "TENSOR_MODEL_PARALLEL_GROUP") for first in (0, 2)]
    for _ in range(8):
        for pair in pairs:
            job.call(pair)
        job.call(job.everyone)
    for pair in pairs:
        job.call(pair, done=False)
    job.call(job.everyone, done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert all("leaves" in (each.withheld or "") for each in verdict.assessments if each.rules == ("FX140",))


def test_two_that_have_not_seen_the_end_of_a_call_are_not_both_broken(tmp_path: Path) -> None:
    job = Job(8, "nccl")
    for _ in range(8):
        job.call(job.everyone)
    job.call(job.everyone, ranks=(0, 2, 3, 4, 5, 6))
    job.call(job.everyone, ranks=(1, 7), done=False)
    job.call(job.everyone, done=False)
    assert not verdict_of(loose(job, tmp_path)).suspects


def ahead(*, scattered: bool = False, history: bool = False) -> Job:
    """Hosts issue ahead of their devices, but for ranks 2 and 5; when `scattered`, rank 0 is one operation further."""
    job = Job(8, "nccl")
    if history:
        for _ in range(20):
            job.call(job.everyone)
    for _ in range(3):
        job.call(job.everyone, ranks=(0, 1, 3, 4, 6, 7), done=False)
    if scattered:
        job.call(job.everyone, ranks=(0,), done=False)
    return job


def test_several_ranks_are_suspects_where_all_others_have_come_to_rest_at_one_place(tmp_path: Path) -> None:
    verdict = verdict_of(loose(ahead(), tmp_path))
    assert verdict.outcome is Outcome.HANG
    assert {rank for suspect in leaders(verdict) for rank in suspect.ranks} == {2, 5}
    assert {suspect.confidence for suspect in leaders(verdict)} == {Confidence.SUSPECT}


@pytest.mark.parametrize("job", [ahead(scattered=True), ahead(history=True)])
def test_hosts_of_a_moving_job_are_scattered_and_full_dumps_tell_no_rest(job: Job, tmp_path: Path) -> None:
    assert named(verdict_of(loose(job, tmp_path))) == set()


def inside(*, left: Sequence[int] = (), backend: str = "nccl") -> Job:
    """Two halves of a job; the first is inside a reduction of its own that `left` have left, the others wait for it."""
    job = Job(8, backend)
    half = job.group(range(4), "TENSOR_MODEL_PARALLEL_GROUP")
    for _ in range(20):
        job.call(half)
        job.call(job.everyone)
    for rank in range(4):
        job.call(half, ranks=[rank], done=rank in left)
    job.call(job.everyone, ranks=[*left, 4, 5, 6, 7], done=False)
    return job


def test_a_group_that_everybody_else_waits_for_is_stuck(tmp_path: Path) -> None:
    (first,) = leaders(verdict_of(loose(inside(), tmp_path)))
    assert (first.ranks, first.rules, first.confidence) == ((0, 1, 2, 3), ("FX140",), Confidence.SUSPECT)


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_an_operation_that_one_has_left_passes(tmp_path: Path, backend: str) -> None:
    assert named(verdict_of(loose(inside(left=(2,), backend=backend), tmp_path))) == set()


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_job_that_is_inside_one_operation_as_a_whole_looks_like_one_that_moves(tmp_path: Path, backend: str) -> None:
    job = Job(8, backend)
    for _ in range(20):
        job.call(job.everyone)
    job.call(job.everyone, done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert (named(verdict), verdict.outcome) == (set(), Outcome.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("apart", "advised"),
    [
        ({0: HOST_CODE}, ["stacks of rank 0"]),
        ({0: HOST_CODE, 5: HOST_CODE}, ["stacks of ranks 0,5"]),
        ({0: HOST_CODE, 5: OTHER_CODE}, []),
        ({}, []),
    ],
    ids=["one", "two in one place", "two in two places", "nobody"],
)
def test_whoever_stands_apart_in_one_look_is_to_be_sampled_again(
    apart: Mapping[int, Place], advised: list[str], tmp_path: Path
) -> None:
    """Stacks alone, which nothing dates: a sound job may look so too."""
    places = {rank: apart.get(rank, LOADER_QUEUE) for rank in range(8)}
    verdict = verdict_of(write(tmp_path, {f"rank{rank}.json": py_spy(place, pid_of(rank)) for rank, place in places.items()}))
    assert named(verdict) == set()
    assert [text.partition(" minutes")[0] for text in verdict.would_change if "it begins there" in text] == advised


def test_whoever_is_in_another_call_than_all_in_backward_is_to_be_sampled_again(tmp_path: Path) -> None:
    """Threads that sleep in backward wait in the reduction of its hooks, of which no frame of Python shows."""
    places = {rank: BARRIER if rank == 3 else GRADIENT_HOOK for rank in range(8)}
    verdict = verdict_of(write(tmp_path, {f"rank{rank}.json": py_spy(place, pid_of(rank)) for rank, place in places.items()}))
    assert named(verdict) == set()
    assert ["stacks of rank 3" in lead and "barrier" in lead for lead in verdict.leads] == [True]


@pytest.mark.parametrize(("absent", "advised"), [({5}, True), (set(), False), ({1, 2, 3, 4, 5, 6}, False)])
def test_whose_log_is_missing(tmp_path: Path, absent: set[int], advised: bool) -> None:
    for rank in set(range(8)) - absent:
        (tmp_path / f"rank{rank}.log").write_text(
            f"world_size=8 RANK={rank} LOCAL_RANK={rank}\n"
            + "".join(f"2026-03-14 09:{minute}:11 INFO step {minute} loss 2.{minute}\n" for minute in range(10, 20))
        )
    verdict = verdict_of(tmp_path)
    assert not named(verdict) and any("py-spy dump` of rank 5:" in text for text in verdict.would_change) == advised


@pytest.mark.parametrize(("ranks", "devices"), [((0, 1, 2, 3), [(2,)]), ((1, 2, 3), [])])
def test_whose_message_of_one_without_a_dump_may_be_missing_has_no_stalled_device(
    ranks: Sequence[int], devices: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """Messages of an exchange complete one by one: rank 2 may lack that of rank 0, of which no dump is left."""
    job = Job(4, "nccl")
    for _ in range(8):
        job.call(job.everyone, "all_to_all")
    for rank in range(4):
        job.call(job.everyone, "all_to_all", ranks=[rank], done=rank != 2)
        job.call(job.everyone, "all_to_all", ranks=[rank], done=False)
    suspects = verdict_of(loose(job, tmp_path, ranks)).suspects
    assert [suspect.ranks for suspect in suspects] == devices


def seen_apart(*, computing: Sequence[int]) -> Job:
    """Rank 2 is in a reduction that all others finished; they issued the next one, which `computing` have not begun."""
    job = Job(8, "nccl")
    others = [rank for rank in range(8) if rank != 2]
    for _ in range(8):
        job.call(job.everyone, started=True)
    job.call(job.everyone, ranks=others, started=True)
    job.call(job.everyone, ranks=[2], done=False, started=True)
    for rank in others:
        job.call(job.everyone, ranks=[rank], done=False, started=rank not in computing)
    return job


@pytest.mark.parametrize(("computing", "accused"), [((), {2}), ((5,), {2}), ((5, 6), set()), ((0, 1, 4, 5, 6), set())])
def test_devices_that_compute_show_that_dumps_of_a_moving_job_are_apart(
    computing: Sequence[int], accused: set[int], tmp_path: Path
) -> None:
    """In a job that stands still they would all have come to the call that the others wait in."""
    assert named(verdict_of(loose(seen_apart(computing=computing), tmp_path))) == accused


def between(pairs: Sequence[tuple[int, int]], *, ahead: int = 0, started: bool = False) -> Job:
    """A pipeline of four stages whose hosts queued all of a step: messages of `pairs` are pending at both ends.

    Those of the first pair are through for its receiver, `ahead` of them, and pending for its sender alone.
    """
    job = Job(4, "nccl")
    group = job.group(tuple(range(4)), "PIPELINE_MODEL_PARALLEL_GROUP")
    for _ in range(6):
        for first in range(3):
            _transfer(job, group, first, first + 1)
        job.call(job.everyone)
    for sender, receiver in [pairs[0]] * ahead:
        job.call(group, f"send {sender}->{receiver}", [sender], done=False)
        job.call(group, f"recv {receiver}<-{sender}", [receiver])
    for sender, receiver in pairs[1:] if ahead else pairs:
        job.call(group, f"send {sender}->{receiver}", [sender], done=False, started=started)
        job.call(group, f"recv {receiver}<-{sender}", [receiver], done=False, started=started)
    job.call(job.everyone, done=False)
    return job


@pytest.mark.parametrize(("started", "outcome"), [(False, Outcome.INCONCLUSIVE), (True, Outcome.HANG)])
def test_one_message_that_all_else_is_behind_is_where_a_hang_would_be(started: bool, outcome: Outcome, tmp_path: Path) -> None:
    """The devices may be at work before it, unless both are inside it."""
    verdict = verdict_of(loose(between([(1, 2)], started=started), tmp_path))
    (first,) = leaders(verdict)
    assert (first.ranks, first.rules, verdict.outcome) == ((1, 2), ("FX140",), outcome)


def test_messages_between_others_at_the_same_time_are_those_of_a_pipeline_at_work(tmp_path: Path) -> None:
    assert named(verdict_of(loose(between([(0, 1), (2, 3)]), tmp_path))) == set()


def test_a_message_that_its_receiver_has_is_through(tmp_path: Path) -> None:
    assert named(verdict_of(loose(between([(1, 2)], ahead=1), tmp_path))) == set()


def test_a_message_that_passed_another_shows_that_dumps_are_of_several_moments(tmp_path: Path) -> None:
    verdict = verdict_of(loose(between([(1, 2)], ahead=2), tmp_path))
    assert named(verdict) == set()
    assert "the job moved between the dumps" in verdict.summary
