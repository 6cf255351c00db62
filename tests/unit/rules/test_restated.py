"""That one of a group is to blame says less than what other evidence shows of a link in it."""

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
    Family,
    Finding,
    Granularity,
    Members,
    Role,
    StageRef,
)
from forensics.rules.arbitration import _settled
from forensics.rules.explain import Hypothesis, faults
from forensics.rules.restated import leaves_open, says_less

GROUP = Finding(
    rule="FX3", ranks=(0, 1, 2, 3), role=Role.ROOT, cause=Cause.UNKNOWN, stage=StageRef(component=Component.COMMUNICATION),
    belief=Belief.GROUP_SYMPTOM, confidence=Confidence.SUSPECT, evidence=(), members=Members.ONE_OF,
)  # fmt: skip
LINK = replace(
    GROUP, rule="FX1", ranks=(0, 2), cause=Cause.NETWORK_DOWN, belief=Belief.BEHIND_AND_BUSY, confidence=Confidence.LIKELY,
    granularity=Granularity.LINK,
)  # fmt: skip
AGAINST = (Evidence("it carries other messages", "0.frx#entry=1", supports=False),)


def less(link: Finding, families: set[Family]) -> bool:
    """Whether that one of the group is to blame is left out: all four wait, and the link accounts for two of them."""
    waits = frozenset((0, rank) for rank in range(4))
    group = Hypothesis(GROUP, ("FX3",), waits, frozenset(), frozenset({Family.RECORDER}))
    return says_less(group, Hypothesis(link, ("FX1",), frozenset({(0, 0), (0, 2)}), frozenset(), frozenset(families)))


def test_a_link_that_other_evidence_shows_says_more() -> None:
    assert less(LINK, {Family.SHIM}) and less(LINK, {Family.SHIM, Family.RECORDER})


@pytest.mark.parametrize(
    "changes",
    [{"confidence": Confidence.SUSPECT}, {"granularity": Granularity.GROUP}, {"ranks": (2, 7)}, {"evidence": AGAINST}],
    ids=["suspected", "no link", "not in the group", "contradicted"],
)
def test_what_is_not_shown_leaves_the_group(changes: dict[str, Any]) -> None:
    assert not less(replace(LINK, **changes), {Family.SHIM})


def test_one_of_a_host_says_less_than_the_rank_that_is_named_for_the_same_cause() -> None:
    waits = frozenset((0, rank) for rank in range(4))
    named = replace(LINK, ranks=(2,), cause=Cause.COMPUTE_HANG, granularity=Granularity.RANK, members=Members.EACH)
    host = replace(LINK, ranks=(2, 3), cause=Cause.COMPUTE_HANG, members=Members.ONE_OF)
    first = Hypothesis(named, ("FX1",), waits, frozenset(), frozenset({Family.RECORDER}))

    def left_out(finding: Finding, seen: frozenset[tuple[int, int]] = waits) -> bool:
        return leaves_open(Hypothesis(finding, ("FX2",), seen, frozenset(), frozenset({Family.SHIM})), first)

    assert left_out(host)
    assert not left_out(replace(host, ranks=(1, 3)))
    assert not left_out(replace(host, cause=Cause.NETWORK_DOWN))
    assert not left_out(host, waits | {(1, 0)})


@pytest.mark.parametrize(
    ("cause", "confidence", "ranks", "left_out"),
    [
        (Cause.NETWORK_CONGESTION, Confidence.SUSPECT, (1, 2, 3), True),
        (Cause.NETWORK_CONGESTION, Confidence.LIKELY, (1, 2, 3), False),
        (Cause.COMPUTE_SLOW, Confidence.SUSPECT, (1, 2, 3), False),
        (Cause.NETWORK_CONGESTION, Confidence.SUSPECT, (1, 3), False),
    ],
    ids=["a part of the way", "as sure", "another component", "others"],
)
def test_one_of_a_group_says_less_than_the_nic_that_is_named(
    cause: Cause, confidence: Confidence, ranks: tuple[int, ...], left_out: bool
) -> None:
    """Calls of the group are long, and its counters speak of congestion; other evidence names the NIC of one of them."""
    nic = replace(LINK, ranks=(2,), cause=Cause.NIC_OR_PCIE_SLOW, members=Members.EACH, anomaly=Anomaly.FAIL_SLOW)
    group = replace(GROUP, ranks=ranks, cause=cause, confidence=confidence, anomaly=Anomaly.FAIL_SLOW)
    waits = frozenset((0, rank) for rank in range(4))
    first = Hypothesis(nic, ("FX1",), frozenset({(0, 1)}), frozenset(), frozenset({Family.NIC}))
    assert leaves_open(Hypothesis(group, ("FX2",), waits, frozenset(), frozenset({Family.RECORDER})), first) is left_out


def test_the_evidence_of_the_group_shows_no_link_in_it() -> None:
    assert not less(LINK, {Family.RECORDER})


SILENT = replace(GROUP, rule="FX2", ranks=(7,), belief=Belief.BEHIND_AND_BUSY, members=Members.EACH)


@pytest.mark.parametrize(
    ("more", "against", "order"),
    [(1, (), [(0, 1, 2, 3), (7,)]), (0, (), [(7,), (0, 1, 2, 3)]), (1, AGAINST, [(7,), (0, 1, 2, 3)])],
    ids=["it accounts for more", "for as much", "something speaks against it"],
)
def test_a_rank_of_which_nothing_is_seen_may_wait_for_a_group_that_accounts_for_more(
    more: int, against: tuple[Evidence, ...], order: list[tuple[int, ...]]
) -> None:
    waits, families = frozenset((0, rank) for rank in range(4)), frozenset({Family.RECORDER})
    silent = Hypothesis(SILENT, ("FX2",), waits, frozenset(), families)
    wider = waits | {(1, rank) for rank in range(more)}
    group = Hypothesis(replace(GROUP, evidence=against), ("FX3",), wider, frozenset(), families)
    (fault,) = faults([silent, group], unseen={7})
    assert [each.finding.ranks for each in fault] == order
    assert (_settled(silent, group, {7}) is not None) is (more > 0 and not against)
    assert _settled(silent, group, set()) is None, "where something is seen of it, it is an alternative"
