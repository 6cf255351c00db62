"""Programs of nccl-tests: who failed by its own device, and who only lost it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted

PIDS = (4100, 4101, 5200, 5201)


def host(rank: int) -> str:
    return f"gn-{rank // 2}"


def begins(group: str = "Group  0 ") -> str:
    """What rank 0 prints of all ranks."""
    devices = (
        f"#  Rank {rank:2} {group}Pid {pid:6} on {host(rank):>10} device {rank % 2:2} [0x1{rank}] NVIDIA H100 80GB HBM3\n"
        for rank, pid in enumerate(PIDS)
    )
    return "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor)\n#\n# Using devices\n" + "".join(devices)


def failed(rank: int, what: str, of: str = "NCCL") -> str:
    """One process that ends."""
    where = f" .. {host(rank)} pid {PIDS[rank]}: Test failure common.cu"
    return f"{host(rank)}: Test {of} failure common.cu:958 '{what}'\n{where}:842\n{where}:597\n"


LOST = "remote process exited or there was a network error / "
OWN = failed(2, "unspecified launch failure", "CUDA")


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (begins() + failed(0, LOST) + OWN + failed(3, LOST), {2}),
        (begins("") + OWN + failed(0, LOST), {2}),
        (begins() + failed(0, LOST) + failed(3, "unhandled system error (run with NCCL_DEBUG=INFO for details) / "), set()),
        (begins() + OWN + failed(0, "out of memory", "CUDA"), set()),
        (begins() + OWN + begins() + failed(0, LOST), set()),
        (OWN + failed(0, LOST), set()),
    ],
    ids=["one device", "old table", "nobody's own", "two", "an earlier run", "no table"],
)
def test_whose_device_failed(tmp_path: Path, text: str, ranks: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == ranks
