"""FX183 on captures made up for it: whom it names when rings pause, and what must not mislead it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Confidence, Granularity, Members, Verdict
from forensics.rules.diagnosis import diagnose
from tests.recordings.nic_captures import Pausing, paused, write

HOST = Pausing(first={0: 2, 1: 3})
"""Rings of four hosts on two rails: ranks 2 and 3 are those of host n1."""


def judged(folder: Path, pausing: Pausing, beside: dict[str, bytes] | None = None, **text: Any) -> Verdict:
    return diagnose(open_case([write(folder, paused(pausing, **text) | (beside or {}))]))


def status(verdict: Verdict) -> str:
    return next(outcome.status for outcome in verdict.ruled_out if outcome.rule == "FX183")


def node(host: int, waiting: float) -> bytes:
    """node.json of a host on which tasks wait for cores for so many per cent of the time."""
    some = {"avg10": waiting, "avg60": waiting, "total_us": 1}
    facts = {"node": f"n{host}", "hostname": f"n{host}", "boot_id": "b", "clocks": [], "processes_seen": 1, "ptrace_scope": 0}
    return orjson.dumps(facts | {"cpu": {"cores": 8, "pressure": {"cpu": {"some": some}}}})


def test_a_host_that_holds_its_rings_up_for_nearly_half_of_the_time_is_named(tmp_path: Path) -> None:
    assert judged(tmp_path, replace(HOST, length=6e6, period=14e6, pauses=40)).suspects[0].ranks == (2, 3)


@pytest.mark.parametrize("size", [3, 4, 8])
def test_a_host_whose_nics_all_stop_to_send_first_is_named(size: int, tmp_path: Path) -> None:
    (found,) = judged(tmp_path, replace(HOST, size=size)).suspects
    assert (found.ranks, found.granularity, found.members) == ((2, 3), Granularity.HOST, Members.EACH)
    assert (found.cause, found.confidence) == (Cause.UNKNOWN, Confidence.SUSPECT), "a thread of the CPU or a kernel"


@pytest.mark.parametrize(("short", "cause"), [({1}, Cause.CPU_CONTENTION), ({2}, Cause.UNKNOWN), (set(), Cause.UNKNOWN)])
def test_a_host_short_of_cores_has_a_cause_and_another_one_none(short: set[int], cause: Cause, tmp_path: Path) -> None:
    nodes = {f"nodes/n{host}/node.json": node(host, 40.0 if host in short else 0.4) for host in range(4)}
    (found,) = judged(tmp_path, HOST, nodes).suspects
    assert (found.ranks, found.cause) == ((2, 3), cause)


@pytest.mark.parametrize(("pauses", "named"), [((4,), (5, 6, 7, 8, 9)), ((), (5, 6, 7, 8))])
def test_a_ring_of_the_host_that_pauses_and_tells_nobody_is_part_of_it(
    pauses: tuple[int, ...], named: tuple[int, ...], tmp_path: Path
) -> None:
    """One that does not pause is no part of it."""
    pausing = Pausing(rails=5, first={0: 5, 1: 6, 2: 7, 3: 8}, at_once=pauses)
    (found,) = judged(tmp_path, pausing).suspects
    assert (found.ranks, found.granularity) == (named, Granularity.HOST)


def test_of_one_ring_that_pauses_the_way_to_the_next_may_be_to_blame(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, Pausing(first={0: 2})).suspects
    assert (found.ranks, found.members, found.granularity) == ((2, 4), Members.ONE_OF, Granularity.LINK)


@pytest.mark.parametrize(
    "pausing",
    [
        replace(HOST, hop=0.0),
        Pausing(first={0: 2, 1: 5}),
        replace(HOST, pauses=6),
        replace(HOST, size=2),
        replace(HOST, epoch_ns=1_000_000),
        replace(HOST, length=6e5, period=40e6),
        replace(HOST, length=9e6, period=14e6, pauses=40),
        Pausing(late={2: 1e6, 3: 1e6}),
        Pausing(late={2: 3e6, 3: 3e6}),
        Pausing(),
    ],
    ids=[
        "all at once",
        "two hosts",
        "not often",
        "no ring",
        "long epochs",
        "costs little",
        "stands more than it moves",
        "late each time",
        "between messages",
        "no pause",
    ],
)
def test_nobody_is_named(pausing: Pausing, tmp_path: Path) -> None:
    assert judged(tmp_path, pausing).suspects == ()


def test_rings_without_pauses_are_ruled_out_and_others_not(tmp_path: Path) -> None:
    assert status(judged(tmp_path / "none", Pausing())) == "ruled_out"
    assert status(judged(tmp_path / "all", replace(HOST, hop=0.0))) == "silent"
