"""FX182 on captures made up for it: whom it names, and what must not mislead it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Confidence, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import AxisOf, Layout
from forensics.rules.slow.expert_imbalance import RULE
from tests.recordings.nic_captures import Exchange, exchanged, write

HOT = {2: 2.0, 3: 2.0}


def judged(folder: Path, exchange: Exchange, **text: Any) -> Verdict:
    return diagnose(open_case([write(folder, exchanged(exchange, **text))]))


def accused(verdict: Verdict) -> set[int]:
    return {rank for suspect in verdict.suspects for rank in suspect.ranks}


def status(verdict: Verdict) -> str:
    return next(outcome.status for outcome in verdict.ruled_out if outcome.rule == "FX182")


@pytest.mark.parametrize("ring", [0.0, 60e6])
def test_ranks_on_which_more_falls_are_named_for_their_load_alone(ring: float, tmp_path: Path) -> None:
    """Also where all of them pass gradients to the next one: one direction of a pair is no exchange."""
    (found,) = judged(tmp_path, Exchange(loaded=HOT, ring=ring)).suspects
    assert (found.ranks, found.cause, found.confidence) == ((2, 3), Cause.EXPERT_IMBALANCE, Confidence.LIKELY)
    assert found.rules == ("FX182",)
    assert "1.60 times an even share" in found.evidence[0].statement


@pytest.mark.parametrize(
    "exchange",
    [
        Exchange(),
        Exchange(loaded={2: 1.3, 3: 1.3}),
        Exchange(size=3, rails=3, loaded=HOT),
        Exchange(loaded=HOT, pause_ns=60e6),
        Exchange(loaded={0: 2.0, 1: 2.0, 4: 2.0, 5: 2.0}),
        Exchange(loaded=HOT, onset=52),
    ],
    ids=["even", "a little uneven", "three are always sums", "costs little", "half of all", "not for long"],
)
def test_what_is_too_little_or_cannot_be_stated_accuses_nobody(exchange: Exchange, tmp_path: Path) -> None:
    assert not accused(judged(tmp_path, exchange))


def test_links_that_are_no_sums_of_shares_accuse_nobody(tmp_path: Path) -> None:
    """Two ranks that have more to tell each other than the others: what they do beside hides what is routed to whom."""
    assert not accused(judged(tmp_path, Exchange(loaded=HOT, beside={(2, 4): 0.5, (3, 5): 0.5})))


def test_captures_that_lost_something_tell_no_loads(tmp_path: Path) -> None:
    lost = [[55_000_000_000_000, 55_000_000_000_100]]
    assert not accused(judged(tmp_path, Exchange(loaded=HOT), lost=lost))


@pytest.mark.slow
def test_what_was_always_uneven_needs_calls_that_tell_of_experts(tmp_path: Path) -> None:
    """Tables of embeddings are spread unevenly by design; a rail or the job says nothing of what is exchanged."""
    case = open_case([write(tmp_path, exchanged(Exchange(loaded=HOT, onset=0)))])
    groups = {"even": (0, 2, 4, 6), "odd": (1, 3, 5, 7)}
    for axis, expected in ((Axis.UNKNOWN, []), (Axis.DATA, []), (Axis.EXPERT, [((2, 3), Confidence.SUSPECT)])):
        known = Layout({label: AxisOf(axis, "calls") for label in groups}, groups)
        found, _ = run(supply_of(case, instead={Layout: known}), [RULE], {})
        assert [(each.ranks, each.confidence) for each in found] == expected


def test_times_without_an_exchange_hide_nothing(tmp_path: Path) -> None:
    """Steps reduce gradients and save in between."""
    (found,) = judged(tmp_path, Exchange(loaded=HOT, silent=(12, 13, 40, 41), pause_ns=1.5e6)).suspects
    assert (found.ranks, found.cause) == ((2, 3), Cause.EXPERT_IMBALANCE)


def test_even_exchanges_of_all_ranks_are_ruled_out(tmp_path: Path) -> None:
    even = Exchange(loaded={2: 1.1, 3: 1.1})
    assert status(judged(tmp_path / "even", even)) == "ruled_out"
    assert status(judged(tmp_path / "more", replace(even, loaded={2: 1.35, 3: 1.35}))) == "silent"
