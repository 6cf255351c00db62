"""FX181 on captures made up for it: whom it names in a job that stands still, and what must not mislead it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.model import Confidence, Granularity, Members, Outcome, Suspect, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.reductions.epochs.halted_links import HaltedLink, halted_ends
from forensics.rules.reductions.ranks.nic_users import CapturedUsers, NicUsers
from forensics.rules.reductions.ranks.roster import read_roster
from tests.recordings.nic_captures import Ring, captures, write

STILL = Ring(rails=4, slices=600, quiet_ns=3e9)
"""Rings of four ranks over the hosts n0 (ranks 0 to 3) to n3: rank 5 gets from rank 1 and sends to rank 9."""
DOWN = {(1, 5): 0, (5, 9): 0, (9, 13): 2, (13, 1): 4}


def judged(folder: Path, ring: Ring, **text: Any) -> Verdict:
    return diagnose(open_case([write(folder, captures(ring, **text))]))


def only(verdict: Verdict) -> Suspect:
    (suspect,) = verdict.suspects
    assert suspect.rules == ("FX181",)
    return suspect


def status(verdict: Verdict) -> str:
    return next(outcome.status for outcome in verdict.ruled_out if outcome.rule == "FX181")


def test_a_nic_of_which_neither_direction_moved_is_named(tmp_path: Path) -> None:
    verdict = judged(tmp_path, replace(STILL, halted=DOWN))
    found = only(verdict)
    assert (verdict.outcome, found.ranks, found.members) == (Outcome.HANG, (5,), Members.EACH)
    assert found.confidence is Confidence.SUSPECT, "a rank that did not make its call leaves the same"


def test_the_link_that_moved_least_stands_for_its_two_ends(tmp_path: Path) -> None:
    """All four of a ring stop in the operator: Pulse 7.2.3 names the sender, a receiver may be to blame as well."""
    found = only(judged(tmp_path, replace(STILL, halted={(1, 5): 120, (5, 9): 100, (9, 13): 104, (13, 1): 110})))
    assert (found.ranks, found.members, found.granularity) == ((5, 9), Members.ONE_OF, Granularity.LINK)


SHORT = replace(STILL, slices=190)
"""Operators of 8 ms: all have ended soon after one stopped within its own."""


def test_of_short_operators_the_one_that_stopped_while_others_became_whole_is_named(tmp_path: Path) -> None:
    found = only(judged(tmp_path, replace(SHORT, halted={(1, 5): 40, (5, 9): 40, (9, 13): 60, (13, 1): 80})))
    assert found.ranks == (5,)


def test_where_others_did_not_become_whole_either_the_job_may_have_been_ended(tmp_path: Path) -> None:
    rails = dict.fromkeys(SHORT.links(), 150)
    assert judged(tmp_path, replace(SHORT, halted={**rails, (1, 5): 40, (5, 9): 40, (9, 13): 60, (13, 1): 80})).suspects == ()


@pytest.mark.parametrize(
    "ring",
    [
        STILL,
        replace(STILL, quiet_ns=0.0, halted=DOWN),
        replace(STILL, rails=2, halted={(1, 3): 0, (3, 5): 2, (5, 7): 4, (7, 1): 6}),
        replace(STILL, slices=20, halted={link: at for at, link in enumerate(STILL.links())}),
        replace(STILL, halted={link: 0 for link in STILL.links() if link[0] // 4 in (0, 1)}),
        replace(STILL, operators=3, halted=DOWN),
    ],
    ids=["all ended alike", "no silence", "one beside it", "ended in between", "all links of a host", "a short history"],
)
def test_nobody_is_named(ring: Ring, tmp_path: Path) -> None:
    assert judged(tmp_path, ring).suspects == ()


def test_a_capture_that_ended_before_the_others_does_not_mislead(tmp_path: Path) -> None:
    """What the NIC of rank 5 is not seen to move any more, its neighbours saw."""
    files = captures(STILL)
    halted = captures(replace(STILL, halted=DOWN))
    name = "nodes/n1/nic/mlx5_1.epochs"
    assert diagnose(open_case([write(tmp_path, files | {name: halted[name]})])).suspects == ()


def test_lost_epochs_prove_no_silence(tmp_path: Path) -> None:
    verdict = judged(tmp_path, replace(STILL, halted=DOWN), lost=[[55_000_000_000_100, 5]])
    assert verdict.suspects == () and status(verdict) != "ruled_out"


def test_a_cut_capture_proves_no_silence(tmp_path: Path) -> None:
    files = captures(replace(STILL, halted=DOWN))
    name = "nodes/n2/nic/mlx5_0.epochs"
    files[name] = files[name][: len(files[name]) * 2 // 3]
    assert diagnose(open_case([write(tmp_path, files)])).suspects == ()


@pytest.mark.parametrize("step", [-60_000_000_000, 60_000_000_000])
def test_clocks_of_hosts_may_lie_apart(step: int, tmp_path: Path) -> None:
    """Only what one host tells is laid beside each other."""
    files = captures(replace(STILL, halted=DOWN))
    moved = captures(replace(STILL, halted=DOWN, first_epoch=STILL.first_epoch + step // 32_000))
    files |= {name: content for name, content in moved.items() if "/n1/" in name}
    assert only(diagnose(open_case([write(tmp_path, files)]))).ranks == (5,)


def test_uneven_nics_change_no_volumes(tmp_path: Path) -> None:
    slow = {rank: float(part) for rank, part in enumerate(np.linspace(0.8, 1.0, 16))}
    assert judged(tmp_path, replace(STILL, out=slow)).suspects == ()


def test_without_captures_it_is_not_applicable() -> None:
    scenario = Path(__file__).parents[4] / "fixtures/scenarios/transfer-slow/bundle.tar.zst"
    assert status(diagnose(open_case([scenario]))) == "not_applicable"


def test_of_a_nic_with_several_ranks_all_that_halted_are_kept() -> None:
    """Ranks 2 and 3 have a NIC together: a link of each stopped on its way, or neither began."""
    users = CapturedUsers(NicUsers({}, {2: (2, 3), 3: (2, 3)}))
    on_the_way = [HaltedLink(*ends, 9 << 20, 90 << 20, 0, 3, ends[0], "mlx5_1", "") for ends in ((2, 6), (3, 7))]
    assert [ranks for ranks, _ in halted_ends(on_the_way, users)] == [(2, 3)]
    assert [ranks for ranks, _ in halted_ends(on_the_way, CapturedUsers(NicUsers()))] == []
    assert [ranks for ranks, _ in halted_ends(on_the_way[:1], users)] == [(2, 6)], (
        "one rank of a NIC alone does not speak of it"
    )


def test_one_table_tells_the_ranks_and_hosts_of_many_captures(tmp_path: Path) -> None:
    rows = "".join(f"n{rank // 2},mlx5_{rank % 2},{rank},7,send,{rank},9000\n" for rank in range(4))
    text = "# epoch_ns=32000\nhost,nic,rank,queue_pair,direction,epoch,bytes\n" + rows
    roster = read_roster(open_case([write(tmp_path, {"epochs.csv": text.encode()})]))
    assert roster.hosts == {0: "n0", 1: "n0", 2: "n1", 3: "n1"}
