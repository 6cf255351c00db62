"""Links of NICs that a kernel reports as lost, with connections that NCCL lost to or from that host; whole hosts of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of

START = "+ torchrun --nnodes=4 --nproc-per-node=2 --rdzv-endpoint=ax1:29500 train.py\n"
DOWN = "Sep  4 07:11:40 {host} kernel: mlx5_core 0000:9a:00.0 ibp154s0: Link down\n"
UP = "Sep  4 07:11:52 {host} kernel: mlx5_core 0000:9a:00.0 ibp154s0: Link up\n"
BOOT = "Sep  4 00:00:11 {host} kernel: perf: interrupt took too long (3137 > 3132)\n"
LOST = (
    "{host}:70{rank}:81{rank} [0] transport/net_ib.cc:2210 NCCL WARN NET/IB: Got completion from peer {peer}<48214> with "
    "status=12 opcode=0 len=0 vendor err 129 (Send) localGid fe80::1 remoteGids fe80::2 hca mlx5_2\n"
)
GAVE_UP = (
    "[rank{rank}]:[E904 09:21:44.133706555 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600031 milliseconds "
    "before timing out.\n"
)
STEP = "2026-09-04 09:10:{second:02d},000 INFO step={second} loss=2.1\n"
HOSTS = ("ax1", "ax2", "ax3", "ax4")
NAMED = {("ax1", "ax2"), ("ax3", "ax2"), ("ax2", "ax3")}


def judged(folder: Path, kernels: dict[str, str], lost: set[tuple[str, str]] = NAMED, is_named: bool = True) -> set[int]:
    """Logs of the first rank of each host, in a folder with kernel logs; `lost` are pairs of who lost whom."""
    address = {host: f"10.7.0.{number}" for number, host in enumerate(HOSTS)}
    for number, host in enumerate(HOSTS):
        known = f"{host}:70{number}:70{number} [0] NCCL INFO Bootstrap : Using eth0:{address[host]}<0>\n" if is_named else ""
        said = "".join(LOST.format(host=host, rank=number, peer=address[peer]) for own, peer in sorted(lost) if own == host)
        steps = "".join(STEP.format(second=second) for second in range(20))
        (folder / f"job-{host}.err").write_text(START + known + steps + said + GAVE_UP.format(rank=2 * number))
    for host, text in kernels.items():
        (folder / f"syslog.{host}").write_text("".join(BOOT.format(host=host) for _ in range(4)) + text)
    return named(verdict_of(folder))


def test_both_ranks_of_the_host_whose_link_is_down(tmp_path: Path) -> None:
    assert judged(tmp_path, {"ax2": DOWN.format(host="ax2"), "ax4": ""}) == {2, 3}


def test_a_link_that_came_and_went_when_the_job_stopped(tmp_path: Path) -> None:
    flaps = (DOWN + UP).format(host="ax3")
    assert judged(tmp_path, {"ax3": flaps}, {("ax2", "ax3")}) == {4, 5}


def test_an_address_that_nothing_lays_to_a_host(tmp_path: Path) -> None:
    assert judged(tmp_path, {"ax2": DOWN.format(host="ax2")}, is_named=False) == {2, 3}


@pytest.mark.parametrize(
    ("kernels", "lost"),
    [
        ({"ax2": DOWN.format(host="ax2"), "ax4": DOWN.format(host="ax4")}, NAMED),
        ({"ax2": (DOWN + UP).format(host="ax2").replace("Sep  4", "Aug 11")}, NAMED),
        ({"ax4": DOWN.format(host="ax4")}, NAMED),
        ({"ax2": DOWN.format(host="ax2").replace("ibp154s0", "veth0a1")}, NAMED),
        ({"ax2": DOWN.format(host="ax2")}, set()),
    ],
    ids=["two hosts", "weeks before", "a host that nobody lost", "a bridge", "no connection was lost"],
)
def test_links_that_explain_no_loss(tmp_path: Path, kernels: dict[str, str], lost: set[tuple[str, str]]) -> None:
    assert judged(tmp_path, kernels, lost) == set()
