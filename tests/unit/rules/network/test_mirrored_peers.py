"""Other ends of queue pairs that only traffic tells: who is named by them, and where traffic shows nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from forensics.case.build import open_case
from forensics.model import Confidence, Suspect
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import supply_of
from forensics.rules.reductions.epochs.mirrors import MirroredPeers
from tests.recordings.nic_captures import Ring, captures, write

ALONE: dict[str, Any] = {"queue_pairs": [{"number": 1}, {"number": 2}]}
"""Queue pairs of which no address is known, nor who is at the other end."""
UNEVEN = Ring(jitter=0.05, spread=0.01, slow={2: 0.5})


def files(ring: Ring, ahead: int = 0) -> dict[str, bytes]:
    """Captures that tell no other end; the clock of host n1 is so many epochs ahead."""
    shifted = captures(replace(ring, first_epoch=ring.first_epoch + ahead), **ALONE)
    return captures(ring, **ALONE) | {path: content for path, content in shifted.items() if path.startswith("nodes/n1/")}


def mirrored(content: dict[str, bytes], folder: Path) -> MirroredPeers:
    return supply_of(open_case([write(folder, content)]), None).get(MirroredPeers)


def links(found: MirroredPeers) -> set[tuple[int, int]]:
    return {(each.sender.rank, each.receiver.rank) for each in found.mirrors}


def suspects(content: dict[str, bytes], folder: Path) -> tuple[Suspect, ...]:
    return diagnose(open_case([write(folder, content)])).suspects


def test_who_receives_what_another_one_sends_is_at_its_other_end(tmp_path: Path) -> None:
    found = mirrored(files(UNEVEN), tmp_path)
    assert links(found) == {*UNEVEN.links()}
    assert found.unstated == 0


def test_clocks_that_are_apart_are_bound_by_the_traffic(tmp_path: Path) -> None:
    assert links(mirrored(files(UNEVEN, ahead=300), tmp_path)) == {*UNEVEN.links()}


def test_a_slow_nic_is_suspected_and_the_verdict_says_what_tells_its_links(tmp_path: Path) -> None:
    (found,) = suspects(files(UNEVEN), tmp_path)
    assert (found.ranks, found.rules, found.confidence) == ((2,), ("FX180",), Confidence.SUSPECT)
    assert any("by traffic alone which NICs exchange data" in each.statement for each in found.evidence)


def test_traffic_that_is_all_alike_tells_nothing(tmp_path: Path) -> None:
    content = files(Ring(slow={2: 0.5}))
    assert links(mirrored(content, tmp_path)) <= {*UNEVEN.links()}
    assert suspects(content, tmp_path / "again") == ()


def test_where_a_nic_was_not_captured_its_neighbours_are_not_taken_for_each_other(tmp_path: Path) -> None:
    content = files(UNEVEN)
    del content["nodes/n1/nic/mlx5_0.epochs"]
    assert not mirrored(content, tmp_path)
    assert suspects(content, tmp_path / "again") == ()


def test_captures_that_tell_the_other_ends_are_not_compared(tmp_path: Path) -> None:
    assert not mirrored(captures(UNEVEN), tmp_path)
