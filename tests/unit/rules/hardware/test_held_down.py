"""Where all ranks became longer, the only GPU whose clocks are held down is who they wait for: signs that are made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Anomaly, Belief, Cause, Confidence, Finding, Granularity, Impact, StageName, StageRef
from forensics.rules.diagnosis import diagnose
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.held_down import named_by_clocks
from tests.unit.pipeline.simulated import case_of

RANKS = range(8)
LONGER = Finding(
    ranks=(), cause=Cause.UNKNOWN, stage=StageRef(name=StageName.BACKWARD), belief=Belief.GROUP_SYMPTOM,
    confidence=Confidence.SUSPECT, evidence=(), granularity=Granularity.JOB, anomaly=Anomaly.FAIL_SLOW,
    impact=Impact(round(250 * MS), 0.5, 20, "frontier_gain"),
)  # fmt: skip


def held(*factors: float, read: int = 8) -> Hardware:
    """GPUs of the first ranks, whose clocks are lower by so much."""
    signs = {
        rank: (Sign(Oddity.THROTTLED, "the power limit is low", f"smi.xml#GPU-{rank}", factor=factor),)
        for rank, factor in enumerate(factors)
    }
    return Hardware(signs, frozenset(range(read)))


def test_all_wait_for_the_only_gpu_that_is_held_down() -> None:
    found = named_by_clocks(LONGER, held(2.4), RANKS)
    assert (found.ranks, found.cause, found.stage.name) == ((0,), Cause.GPU_THROTTLED, StageName.UNKNOWN)
    assert found.confidence is Confidence.SUSPECT and not found.evidence[-1].supports


@pytest.mark.parametrize(
    ("hardware", "share"),
    [(held(), 0.5), (held(2.4, 2.4), 0.5), (held(1.1), 0.05), (held(1.3), 0.5), (held(2.4, read=6), 0.5)],
    ids=["none", "two", "as boards differ", "too little for the cost", "others were not read"],
)
def test_who_is_not_alone_or_does_not_account_for_it_is_not_named(hardware: Hardware, share: float) -> None:
    longer = replace(LONGER, impact=Impact(round(250 * MS), share, 20, "frontier_gain"))
    assert named_by_clocks(longer, hardware, RANKS) == longer


def test_who_is_named_by_other_evidence_stays() -> None:
    named = replace(LONGER, ranks=(3,))
    assert named_by_clocks(named, held(2.4), RANKS) == named


def test_a_limited_gpu_of_a_job_whose_hosts_all_wait_in_backward(tmp_path: Path) -> None:
    made = simulate(PRESETS["ddp-8"], [parse("gpu-throttled@rank6:200+lasting")], 8, after_s=14)
    with case_of(made, tmp_path, sources=("recorder", "counters", "stages")) as connection:
        (suspect,) = diagnose(connection).suspects
    assert (suspect.ranks, suspect.cause) == ((6,), Cause.GPU_THROTTLED)
