"""A link that goes down and comes up again and again: where to begin in a job of which nobody can be named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recordings.verdicts import unnamed

BOOT = "Sep  4 00:00:11 {host} kernel: perf: interrupt took too long (3137 > 3132)\n"
DOWN = "Sep  {day} 07:{at:02d}:40 {host} kernel: mlx5_core 0000:9a:00.0 {nic}: Link down\n"
UP = "Sep  {day} 07:{at:02d}:52 {host} kernel: mlx5_core 0000:9a:00.0 {nic}: Link up\n"


def kernel(host: str, times: int, nic: str = "ibp154s0", days: int = 1) -> str:
    changes = ((DOWN + UP).format(host=host, nic=nic, at=at, day=1 + at % days) for at in range(times))
    return "".join([*(BOOT.format(host=host) for _ in range(4)), *changes])


def pointed(folder: Path, texts: dict[str, str]) -> list[str]:
    return [lead for lead in unnamed(folder, texts).leads if "came up again" in lead]


@pytest.mark.parametrize("copies", [1, 2])
def test_the_link_that_went_down_again_and_again(copies: int, tmp_path: Path) -> None:
    logs = {f"{copy}/syslog.ax3": kernel("ax3", 4) for copy in range(copies)} | {"syslog.ax4": kernel("ax4", 1)}
    (lead,) = pointed(tmp_path, logs)
    assert "ibp154s0 of ax3" in lead and "4 times" in lead


@pytest.mark.parametrize(
    "logs",
    [
        {"ax3": kernel("ax3", 4), "ax4": kernel("ax4", 4)},
        {"ax3": kernel("ax3", 2)},
        {"ax3": kernel("ax3", 4, "veth0a1")},
        {"ax3": kernel("ax3", 4, days=4)},
    ],
    ids=["two hosts behind one switch", "twice", "a bridge", "once a day"],
)
def test_links_that_do_not_flap(logs: dict[str, str], tmp_path: Path) -> None:
    assert not pointed(tmp_path, {f"syslog.{host}": text for host, text in logs.items()})


def counters(losses: dict[str, int], read: int) -> str:
    ports = {
        nic: {"ports": {"1": {"state": "4: ACTIVE", "counters": {"link_downed": 7 + read * lost}}}}
        for nic, lost in losses.items()
    }
    return json.dumps({"schema": "forensics.ib/1", "node": "ax3", "time_ns": (read + 1) * 10**9, "devices": ports})


@pytest.mark.parametrize(
    ("losses", "nic"),
    [
        ({"mlx5_0": 0, "mlx5_1": 2, "mlx5_2": 0}, "mlx5_1/1"),
        ({"mlx5_0": 1, "mlx5_1": 2, "mlx5_2": 0}, None),
        ({"mlx5_0": 0, "mlx5_1": 0, "mlx5_2": 0}, None),
        ({"mlx5_0": 0, "mlx5_1": 2}, None),
    ],
    ids=["one", "two", "losses of the past", "too few ports"],
)
def test_the_port_that_lost_its_link_between_two_reads(losses: dict[str, int], nic: str | None, tmp_path: Path) -> None:
    texts = {f"nodes/ax3/ib/counters-{read}.json": counters(losses, read) for read in range(2)}
    found = [lead for lead in unnamed(tmp_path, texts).leads if "lost its link" in lead]
    assert [f"{nic} of ax3" in lead for lead in found] == ([True] if nic else [])
