"""A rank that comes late to the calls of a moving job: where it may be named, how surely, and where that is ruled out."""

from __future__ import annotations

from collections.abc import Collection as Ranks
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.model import Belief, Cause, Confidence, Finding, Impact, Members, Role, StageName, StageRef, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import run, supply_of, thresholds
from forensics.rules.interface import Undecided
from forensics.rules.reductions.arrivals.lateness import Lateness, Latenesses
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.held_down import of_held_down
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.network.stragglers import Straggler
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.device_work import DeviceWork, LongWork
from forensics.rules.reductions.pipeline.equals import came_after_all, may_wait_for, unseen_waits
from forensics.rules.reductions.pipeline.guest_hosts import may_be_of_guests
from forensics.rules.reductions.pipeline.host_work import HostWork
from forensics.rules.reductions.pipeline.late_evidence import usual_stage
from forensics.rules.reductions.pipeline.layout import AxisOf, Layout
from forensics.rules.reductions.pipeline.own_work import OwnWork
from forensics.rules.reductions.pipeline.places import Place as Position
from forensics.rules.reductions.stacks.activity import activity
from forensics.rules.reductions.stacks.call_paths import frame
from forensics.rules.reductions.stacks.rounds import AloneAtWork
from forensics.rules.reductions.stacks.samples import Sample, Stacks
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.slow import rank_awaited, rank_late
from tests.recordings.collection import Collection, loose
from tests.recordings.job import MILLISECOND, SECOND, Job
from tests.recordings.places import ALL_REDUCE, FORWARD, Place
from tests.recordings.scenarios import recorded
from tests.recordings.verdicts import leaders, stated, verdict_of
from tests.unit.frontier.recorded import synchronous, write

APART = {rank: 3 * rank * SECOND for rank in range(4)}


def two_captures(folder: Path, late_ms: int, *, backend: str = "nccl", started: bool = False) -> Verdict:
    """Loose dumps of ranks whose hosts nothing tells, with clocks of their own; rank 2 comes late to every call.

    Where calls are `started`, the device of each member begins when its host issues the call.
    """
    job, captures = Job(4, backend), []
    for number in range(2):
        for _ in range(12):
            job.clocks[2] += late_ms * MILLISECOND
            job.call(job.everyone)
        for rank, calls in job.calls.items():
            job.calls[rank] = [replace(call, started_ns=call.time_ns if started else None) for call in calls]
        name = f"rank{{rank}}.fr.{number}.json"
        captures.append(loose(job, folder / str(number), form="json", name=name, skew_ns=APART))
    return verdict_of(*captures)


def status(verdict: Verdict) -> str:
    fired = {rule for suspect in verdict.suspects for rule in suspect.rules}
    found = {outcome.rule: outcome.status for outcome in verdict.ruled_out}
    return "fired" if "FX160" in fired else found["FX160"]


def on_one_host(late_ms: int, *, place: Place = FORWARD, calls: int = 24, from_call: int = 0) -> Collection:
    """Two captures of ranks of one host, of which rank 2 is late to each call since `from_call`."""
    job = Job(4, pace_ns=100 * MILLISECOND)
    found = Collection(4, job.now_ns)
    for number in range(calls):
        job.clocks[2] += late_ms * MILLISECOND if number >= from_call else 0
        job.call(job.everyone)
        if number in (calls // 2, calls - 1):
            found.at_ns = job.now_ns + MILLISECOND
            for rank in range(4):
                found.dump(job, rank, int(number == calls - 1), found.at_ns)
    for rank in range(4):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[place if rank == 2 else ALL_REDUCE] * 3)
    return found


def test_on_unknown_hosts_the_late_rank_is_in_each_call_for_the_shortest(tmp_path: Path) -> None:
    verdict = two_captures(tmp_path, 400)
    (suspect,) = verdict.suspects
    assert (suspect.ranks, suspect.cause, suspect.confidence) == ((2,), Cause.UNKNOWN, Confidence.SUSPECT)
    assert "start times were not recorded" in stated(verdict)


def test_with_start_times_it_is_likely(tmp_path: Path) -> None:
    (suspect,) = two_captures(tmp_path, 400, started=True).suspects
    assert (suspect.ranks, suspect.confidence) == ((2,), Confidence.LIKELY)


