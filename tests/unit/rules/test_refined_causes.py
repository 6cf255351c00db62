"""Rules on slow jobs say what the hardware shows of the rank that they accuse, and nothing else changes by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from duckdb import DuckDBPyConnection

from forensics.case.build import open_case
from forensics.model import Cause, Finding, Role, StageName
from forensics.rules.engine import run, supply_of
from forensics.rules.interface import Rule
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.progress.liveness import SILENCE_FACTOR
from forensics.rules.reductions.progress.motion import SilenceFactor
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.slow import rank_awaited, rank_late, stage_slow, transfer_slow
from forensics.rules.supply import Supply
from tests.unit.frontier.recorded import MS, synchronous, write

SCENARIOS = Path(__file__).parents[3] / "fixtures/scenarios"
STAGES = ("data", "forward", "backward", "callbacks", "optimizer")


def case_of(scenario: str) -> DuckDBPyConnection:
    return open_case([SCENARIOS / scenario / "bundle.tar.zst"])


def roots(rule: Rule, case: DuckDBPyConnection, instead: Mapping[object, object] | None = None) -> list[Finding]:
    """What a rule finds with some reductions replaced."""
    supply = Supply({DuckDBPyConnection: case, SilenceFactor: SILENCE_FACTOR, **(instead or {})})
    return [found for found in run(supply, [rule], {})[0] if found.role is Role.ROOT]


def odd(kind: Oddity, ranks: Iterable[int]) -> Hardware:
    return Hardware({rank: (Sign(kind, f"odd of rank {rank}", f"smi.xml#{rank}"),) for rank in ranks})


def refined(
    rule: Rule, case: DuckDBPyConnection, kind: Oddity, instead: Mapping[object, object] | None = None
) -> tuple[Finding, Finding]:
    """The root without any sign, and with one on the ranks that it names."""
    (before,) = roots(rule, case, instead)
    (after,) = roots(rule, case, {**(instead or {}), Hardware: odd(kind, before.ranks)})
    return before, after


@pytest.mark.parametrize(
    ("scenario", "rule", "kind", "cause"),
    [
        ("rank-awaited", rank_awaited.RULE, Oddity.THROTTLED, Cause.GPU_THROTTLED),
        ("rank-awaited", rank_awaited.RULE, Oddity.SHARED, Cause.GPU_CONTENTION),
        ("transfer-slow", transfer_slow.RULE, Oddity.NARROW, Cause.PCIE_DEGRADED),
        ("transfer-slow", transfer_slow.RULE, Oddity.CONGESTED, Cause.NETWORK_CONGESTION),
    ],
)
def test_what_the_accused_rank_shows_names_the_cause(scenario: str, rule: Rule, kind: Oddity, cause: Cause) -> None:
    before, after = refined(rule, case_of(scenario), kind)
    assert before.cause is not cause and after.cause is cause
    assert (
        after.evidence == (*before.evidence, after.evidence[-1]) and after.evidence[-1].source == f"smi.xml#{before.ranks[0]}"
    )
    assert (after.ranks, after.confidence, after.strength) == (before.ranks, before.confidence, before.strength)


@pytest.mark.parametrize(
    ("scenario", "rule", "kind"),
    [
        ("rank-awaited", rank_awaited.RULE, Oddity.CONGESTED),
        ("transfer-slow", transfer_slow.RULE, Oddity.THROTTLED),
        ("rank-late", rank_late.RULE, Oddity.THROTTLED),
        ("stage-slow", stage_slow.RULE, Oddity.THROTTLED),
    ],
)
def test_what_does_not_explain_the_finding_changes_nothing(scenario: str, rule: Rule, kind: Oddity) -> None:
    before, after = refined(rule, case_of(scenario), kind)
    assert before == after


def test_odd_hardware_of_others_changes_nothing_and_accuses_nobody() -> None:
    case = case_of("rank-awaited")
    (before,) = roots(rank_awaited.RULE, case)
    others = odd(Oddity.THROTTLED, {rank for rank in range(16) if rank not in before.ranks})
    assert roots(rank_awaited.RULE, case, {Hardware: others}) == [before]


def test_a_late_rank_that_computes() -> None:
    case = case_of("rank-late")
    (late,) = roots(rank_late.RULE, case)
    stacks = supply_of(case).get(StacksByRank)
    own = stacks[late.ranks[0]]
    forward = tuple(replace(look, activity=replace(look.activity, stage=StageName.FORWARD)) for look in own.main)
    computing: Mapping[object, object] = {StacksByRank: {**stacks, late.ranks[0]: replace(own, main=forward)}}
    before, after = refined(rank_late.RULE, case, Oddity.THROTTLED, computing)
    assert (before.cause, after.cause) == (Cause.COMPUTE_SLOW, Cause.GPU_THROTTLED)


def test_a_stage_whose_device_time_is_long(tmp_path: Path) -> None:
    does = np.tile(np.array([5.0, 60, 100, 4, 20])[None, :, None], (130, 1, 8))
    device = np.full((130, 8), 55.0 * MS)
    does[:, 2, 3] += 120
    device[:, 3] += 120 * MS
    folder = write(tmp_path / "stages", synchronous(STAGES, does), device=("forward", device), every=10)
    before, after = refined(stage_slow.RULE, open_case([folder]), Oddity.SHARED)
    assert (before.cause, after.cause) == (Cause.COMPUTE_SLOW, Cause.GPU_CONTENTION)
