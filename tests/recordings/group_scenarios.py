"""Write the scenarios of NCCL communicators on paper: `python -m tests.recordings.group_scenarios`.

They are jobs on paper in the real formats (tests/recordings/job.py, tests/recordings/ras.py), not recordings.
"""

from __future__ import annotations

from pathlib import Path

import zstandard

from tests.recordings.coalesced import single
from tests.recordings.collection import Collection, pid_of, tar_of
from tests.recordings.job import SECOND, START_NS, Group, Job
from tests.recordings.paper_scenarios import write
from tests.recordings.ras import Comm, Member, as_json

ROOT = Path(__file__).parents[2]


def inverted_launches(odd: int = 5, world: int = 8) -> Job:
    """Expert and data communicators of the same ranks on two streams: `odd` launches the last two the other way round."""
    job = Job(world, "nccl")
    expert, data = job.group(range(world), "EXPERT_PARALLEL_GROUP"), job.group(range(world), "DATA_PARALLEL_GROUP")
    usual: list[tuple[Group, str]] = [(expert, "all_to_all"), (data, "_reduce_scatter_base")]
    for _ in range(10):
        for rank in range(world):
            for group, kind in usual:
                single(job, rank, group, kind)
    for rank in range(world):
        for group, kind in usual if rank != odd else reversed(usual):
            single(job, rank, group, kind, done=False)
    return job


def communicators(behind: int, world: int = 8) -> list[Comm]:
    """TP 2 x DP 4 as RAS counts it: `behind` has not launched the tensor-parallel gather that its partner waits in."""

    def comm(number: int, ranks: range, kind: str, count: int, late: tuple[int, ...]) -> Comm:
        members = [
            Member(place, "10.0.0.17", pid_of(rank), rank, {kind: count - (rank in late)}) for place, rank in enumerate(ranks)
        ]
        return Comm(0x5EED0000 + number, members)

    partner = behind ^ 1
    return [
        comm(0, range(world), "Broadcast", 3, ()),
        *(comm(1 + first // 2, range(first, first + 2), "AllGather", 96, (behind,)) for first in range(0, world, 2)),
        *(comm(8 + first, range(first, world, 2), "AllReduce", 12, (behind, partner)) for first in range(2)),
    ]


def behind_in_ras(behind: int = 5, world: int = 8) -> Collection:
    """A collection without dumps and stacks: nobody may trace the processes; RAS was asked twice, two minutes apart."""
    found = Collection(world, START_NS)
    for rank in range(world):
        found.rank(rank)
        found.samples(rank)
    for number, taken in enumerate(("2026-09-21 14:13:20", "2026-09-21 14:15:20")):
        content = as_json(communicators(behind, world), taken=taken)
        found.service("nccl.ras", number, f"nccl/ras-{number}.json", content, START_NS + number * 120 * SECOND)
    return found


def store(name: str, members: dict[str, bytes]) -> None:
    """Write members as the bundle of a scenario."""
    target = ROOT / "fixtures/scenarios" / name / "bundle.tar.zst"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(zstandard.ZstdCompressor(level=19).compress(tar_of(members)))


if __name__ == "__main__":
    write(inverted_launches(), "communicators-entangled")
    store("behind-in-ras", behind_in_ras().finished())