@pytest.mark.parametrize(("backend", "late_ms"), [("gloo", 250), ("nccl", 100), ("nccl", 0)])
def test_what_dumps_of_unknown_hosts_cannot_show_is_not_ruled_out(tmp_path: Path, backend: str, late_ms: int) -> None:
    """gloo dates no end, and nothing is finer than the watchdog: a late rank would have looked the same."""
    verdict = two_captures(tmp_path, late_ms, backend=backend)
    assert not verdict.suspects
    assert status(verdict) == "silent"


@pytest.mark.parametrize(("calls", "expected"), [(24, "ruled_out"), (6, "silent")])
def test_on_one_host_enough_calls_rule_it_out(tmp_path: Path, calls: int, expected: str) -> None:
    assert status(verdict_of(on_one_host(0, calls=calls).write(tmp_path))) == expected


@pytest.mark.parametrize(("coarse_ms", "is_seen"), [(1, True), (90, True), (250, False)])
def test_where_lateness_is_dated_too_roughly_for_the_steps_nothing_is_ruled_out(coarse_ms: int, *, is_seen: bool) -> None:
    """Steps of 500 ms: a fifth of one, which would be a finding, has to be seen."""
    ranks = frozenset(range(4))
    seen = Seen(ranks, True, ranks, ranks, ranks, ranks, ranks, ranks, grouped=True, finished=True)
    late = Latenesses(seen=ranks, calls=40, least_ns=coarse_ms * MILLISECOND)
    times = StepTimes({}, np.arange(20), np.full(20, 500.0 * MILLISECOND))
    assert rank_late.RULE.clears is not None
    said = rank_late.RULE.clears(seen, late, OwnWork(), Layout(), times, {"least_share_of_time": 0.2})
    assert isinstance(said, Undecided) is not is_seen


def test_a_small_lag_from_the_first_call_on_accuses_nobody_and_is_not_ruled_out(tmp_path: Path) -> None:
    verdict = verdict_of(on_one_host(40).write(tmp_path))
    assert (verdict.suspects, status(verdict)) == ((), "silent")


def test_a_rank_that_became_late_in_the_record_is_named_with_the_moment(tmp_path: Path) -> None:
    (suspect,) = leaders(verdict_of(on_one_host(40, from_call=12).write(tmp_path)))
    assert (suspect.ranks, suspect.confidence) == ((2,), Confidence.LIKELY)
    assert suspect.since is not None


def test_on_a_host_that_is_short_of_cpu_it_is_a_suspect_and_says_so(tmp_path: Path) -> None:
    with open_case([on_one_host(400).write(tmp_path)]) as connection:
        assert diagnose(connection).suspects[0].confidence is Confidence.LIKELY
        connection.execute("UPDATE processes SET state = 'R'")
        verdict = diagnose(connection)
    (suspect,) = leaders(verdict)
    assert (suspect.ranks, suspect.confidence) == ((2,), Confidence.SUSPECT)
    assert "short of CPU" in stated(verdict)


@pytest.mark.parametrize(("late_ms", "fires"), [(40, False), (120, True)], ids=["moments", "more than a second"])
def test_moments_on_a_host_that_is_short_of_cpu_are_none_of_the_rank(tmp_path: Path, late_ms: int, fires: bool) -> None:
    """Each process waits for a core now and then, and one of them was last just now."""
    with open_case([on_one_host(late_ms, from_call=12).write(tmp_path)]) as connection:
        assert status(diagnose(connection)) == "fired"
        connection.execute("UPDATE processes SET state = 'R'")
        assert (status(diagnose(connection)) == "fired") is fires


def test_a_cause_is_named_only_when_it_accounts_for_the_cost(tmp_path: Path) -> None:
    """Of three samples one shows another place: two thirds of the time do not explain four fifths of it."""
    found = on_one_host(400)
    found.stacks(2, FORWARD, ALL_REDUCE, FORWARD)
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects[0].cause is Cause.UNKNOWN
    assert "cause unknown" in stated(verdict)
    sure = verdict_of(on_one_host(400).write(tmp_path / "sure"))
    assert sure.suspects[0].cause is Cause.COMPUTE_SLOW


