"""Rules on slow jobs say what the hardware shows of the rank that they accuse, and nothing else changes by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from duckdb import DuckDBPyConnection

from forensics.case.build import open_case
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Parallelism
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Cause, Finding, Members, Role, StageName
from forensics.rules.engine import run, supply_of
from forensics.rules.interface import Rule
from forensics.rules.reductions.arrivals.lateness import Latenesses
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import judge
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.slow import rank_awaited, rank_late, stage_slow, transfer_slow
from tests.recordings.scenarios import recorded
from tests.unit.frontier.recorded import MS, synchronous, write
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

STAGES = ("data", "forward", "backward", "callbacks", "optimizer")


def roots(rule: Rule, case: DuckDBPyConnection, instead: Mapping[object, object] | None = None) -> list[Finding]:
    """What a rule finds with some reductions replaced."""
    supply = supply_of(case, instead=instead)
    return [found for found in run(supply, [rule], {})[0] if found.role is Role.ROOT]


def odd(kind: Oddity, ranks: Iterable[int], factor: float | None = 1000.0) -> Hardware:
    share = 1.0 if kind is Oddity.CONGESTED else None
    about = (None if share else factor, share)
    return Hardware({rank: (Sign(kind, f"odd of rank {rank}", f"smi.xml#{rank}", *about),) for rank in ranks})


def refined(
    rule: Rule,
    case: DuckDBPyConnection,
    kind: Oddity,
    instead: Mapping[object, object] | None = None,
    factor: float | None = 1000.0,
) -> tuple[Finding, Finding]:
    """The root without any sign, and with one on the ranks that it names, by default bad enough for any cost."""
    (before,) = roots(rule, case, instead)
    (after,) = roots(rule, case, {**(instead or {}), Hardware: odd(kind, before.ranks, factor)})
    return before, after


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "rule", "kind", "cause"),
    [
        ("rank-awaited", rank_awaited.RULE, Oddity.THROTTLED, Cause.GPU_THROTTLED),
        ("rank-awaited", rank_awaited.RULE, Oddity.SHARED, Cause.GPU_CONTENTION),
        ("transfer-slow", transfer_slow.RULE, Oddity.NARROW, Cause.PCIE_DEGRADED),
        ("transfer-slow", transfer_slow.RULE, Oddity.CONGESTED, Cause.NETWORK_CONGESTION),
    ],
)
@pytest.mark.first(1)
def test_what_the_accused_rank_shows_names_the_cause(scenario: str, rule: Rule, kind: Oddity, cause: Cause) -> None:
    before, after = refined(rule, recorded(scenario), kind)
    assert before.cause is not cause and after.cause is cause
    assert (
        after.evidence == (*before.evidence, after.evidence[-1]) and after.evidence[-1].source == f"smi.xml#{before.ranks[0]}"
    )
    assert (after.ranks, after.confidence) == (before.ranks, before.confidence)


@pytest.mark.parametrize(
    ("scenario", "rule", "kind"),
    [
        ("rank-awaited", rank_awaited.RULE, Oddity.CONGESTED),
        ("transfer-slow", transfer_slow.RULE, Oddity.THROTTLED),
        ("rank-late", rank_late.RULE, Oddity.THROTTLED),
        ("stage-slow", stage_slow.RULE, Oddity.THROTTLED),
    ],
)
@pytest.mark.first(1)
def test_what_does_not_explain_the_finding_changes_nothing(scenario: str, rule: Rule, kind: Oddity) -> None:
    before, after = refined(rule, recorded(scenario), kind)
    assert before == after


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "said"), [(1.1, "accounts for 3 %"), (None, "was not measured")])
def test_what_does_not_account_for_the_cost_is_shown_and_is_not_the_cause(factor: float | None, said: str) -> None:
    """Clocks lower by a tenth do not make a step four times as long."""
    before, after = refined(rank_awaited.RULE, recorded("rank-awaited"), Oddity.THROTTLED, factor=factor)
    assert after.cause is before.cause
    shown = [line.statement for line in after.evidence[len(before.evidence) :]]
    assert shown[0] == f"odd of rank {before.ranks[0]}" and "cause unknown" in shown[1] and said in shown[1]


def test_odd_hardware_of_others_changes_nothing_and_accuses_nobody() -> None:
    case = recorded("rank-awaited")
    (before,) = roots(rank_awaited.RULE, case)
    others = odd(Oddity.THROTTLED, {rank for rank in range(16) if rank not in before.ranks})
    assert roots(rank_awaited.RULE, case, {Hardware: others}) == [before]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "read", "factor", "meant"),
    [
        (Oddity.THROTTLED, range(4), 1000.0, (2,)),
        (Oddity.NARROW, range(4), 1000.0, (0, 1, 2, 3)),
        (Oddity.THROTTLED, range(1, 4), 1000.0, (0, 2)),
        (Oddity.SHARED, range(4), 1000.0, (0, 1, 2, 3)),
        (Oddity.THROTTLED, range(4), 1.01, (0, 1, 2, 3)),
    ],
    ids=["held down", "fewer lanes, which may carry little", "one was not read", "a guest that may idle", "too little"],
)
def test_one_of_several_is_the_one_whose_gpu_accounts_for_it(
    kind: Oddity, read: Iterable[int], factor: float, meant: tuple[int, ...]
) -> None:
    """Ranks in step are late together; of the GPUs that were read one alone is slow enough."""
    (single,) = roots(rank_awaited.RULE, recorded("rank-awaited"))
    several = replace(single, ranks=(0, 1, 2, 3), members=Members.ONE_OF, cause=Cause.COMPUTE_SLOW)
    found = replace(odd(kind, [2], factor), read=frozenset(read)).refined(several, (Cause.COMPUTE_SLOW,))
    assert (found.ranks, found.members) == (meant, Members.EACH if len(meant) == 1 else Members.ONE_OF)
    assert ("GPUs of ranks" in found.evidence[-1].statement) is (len(meant) < len(several.ranks))


@pytest.mark.slow
def test_a_late_rank_that_computes() -> None:
    case = recorded("rank-late")
    (late,) = roots(rank_late.RULE, case)
    stacks = supply_of(case).get(StacksByRank)
    own = stacks[late.ranks[0]]
    forward = tuple(replace(sample, activity=replace(sample.activity, stage=StageName.FORWARD)) for sample in own.main)
    known = supply_of(case).get(Latenesses)
    half = replace(known, found=(replace(known.found[0], share=0.5),))
    computing: Mapping[object, object] = {StacksByRank: {**stacks, late.ranks[0]: replace(own, main=forward)}, Latenesses: half}
    before, after = refined(rank_late.RULE, case, Oddity.THROTTLED, computing)
    assert (before.cause, after.cause) == (Cause.COMPUTE_SLOW, Cause.GPU_THROTTLED)


@pytest.mark.slow
def test_a_rank_that_works_longer_than_its_equals_by_its_gpu(tmp_path: Path) -> None:
    job = replace(DENSE, parallel=Parallelism(pipeline=2, data=4), model=replace(DENSE.model, forward_ns=60 * MS))
    with case_of(simulate(job, [parse("gpu-throttled@rank6:250")], 3, iterations=14), tmp_path, timing=True) as case:
        before, after = refined(rank_late.RULE, case, Oddity.THROTTLED)
        _, little = refined(rank_late.RULE, case, Oddity.THROTTLED, factor=1.01)
    assert (before.ranks, before.cause, after.cause) == ((6,), Cause.UNKNOWN, Cause.GPU_THROTTLED)
    assert little.cause is Cause.UNKNOWN, "clocks lower by a hundredth are not what it is late by"


def test_a_stage_whose_device_time_is_long(tmp_path: Path) -> None:
    does = np.tile(np.array([5.0, 60, 100, 4, 20])[None, :, None], (130, 1, 8))
    device = np.full((130, 8), 55.0 * MS)
    does[:, 2, 3] += 120
    device[:, 3] += 120 * MS
    folder = write(tmp_path / "stages", synchronous(STAGES, does), device=("forward", device), every=10)
    before, after = refined(stage_slow.RULE, open_case([folder]), Oddity.SHARED)
    assert (before.cause, after.cause) == (Cause.COMPUTE_SLOW, Cause.GPU_CONTENTION)


def test_stages_that_explain_a_part_of_what_became_longer_name_no_cause(tmp_path: Path) -> None:
    does = np.tile(np.array([5.0, 60, 100, 4, 20])[None, :, None], (60, 1, 4))
    does[30:, 0, 2] += 80
    case = open_case([write(tmp_path / "stages", synchronous(STAGES, does))])
    (whole,) = roots(stage_slow.RULE, case)
    assert (whole.ranks, whole.cause) == ((2,), Cause.DATALOADER_STALL)
    judged = judge(supply_of(case).get(FrontierWindows)[0], Gates())
    assert judged.attribution.accounted == pytest.approx(1.0, abs=0.1)
    half = replace(judged, attribution=replace(judged.attribution, accounted=0.5))
    (culprit,) = judged.attribution.culprits
    part = stage_slow._finding(supply_of(case).get(Communicators), half, culprit, Gates().least_accounted)
    assert (part.ranks, part.cause, part.stage.name) == ((2,), Cause.UNKNOWN, StageName.DATA)
    assert "accounts for 50 % of the lost time" in part.evidence[-1].statement
