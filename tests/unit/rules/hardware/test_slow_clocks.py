"""Hosts whose cores are held down, by the fastest core of each, and of whom it is said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from forensics.case.build import open_case
from forensics.rules.reductions.hardware.slow_clocks import SlowClock, SlowClocks, held_down_cores, slow_clocks
from forensics.rules.reductions.ranks.roster import RankFacts, Roster


@pytest.mark.parametrize(
    ("clocks", "found"),
    [
        ([(800, 1500, 1700), (800, 2900, 3400), (900, 3000, 3400)], ["n0"]),
        ([(800, 900, 3300), (800, 2900, 3400), (900, 3000, 3400)], []),
        ([(800, 1500, 2600), (800, 2900, 3400), (900, 3000, 3400)], []),
        ([(800, 1500, 1700), (800, 1400, 1700), (900, 1500, 1700)], []),
        ([(800, 1500, 1700), (800, 2900, 3400)], []),
    ],
    ids=["held down", "idle", "a little slower", "all alike", "too few beside it"],
)
def test_hosts_whose_fastest_core_is_slow(clocks: Sequence[tuple[int, int, int]], found: list[str], tmp_path: Path) -> None:
    for number, mhz in enumerate(clocks):
        name = f"n{number}"
        facts = {"node": name, "hostname": name, "boot_id": "b", "clocks": [], "processes_seen": 1, "ptrace_scope": 0}
        cpu = {"cores": 8, "mhz": dict(zip(("min", "median", "max"), mhz, strict=True))}
        (tmp_path / "nodes" / name).mkdir(parents=True)
        (tmp_path / "nodes" / name / "node.json").write_bytes(orjson.dumps(facts | {"cpu": cpu}))
    (tmp_path / "rank0.log").write_text("step 1\n")
    assert sorted(slow_clocks(open_case([tmp_path]))) == found


@pytest.mark.parametrize(("ranks", "is_said"), [((0, 1), True), ((0,), True), ((1, 2), False), ((2,), False)])
def test_it_is_said_of_ranks_of_that_host_alone(ranks: tuple[int, ...], *, is_said: bool) -> None:
    roster = Roster({rank: RankFacts(rank, host=f"n{rank // 2}") for rank in range(4)}, 4)
    clocks = SlowClocks({"n0": SlowClock("n0", 1700.0, 3400.0, "node.json")})
    assert bool(list(held_down_cores(ranks, clocks, roster))) is is_said