@pytest.mark.parametrize(("from_step", "expected"), [(0, Confidence.SUSPECT), (30, Confidence.LIKELY)])
def test_a_small_lag_of_a_stage_is_a_suspicion_unless_it_began_in_the_record(
    from_step: int, expected: Confidence, tmp_path: Path
) -> None:
    does = np.tile(np.array([5.0, 60, 100, 4, 20])[None, :, None], (60, 1, 4))
    does[from_step:, 1, 2] += 22 if from_step == 0 else 60
    folder = write(tmp_path / "stages", synchronous(("data", "forward", "backward", "callbacks", "optimizer"), does))
    (suspect,) = leaders(verdict_of(folder))
    assert (suspect.ranks, suspect.confidence) == ((2,), expected)
    assert ("how the job is made" in " ".join(line.statement for line in suspect.evidence)) == (from_step == 0)


@pytest.mark.parametrize(("share", "onset", "sure"), [(0.15, False, False), (0.15, True, True), (0.5, False, True)])
def test_a_small_lag_that_chunks_tell_of(share: float, onset: bool, sure: bool) -> None:
    (root,) = _roots(_straggler(1, share, onset))
    assert root.confidence is (Confidence.LIKELY if sure else Confidence.SUSPECT)


def _straggler(rank: int, share: float, onset: bool) -> Straggler:
    return Straggler(
        rank, "dp", "all_reduce", (0, 1, 2, 3), 20, 20, 20, 1e6, 1e5, 2e7, share, 0, 0, 0, 2e7, 0, "log", onset, turns=20
    )


def _roots(late: Straggler) -> list[Finding]:
    supply = supply_of(recorded("rank-awaited"), instead={Slowness: Slowness(stragglers=(late,))})
    found, _ = run(supply, [rank_awaited.RULE], {})
    return [each for each in found if each.role is Role.ROOT]


@pytest.mark.parametrize(
    ("rank", "share", "onset", "accuses"),
    [(0, 0.39, False, False), (0, 0.41, False, True), (0, 0.39, True, True), (1, 0.39, False, True)],
)
def test_a_master_rank_is_held_against_its_own_history(rank: int, share: float, onset: bool, accuses: bool) -> None:
    """It may log and save: where it was in time before, or takes half of each step, it is accused like any other rank."""
    (root,) = _roots(_straggler(rank, share, onset))
    assert (root.by_design is None) == accuses


@pytest.mark.parametrize(("held_ns", "accuses"), [(9e5, True), (4e5, False)])
def test_a_master_rank_is_accused_where_its_gpu_accounts_for_its_lateness(held_ns: float, accuses: bool) -> None:
    (root,) = _roots(replace(_straggler(0, 0.3, False), held_ns=held_ns))
    assert (root.by_design is None) == accuses == (root.cause is Cause.COMPUTE_SLOW)


@pytest.mark.parametrize(("usual_ms", "accuses"), [(5, True), (11, False)])
def test_less_than_a_tenth_of_the_operation_is_no_lateness(usual_ms: int, accuses: bool) -> None:
    assert bool(_roots(replace(_straggler(1, 0.5, True), usual_ns=usual_ms * 1e6))) == accuses


def test_a_second_is_late_in_any_operation() -> None:
    long = replace(_straggler(1, 0.5, True), typical_ns=1.1e9, spread_ns=0.0, usual_ns=60e9)
    assert _roots(long) and not _roots(replace(long, typical_ns=0.9e9))


REPLICAS = {rank: Position(replica=rank // 2) for rank in range(8)}
"""Four replicas of a pipeline of two stages."""


@pytest.mark.parametrize(
    ("places", "axis", "messengers", "expected"),
    [
        (REPLICAS, Axis.DATA, {0}, {2}),
        (REPLICAS, Axis.DATA, (), ()),
        (REPLICAS, Axis.TENSOR, {0}, ()),
        ({}, Axis.DATA, {0}, {0, 1, 2, 4, 5, 6, 7}),
    ],
    ids=["its pipeline", "no messages", "they get the same", "replicas not known"],
)
def test_who_is_late_may_wait_for_messages_that_nothing_records(
    places: dict[int, Position], axis: Axis, messengers: Ranks[int], expected: Ranks[int]
) -> None:
    late = Lateness(3, "a", "all_reduce", (1, 3, 5, 7), 20, 20, 10**10, 0.4, 5 * 10**8, "rank3")
    layout = Layout(axes={"a": AxisOf(axis)}, places=places)
    assert may_wait_for(late, layout, messengers, range(8)) == {*expected}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"members": (1, 3, 5, 7)}, False),
        ({"before_ns": 4 * 10**8}, False),
        ({"before_ns": None}, False),
        ({"late": 19}, False),
        ({"on_own_clocks": True}, False),
    ],
    ids=["all others were there", "others may work", "by its share of a longer step", "always", "not each time", "queued"],
)
def test_nobody_who_waits_already_has_a_message_to_send(changed: dict[str, Any], expected: bool) -> None:
    late = Lateness(3, "a", "all_reduce", tuple(range(8)), 20, 20, 10**10, 0.4, 10**9, "rank3", before_ns=10**6)
    assert came_after_all(replace(late, **changed), range(8), 10.0) is expected


