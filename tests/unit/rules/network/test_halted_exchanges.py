"""FX181 on exchanges made up for it, one NIC a host: messages with a rank that stopped, and what must not mislead it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Members, Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from tests.recordings.nic_captures import Exchange, Ring, captures, exchanged, write

STILL = Exchange(rails=1, operators=10, share=160e6, onset=10, pause_ns=3e5, quiet_ns=3e9)
"""Four ranks on as many hosts, of which each pair moves 320 MB an operator, back to back: no gap tells operators apart."""


def without(*ranks: int, last: int = 9) -> dict[tuple[int, int], int]:
    """Links of ranks that take part in so many operators."""
    return {ends: last for ends in permutations(range(4), 2) if {*ranks} & {*ends}}


def judged(folder: Path, files: dict[str, bytes]) -> Verdict:
    return diagnose(open_case([write(folder, files)]))


def test_the_rank_whose_messages_did_not_complete_is_named(tmp_path: Path) -> None:
    verdict = judged(tmp_path, exchanged(replace(STILL, until=without(2))))
    (found,) = verdict.suspects
    assert (verdict.outcome, found.ranks, found.rules) == (Outcome.HANG, (2,), ("FX181",))
    assert found.cause is Cause.UNKNOWN, "a NIC that is down and a call that was not made leave the same traffic"


def test_of_a_single_pair_either_is_to_blame(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, exchanged(replace(STILL, until={(1, 3): 9, (3, 1): 9}))).suspects
    assert (found.ranks, found.members) == ((1, 3), Members.ONE_OF)


SHORT = replace(STILL, share=16e6, pause_ns=5e6)
"""Operators of some milliseconds, with gaps between them."""


def test_of_short_operators_one_more_that_is_whole_tells(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, exchanged(replace(SHORT, until=without(2)))).suspects
    assert found.ranks == (2,)


def test_one_more_that_did_not_end_tells_of_the_end_of_the_job(tmp_path: Path) -> None:
    until = dict.fromkeys(permutations(range(4), 2), 9.5) | without(2)
    assert judged(tmp_path, exchanged(replace(SHORT, until=until))).suspects == ()


@pytest.mark.parametrize(
    "exchange",
    [
        STILL,
        replace(STILL, quiet_ns=0.0, until=without(2)),
        replace(STILL, until=without(2, 3)),
        replace(STILL, until=without(2), onset=0, loaded={0: 1.6, 1: 0.7}),
        replace(STILL, until=without(2), share=16e6),
        replace(STILL, until={(0, 1): 9, (1, 2): 9, (2, 3): 9}),
    ],
    ids=["all ended alike", "no silence", "two stopped", "uneven", "within milliseconds", "one direction"],
)
def test_nobody_is_named(exchange: Exchange, tmp_path: Path) -> None:
    """In one direction alone the passes of a pipeline end: forward before backward."""
    assert judged(tmp_path, exchanged(exchange)).suspects == ()


def test_a_ring_stops_as_a_whole(tmp_path: Path) -> None:
    ring = Ring(rails=1, slices=600, quiet_ns=3e9, halted={(1, 2): 0, (2, 3): 2, (3, 0): 4, (0, 1): 6})
    assert judged(tmp_path, captures(ring)).suspects == ()


def test_a_capture_that_ended_before_the_others_does_not_mislead(tmp_path: Path) -> None:
    """What one NIC alone is not seen to move any more, the others saw."""
    name = "nodes/n2/nic/mlx5_0.epochs"
    files = exchanged(STILL) | {name: exchanged(replace(STILL, until=without(2)))[name]}
    assert judged(tmp_path, files).suspects == ()
