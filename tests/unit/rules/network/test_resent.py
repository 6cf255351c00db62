"""FX180 on links that lose data: what is sent again leaves at the rate of the line, and only both ends together show it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Granularity, Members, Suspect, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.reductions.epochs.resent import _share
from tests.recordings.nic_captures import Ring, captures, write

MS, EPOCH_NS = 1_000_000, 32_000
RING = Ring(lossy={(0, 2): 0.85})


def judged(folder: Path, ring: Ring = RING, without: str = "none", **text: Any) -> Verdict:
    files = {path: content for path, content in captures(ring, **text).items() if without not in path}
    return diagnose(open_case([write(folder, files)]))


def only(verdict: Verdict) -> Suspect:
    (found,) = verdict.suspects
    assert found.rules == ("FX180",)
    return found


def status(verdict: Verdict) -> str:
    return next(outcome.status for outcome in verdict.ruled_out if outcome.rule == "FX180")


def test_of_a_link_that_loses_data_one_end_is_to_blame(tmp_path: Path) -> None:
    found = only(judged(tmp_path))
    assert (found.ranks, found.members, found.cause) == ((0, 2), Members.ONE_OF, Cause.NETWORK_SLOW)
    assert "15.0 % of the bytes sent do not arrive" in found.evidence[0].statement


def test_a_nic_that_loses_both_ways_is_named(tmp_path: Path) -> None:
    found = only(judged(tmp_path, Ring(lossy={(0, 2): 0.85, (2, 4): 0.9})))
    assert (found.ranks, found.granularity, found.cause) == ((2,), Granularity.NIC, Cause.NETWORK_SLOW)


def test_two_hosts_have_nothing_to_be_compared_with_and_need_it_not(tmp_path: Path) -> None:
    found = only(judged(tmp_path, Ring(size=2, rails=1, lossy={(0, 1): 0.8})))
    assert (found.ranks, found.members) == ((0, 1), Members.ONE_OF)


def test_of_ranks_that_only_their_peers_state_the_nic_is_named_too(tmp_path: Path) -> None:
    found = only(judged(tmp_path, Ring(lossy={(0, 2): 0.85, (2, 4): 0.9}, peers=True), rank=None))
    assert (found.ranks, found.hosts) == ((2,), ("n1",))


@pytest.mark.parametrize(
    ("ring", "text"),
    [
        (Ring(lossy={(0, 2): 0.99}), {}),
        (Ring(lossy={(0, 2): 0.5, (2, 4): 0.85}), {}),
        (RING, {"clock": "boottime"}),
        (RING, {"lost": [[55_000_000_000_400, 90]]}),
    ],
    ids=[
        "hardly anything",
        "half of it is not counted at the other end",
        "clocks that are not of the host",
        "epochs were lost",
    ],
)
def test_what_shows_no_loss_accuses_nobody(ring: Ring, text: dict[str, Any], tmp_path: Path) -> None:
    assert judged(tmp_path, ring, **text).suspects == ()


def test_of_a_link_with_one_end_captured_nothing_is_ruled_out(tmp_path: Path) -> None:
    assert status(judged(tmp_path / "whole", Ring(peers=True))) == "ruled_out"
    lacks = judged(tmp_path / "part", Ring(peers=True), without="n1/nic/mlx5_0")
    assert status(lacks) == "silent" and lacks.suspects == ()


@pytest.mark.parametrize(("ahead_ms", "known"), [(0.0, True), (0.5, True), (397.0, False)], ids=["same", "near", "far apart"])
def test_operators_that_lie_beside_each_other_by_chance_show_no_loss(ahead_ms: float, known: bool) -> None:
    """Steps of a job vary: where clocks are as far apart as operators, few of those at one time begin and end alike."""
    drawn = np.random.default_rng(5)
    begin = np.cumsum(drawn.integers(300, 700, 400))
    size = drawn.integers(60, 160, 400)
    shift = int(ahead_ms * MS / EPOCH_NS)

    def end(by: int, part: float) -> tuple[Any, Any]:
        operators = SimpleNamespace(begin=begin + by, end=begin + by + size, bytes=(part * size * 1_000_000).astype(np.int64))
        return SimpleNamespace(capture=SimpleNamespace(epoch_ns=EPOCH_NS)), operators

    share = _share(*end(0, 1.0), *end(shift, 0.9))
    assert share == (pytest.approx(0.9) if known else None)
