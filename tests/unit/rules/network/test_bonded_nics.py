"""A bond is one NIC: queue pairs on both of its ports together make the rate that is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from forensics.model import Suspect
from forensics.rules.diagnosis import diagnose
from tests.recordings.nic_captures import LINE, Ring, captures, halved, write

BOND: dict[str, Any] = {"nic": "mlx5_bond_0", "line_bytes_per_s": int(LINE)}


def suspects(folder: Path, ring: Ring, **text: Any) -> tuple[Suspect, ...]:
    return diagnose(open_case([write(folder, captures(ring, **BOND | text))])).suspects


def test_a_sound_bond_is_not_named_by_the_halves_that_its_ports_carry(tmp_path: Path) -> None:
    assert suspects(tmp_path, Ring(rails=1, ports=2)) == ()


def test_the_line_of_one_port_for_that_of_the_bond_names_nobody(tmp_path: Path) -> None:
    """sysfs shows the rate of one of the ports."""
    assert suspects(tmp_path, Ring(rails=1, ports=2), line_bytes_per_s=int(LINE / 2)) == ()


@pytest.mark.parametrize("on_first", [(), (2,)])
def test_a_bond_of_which_one_port_is_lost_is_slow(on_first: tuple[int, ...], tmp_path: Path) -> None:
    (found,) = suspects(tmp_path, Ring(rails=1, ports=2, slow=halved(2), on_first=on_first))
    assert (found.ranks, found.rules, found.resource and found.resource.nic) == ((2,), ("FX180",), "mlx5_bond_0")


def test_a_rank_whose_pairs_are_all_on_one_port_that_carries_them_is_sound(tmp_path: Path) -> None:
    """How a bond spreads queue pairs is chance; where the job loses nothing to it, it is no fault."""
    assert suspects(tmp_path, Ring(rails=1, ports=2, on_first=(2,))) == ()
