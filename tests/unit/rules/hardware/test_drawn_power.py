"""Of equal ranks one of which computes while the others wait, the GPU that draws most: on readings that are made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from forensics.model import (
    Anomaly,
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Impact,
    StageName,
    StageRef,
)
from forensics.rules.leads.power import power_leads
from forensics.rules.reductions.frontier.messages import Messengers
from forensics.rules.reductions.hardware.drawn_power import DrawnPower, highest, named_by_power
from forensics.rules.reductions.hardware.state import Gpu, Machines

EQUAL = (428, 428, 447, 449, 436, 439, 434)


def gpu(number: int, watts: int, **changed: Any) -> Gpu:
    base = Gpu(
        "a", f"GPU-{number}", f"smi.xml#GPU-{number}", "H100", None, {"power_mw": watts * 1000, "power_limit_mw": 700_000}
    )
    return replace(base, **changed)


def drawn(*watts: int, **others: Any) -> DrawnPower:
    """Of GPUs that draw so much, one a rank."""
    return highest(Machines({rank: gpu(rank, each) for rank, each in enumerate(watts)}, **others))


def test_the_gpu_that_draws_more_than_all_others_is_the_one_that_computes() -> None:
    found = drawn(*EQUAL, 552)
    assert (found.rank, found.others, found.usual, found.most) == (7, 7, 436_000, 449_000)
    assert "rank 7 draws 552 W, those of the 7 others 436 W in the middle, 449 W at most" in found.statement


@pytest.mark.parametrize("watts", [
    (*EQUAL, 470),  # as far as boards differ
    (*EQUAL, 545, 552),  # two of them
    (300, 340, 420, 500, 640, 330, 310, 700),  # readings of different moments
    (430, 436, 552),  # too few to know what is usual
    (*EQUAL, 76),  # one that idles
])  # fmt: skip
def test_no_gpu_stands_out(watts: tuple[int, ...]) -> None:
    assert drawn(*watts).rank is None


def test_gpus_of_another_model_or_a_lower_limit_are_no_measure() -> None:
    limited = {rank: gpu(rank, 400, readings={"power_mw": 400_000, "power_limit_mw": 400_000}) for rank in range(7)}
    other = {rank: gpu(rank, 400, model="L4") for rank in range(7)}
    for peers in (limited, other):
        assert highest(Machines({**peers, 7: gpu(7, 560)})).rank is None


def test_a_gpu_of_which_no_rank_is_known_may_be_the_one() -> None:
    assert drawn(*EQUAL, 552, all_gpus=(gpu(8, 560),)).rank is None
    assert drawn(*EQUAL, 552, all_gpus=(gpu(8, 70),)).rank == 7


def test_most_ranks_must_be_read() -> None:
    peers = {rank: gpu(rank, 430, readings={}) for rank in range(8, 20)}
    assert highest(Machines({**{rank: gpu(rank, watts) for rank, watts in enumerate((*EQUAL, 552))}, **peers})).rank is None


def finding(share: float | None) -> Finding:
    stage = StageRef(name=StageName.BACKWARD, component=Component.UNKNOWN)
    return Finding(
        (), Cause.UNKNOWN, stage, Belief.GROUP_SYMPTOM, Confidence.SUSPECT, (Evidence("longer on all ranks", None),),
        granularity=Granularity.JOB, anomaly=Anomaly.FAIL_SLOW, impact=Impact(None, share, None, "frontier_gain"),
    )  # fmt: skip


@pytest.mark.parametrize(("share", "ranks"), [
    (0.37, (7,)),
    (0.9, ()),  # who waits for nine tenths of the time draws less than a fifth below who computes
    (0.12, ()),  # waiting for an eighth of the time makes no fifth of the draw
    (None, ()),
])  # fmt: skip
def test_the_draw_must_be_that_of_the_time_lost(share: float | None, ranks: tuple[int, ...]) -> None:
    named = named_by_power(finding(share), drawn(*EQUAL, 552))
    assert named.ranks == ranks
    assert named.cause is (Cause.COMPUTE_SLOW if ranks else Cause.UNKNOWN)
    assert any("either pass may be the longer one" in item.statement for item in named.evidence) is bool(ranks)


def test_without_one_that_stands_out_the_finding_stays() -> None:
    assert named_by_power(finding(0.3), DrawnPower()) == finding(0.3)


def test_where_nothing_shows_a_rank_its_power_says_where_to_begin() -> None:
    (lead,) = power_leads(drawn(*EQUAL, 552), Messengers(frozenset()))
    assert "times inside calls (TORCH_NCCL_ENABLE_TIMING) of rank 7: the GPU of rank 7 draws 552 W" in lead
    assert not [
        *power_leads(drawn(*EQUAL, 552), Messengers(frozenset({0, 7}))),
        *power_leads(DrawnPower(), Messengers(frozenset())),
    ]
