"""Ranks that come late because their calls take long, once all are there, and those that are slow by themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.model import (
    Anomaly,
    Belief,
    Cause,
    Component,
    Confidence,
    Finding,
    Granularity,
    Impact,
    StageRef,
)
from forensics.rules.reductions.arrivals.lateness import Lateness, Latenesses
from forensics.rules.reductions.epochs.judged import JudgedLink
from forensics.rules.reductions.epochs.links import LinkRate
from forensics.rules.reductions.epochs.slow_links import JudgedLinks
from forensics.rules.reductions.network.call_paces import CallPace, CallPaces
from forensics.rules.reductions.network.late_by_calls import in_slow_transfers, is_late_by_calls

MS = 1e6
RING = (3, 11, 19, 27)
NOBODY = JudgedLinks(())


def late(rank: int, share: float, communicator: str | None = None) -> Lateness:
    """A rank that comes last to nearly all calls of its host's ranks."""
    members = tuple(range(rank // 8 * 8, rank // 8 * 8 + 8))
    name = communicator or f"host{rank // 8}"
    return Lateness(rank, name, "reduce_scatter", members, 100, 90, 10**9, share, 30_000_000, "x.fr", on_device=True)


def slow(*ranks: int, took_ms: float = 38.0, usual_ms: float = 7.0, kind: str = "all_reduce") -> CallPace:
    """Calls between hosts that take so long, a hundred in 10 s."""
    return CallPace("ring", kind, ranks, took_ms * MS, 100, 10e9, "x.fr", usual_ms * MS, 7, 4)


@pytest.mark.parametrize(
    ("shares", "call", "by_calls"),
    [
        ((0.4, 0.42, 0.4, 0.43), slow(*RING), True),
        ((0.4, 0.42, 0.1, 0.43), slow(*RING), False),
        ((0.4, 0.42, 0.43), slow(*RING), False),
        ((0.4, 0.42, 0.4, 0.43), slow(*RING, took_ms=8), False),
        ((0.4, 0.42, 0.4, 0.43), slow(*RING, took_ms=20), False),
        ((0.4, 0.42, 0.4, 0.43), slow(4, 12, 20, 28), False),
    ],
    ids=["all alike", "one is not", "one is in time", "calls are as fast", "calls lose too little", "calls of others"],
)
def test_where_all_members_of_slow_calls_are_late_elsewhere_it_is_the_calls(
    shares: tuple[float, ...], call: CallPace, by_calls: bool
) -> None:
    found = tuple(late(rank, share) for rank, share in zip(RING, shares, strict=False))
    assert is_late_by_calls(found[0], Latenesses(found), CallPaces((call,))) is by_calls


def test_lateness_to_the_slow_calls_themselves_is_no_consequence_of_them() -> None:
    found = tuple(late(rank, 0.4, "ring") for rank in RING)
    assert not is_late_by_calls(found[0], Latenesses(found), CallPaces((slow(*RING),)))


LATE = Finding(
    ranks=(21,), cause=Cause.COMPUTE_SLOW, stage=StageRef(component=Component.COMPUTE), belief=Belief.BEHIND_AND_BUSY,
    confidence=Confidence.LIKELY, evidence=(), granularity=Granularity.RANK, anomaly=Anomaly.FAIL_SLOW,
    impact=Impact(None, 0.12, 200, "arrival"),
)  # fmt: skip
MESSAGES = CallPaces((slow(21, 13, kind="send"), slow(29, 21, kind="send"), slow(5, 13, took_ms=7, kind="send")))


def test_a_device_that_is_late_by_its_own_transfers_computes_no_longer() -> None:
    found = in_slow_transfers(LATE, MESSAGES, NOBODY)
    assert (found.cause, found.ranks, found.stage.component) == (Cause.UNKNOWN, (21,), Component.UNKNOWN)
    assert "may have waited" in found.evidence[-1].statement


@pytest.mark.parametrize(
    "finding",
    [
        replace(LATE, ranks=(5,)),
        replace(LATE, cause=Cause.GPU_CONTENTION),
        replace(LATE, impact=Impact(None, 0.9, 200, "arrival")),
    ],
    ids=["of another rank", "of another cause", "it loses far more"],
)
def test_a_device_that_is_late_by_something_else_is_left_as_it_is(finding: Finding) -> None:
    paces = CallPaces(tuple(replace(each, calls=50) for each in MESSAGES.compared))
    assert in_slow_transfers(finding, paces, NOBODY) == finding


@pytest.mark.parametrize(("cost", "cause"), [(0.04, Cause.UNKNOWN), (0.02, Cause.COMPUTE_SLOW)])
def test_what_its_nic_loses_in_one_direction_accounts_for_it_as_well(cost: float, cause: Cause) -> None:
    slow_ones = tuple(judged(ends, 3e9, cost) for ends in ((21, 13), (29, 21), (13, 21), (21, 29)))
    others = tuple(judged(ends, 24e9, cost) for ends in ((13, 5), (5, 29), (29, 5), (5, 13)))
    assert in_slow_transfers(LATE, CallPaces(), JudgedLinks((*slow_ones, *others))).cause is cause


def judged(ends: tuple[int, int], rate: float, cost: float, usual: float = 24e9) -> JudgedLink:
    """A link that loses so much of the time if it is slow."""
    volume = cost / (1 / 3e9 - 1 / usual)
    return JudgedLink(LinkRate(*ends, rate, volume, 10, 10**9, ends[0], "x.epochs"), usual, 8, rate < usual)
