"""Captures of NICs of which no rank is known: the NIC to begin with, and what must not point at one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forensics.model import Verdict
from tests.recordings.nic_captures import Ring, captures, halved, write
from tests.recordings.verdicts import verdict_of


def judged(folder: Path, ring: Ring, **text: Any) -> Verdict:
    return verdict_of(write(folder, captures(ring, rank=None, **text)))


def pointed(verdict: Verdict) -> list[str]:
    assert not verdict.suspects
    return [lead.split("NIC ")[1].split(", and")[0] for lead in verdict.leads if "NIC " in lead]


@pytest.mark.parametrize(
    ("ring", "nics"),
    [
        (Ring(slow=halved(2)), ["mlx5_0 of n1"]),
        (Ring(out={2: 0.5}), ["mlx5_0 of n1 or mlx5_0 of n2"]),
        (Ring(lossy={(2, 4): 0.9}), ["mlx5_0 of n1 or mlx5_0 of n2"]),
        (Ring(size=2, rails=4, halted={(2, 6): 30, (6, 2): 30}, quiet_ns=5e9), ["mlx5_2 of n0 or mlx5_2 of n1"]),
    ],
    ids=["slow both ways", "slow one way", "loses packets", "halted first"],
)
def test_the_nic_to_begin_with(ring: Ring, nics: list[str], tmp_path: Path) -> None:
    assert pointed(judged(tmp_path, ring)) == nics


@pytest.mark.parametrize(
    "ring",
    [
        Ring(),
        Ring(spread=0.02),
        Ring(slow=halved(*range(8))),
        Ring(slow=halved(2), epoch_ns=1_000_000, slices=600),
        Ring(size=2, rails=4, quiet_ns=5e9),
    ],
    ids=["sound", "uneven by 2 %", "all alike", "epochs too long", "all stopped at once"],
)
def test_no_nic_is_pointed_at(ring: Ring, tmp_path: Path) -> None:
    assert pointed(judged(tmp_path, ring)) == []


def test_hosts_of_one_name_are_not_taken_for_one(tmp_path: Path) -> None:
    assert pointed(judged(tmp_path, Ring(slow=halved(2)), host="localhost")) == []


def test_it_says_what_would_tell_the_ranks(tmp_path: Path) -> None:
    assert any("captures of 8 NICs tell no rank: a map" in label.reason for label in judged(tmp_path, Ring()).labels)


def test_where_ranks_are_known_nothing_is_said_of_it(tmp_path: Path) -> None:
    verdict = verdict_of(write(tmp_path, captures(Ring(slow=halved(2)))))
    assert [suspect.ranks for suspect in verdict.suspects] == [(2,)] and not verdict.leads
    assert not any("tell no rank" in label.reason for label in verdict.labels)