@pytest.mark.parametrize(
    ("at_work", "may_wait"), [(3, False), (2, True), (None, True)], ids=["itself", "another one", "nobody"]
)
def test_who_is_at_work_while_all_others_wait_waits_for_no_message(at_work: int | None, may_wait: bool) -> None:
    late = Lateness(3, "a", "all_reduce", (1, 3, 5, 7), 20, 20, 10**10, 0.4, 5 * 10**8, "rank3")
    alone = None if at_work is None else AloneAtWork(at_work, (), 6, 0)
    assert bool(unseen_waits(late, Layout(), {0}, range(8), alone, 10.0)) is may_wait


@pytest.mark.parametrize(
    ("within", "axis", "speaks"),
    [(0.15, Axis.TENSOR, True), (0.05, Axis.TENSOR, False), (0.15, Axis.CONTEXT, False), (None, Axis.TENSOR, False)],
    ids=["to its equals too", "by little", "to others that have other work", "to replicas only"],
)
def test_who_is_late_to_its_equals_too_is_not_made_so_by_the_job(within: float | None, axis: Axis, speaks: bool) -> None:
    """Late to its replicas from the first call on, by less than half of the time."""
    late = Lateness(3, "dp", "all_reduce", (1, 3), 20, 20, 10**10, 0.25, 5 * 10**8, "rank3", on_own_clocks=True)
    inner = Lateness(3, "tp", "all_reduce", (2, 3), 900, 890, 10**10, within or 0.0, 10**7, "rank3", on_own_clocks=True)
    layout = Layout(axes={"dp": AxisOf(Axis.DATA), "tp": AxisOf(axis)})
    stated = replace(late, within=inner if within else None)
    assert rank_late._speaks(stated, layout, thresholds(rank_late.RULE, {})) is speaks


@pytest.mark.parametrize(
    ("factors", "read", "share", "counts"),
    [
        ({3: 1.5}, {2, 3}, 0.05, True),
        ({3: 1.1}, {2, 3}, 0.05, False),
        ({3: 1.5, 2: 1.1}, {2, 3}, 0.05, False),
        ({3: 1.5}, {3}, 0.05, False),
        ({3: 1.5}, {2, 3}, 0.02, False),
        ({2: 1.5}, {2, 3}, 0.05, False),
    ],
    ids=["alone", "by little", "its equal too", "its equal was not read", "late by next to nothing", "its equal"],
)
def test_a_little_lateness_to_equals_counts_where_clocks_are_held_down(
    factors: dict[int, float], read: set[int], share: float, counts: bool
) -> None:
    late = Lateness(3, "tp", "all_reduce", (2, 3), 900, 890, 10**10, share, 10**7, "rank3", on_own_clocks=True)
    layout = Layout(axes={"tp": AxisOf(Axis.TENSOR)})
    signs = {rank: (Sign(Oddity.THROTTLED, "held down", "smi", factor),) for rank, factor in factors.items()}
    known = Hardware(signs, frozenset(read))
    assert rank_late._material(late, layout, thresholds(rank_late.RULE, {}), known) is counts


@pytest.mark.parametrize(
    ("late", "before_ms", "counts"),
    [(6, 0, True), (5, 0, False), (6, 400, False), (6, None, False)],
    ids=["always since", "not to all", "it was late before", "always"],
)
def test_six_calls_of_two_ranks_are_enough_where_the_rank_is_far_later_than_before(
    late: int, before_ms: int | None, counts: bool
) -> None:
    """By chance alone one of two comes last six times in 32."""
    since, before = (None, None) if before_ms is None else (7, before_ms * MILLISECOND)
    found = Lateness(6, "dp", "all_reduce", (6, 14), 6, late, 10**10, 0.6, 25 * 10**8, "rank6", since, before)
    layout = Layout(axes={"dp": AxisOf(Axis.DATA)})
    assert rank_late._material(found, layout, thresholds(rank_late.RULE, {})) is counts


