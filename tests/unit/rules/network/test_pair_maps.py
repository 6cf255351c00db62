"""A map of queue pairs says whose they are and who is at the other end, where captures tell neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from forensics.case.build import open_case
from forensics.model import Suspect, Verdict
from forensics.rules.diagnosis import diagnose
from tests.recordings.nic_captures import Ring, captures, halved, write

RING = Ring(slow=halved(2))
BARE = {"rank": None, "queue_pairs": [{"number": 1}, {"number": 2}]}
"""Captures that tell neither whose they are nor what is at the other end of a queue pair."""


def rows(ring: Ring = RING) -> Iterator[tuple[str, str, int, int, int]]:
    """Host, NIC, number, rank and peer of each queue pair."""
    for rank in range(ring.world):
        mine = [ends for ends in ring.links() if rank in ends]
        for number, (sender, receiver) in enumerate(mine, 1):
            peer = receiver if rank == sender else sender
            yield f"n{rank // ring.rails}", f"mlx5_{rank % ring.rails}", number, rank, peer


def table(columns: str = "host,nic,queue_pair,rank,peer", kept: Callable[[int], bool] = lambda rank: True) -> bytes:
    lines = [",".join(map(str, row)) for row in rows() if kept(row[3])]
    return "\n".join(["# made by our scheduler", columns, *lines, ""]).encode()


def judged(folder: Path, *maps: bytes) -> Verdict:
    files = captures(RING, **BARE) | {f"maps/qp{number}.csv": each for number, each in enumerate(maps)}
    return diagnose(open_case([write(folder, files)]))


def only(verdict: Verdict) -> Suspect:
    (found,) = verdict.suspects
    return found


def test_without_a_map_nobody_is_named(tmp_path: Path) -> None:
    assert judged(tmp_path).suspects == ()


def test_with_a_map_the_slow_nic_is_named(tmp_path: Path) -> None:
    found = only(judged(tmp_path, table()))
    assert (found.ranks, found.rules) == ((2,), ("FX180",))


def test_a_map_of_several_files_is_one(tmp_path: Path) -> None:
    assert only(judged(tmp_path, table(kept=lambda rank: rank < 3), table(kept=lambda rank: rank > 2))).ranks == (2,)


def test_maps_that_disagree_tell_nothing(tmp_path: Path) -> None:
    other = [f"{host},{nic},{number},{rank},{(rank + 4) % RING.world}" for host, nic, number, rank, _ in rows()]
    assert judged(tmp_path, table(), "\n".join(["host,nic,queue_pair,rank,peer", *other]).encode()).suspects == ()


def test_a_map_of_other_hosts_tells_nothing(tmp_path: Path) -> None:
    assert judged(tmp_path, table().replace(b"\nn", b"\nx")).suspects == ()


def test_a_map_of_an_earlier_use_of_the_numbers_tells_nothing(tmp_path: Path) -> None:
    text = table("host,nic,queue_pair,rank,peer,generation")
    lines = [line + (",2" if line[:1] == "n" else "") for line in text.decode().splitlines()]
    assert judged(tmp_path, "\n".join(lines).encode()).suspects == ()