@pytest.mark.parametrize(
    ("factors", "share", "named"),
    [
        ({2: 2.4}, 0.26, (2,)),
        ({3: 2.4}, 0.26, (3,)),
        ({2: 2.4, 3: 2.4}, 0.26, None),
        ({7: 2.4}, 0.26, None),
        ({2: 1.1}, 0.26, None),
        ({2: 1.3}, 0.6, None),
        ({}, 0.26, None),
    ],
    ids=["a peer", "itself", "two", "another one", "by little", "by less than it costs", "nobody"],
)
def test_a_lag_that_was_always_there_is_that_of_the_only_gpu_whose_clocks_account_for_it(
    factors: dict[int, float], share: float, named: tuple[int, ...] | None
) -> None:
    """Of rank 1 nothing was read: that its clocks are not known accuses it of nothing."""
    signs = {rank: (Sign(Oddity.THROTTLED, "held down", "smi", factor),) for rank, factor in factors.items()}
    late = Finding(
        (1, 2, 3), Cause.UNKNOWN, StageRef(StageName.OPTIMIZER), Belief.BEHIND_AND_BUSY, Confidence.SUSPECT, (),
        members=Members.ONE_OF, impact=Impact(10**9, share, 15, "arrival"),
    )  # fmt: skip
    found = of_held_down(late, Hardware(signs, frozenset({2, 3, 7})), (Cause.UNKNOWN,), 1.2)
    assert (found and found.ranks) == named
    assert found is None or (found.members, found.stage.name) == (Members.EACH, StageName.UNKNOWN)


@pytest.mark.parametrize(
    ("ranks", "members", "left_out"),
    [
        ((1, 2, 4), Members.ONE_OF, True),
        ((1, 2), Members.ONE_OF, False),
        ((4,), Members.EACH, False),
        ((1, 2, 4, 5), Members.EACH, False),
    ],
    ids=["some of the host", "others", "one of the host itself", "each of them"],
)
def test_open_lateness_that_a_host_with_guests_may_account_for_is_no_second_fault(
    ranks: tuple[int, ...], members: Members, left_out: bool
) -> None:
    late = Finding(ranks, Cause.UNKNOWN, StageRef(), Belief.GROUP_SYMPTOM, Confidence.SUSPECT, (), members=members)
    host = replace(late, ranks=(4, 5), cause=Cause.GPU_CONTENTION, members=Members.EACH)
    assert may_be_of_guests(late, [host]) is left_out and not may_be_of_guests(late, [])


@pytest.mark.parametrize(("slow", "expected"), [((), [(3, (2,))]), ((3,), [(3, ())]), ((2,), []), ((2, 3), [(3, (2,))])])
def test_traces_of_what_hosts_work_distinguish_ranks_of_a_pipeline(
    slow: tuple[int, ...], expected: list[tuple[int, tuple[int, ...]]]
) -> None:
    """Who works as long as others where another one works longer passes on what that one costs."""
    late = Lateness(3, "a", "all_reduce", (1, 3), 20, 20, 10**10, 0.4, 5 * 10**8, "rank3")
    long = (LongWork(rank, (), 4, 9e8, 4e8, 10e8, 4e8, StageName.UNKNOWN, None) for rank in slow)
    hosts = HostWork(DeviceWork(tuple(long), frozenset(range(4))))
    assert [(item.rank, others) for item, others in rank_late._distinguished([(late, (2,))], (OwnWork(), hosts))] == expected


@pytest.mark.parametrize(("in_passes", "stage"), [(False, StageName.CHECKPOINT), (True, StageName.FORWARD)])
def test_a_checkpoint_at_the_samples_is_no_stage_of_who_is_late_in_each_pass(stage: StageName, *, in_passes: bool) -> None:
    save = frame("save", "/opt/conda/lib/python3.11/site-packages/torch/serialization.py", 1)
    forward = frame("forward", "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/linear.py", 2)
    places = [(forward,), (save,), (save,)]
    samples = tuple(Sample(n, 4, 4, True, False, activity(each), "s#thread=4") for n, each in enumerate(places))
    late = Lateness(0, "tp", "all_reduce", (0, 1), 300, 290, 10**9, 0.3, 5 * 10**6, "dump")
    assert usual_stage({0: Stacks(samples, (), ())}, late, in_passes=in_passes)[0] is stage
