"""Which host, link or rank is pointed at where connections were lost, and that two of them are nobody's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.recordings.verdicts import unnamed

TIMEOUT = (
    "[E ProcessGroupNCCL.cpp:475] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out.\n"
)


def lost(*peers: str) -> dict[str, str]:
    """A log for each host, which lost transfers with that peer."""
    said = (
        "{0}:91:99 [0] transport/net_ib.cc:238 NCCL WARN NET/IB: Got completion from peer {1}<40961> with status=12 "
        "vendor_err=129\n"
    )
    logs = {f"n{host}.log": said.format(f"cn-{host:03d}", peer) for host, peer in enumerate(peers)}
    return {name: text + TIMEOUT.format(2 * place, 4) for place, (name, text) in enumerate(logs.items())}


def test_the_one_address_that_several_hosts_lost(tmp_path: Path) -> None:
    found = unnamed(tmp_path / "one", lost("10.8.0.4", "10.8.0.4", "10.8.0.4"))
    assert "host with the address 10.8.0.4" in found.would_change[0]
    named = {"a.log": "cn-009:7:7 [0] NCCL INFO Bootstrap : Using eth0:10.8.0.4<0>\n"}
    known = unnamed(tmp_path / "named", lost("10.8.0.4", "10.8.0.4", "10.8.0.4") | named)
    assert "kernel log of cn-009 (address 10.8.0.4)" in known.would_change[0]
    for peers in (("10.8.0.4",), ("10.8.0.4", "10.8.0.4", "10.8.0.7"), ("10.8.0.1", "10.8.0.0")):
        assert "lost transfers with it" not in " ".join(unnamed(tmp_path / "-".join(peers), lost(*peers)).would_change)


COMPLETION = (
    "cn-{0}:91:{2} [0] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.8.0.{1}<44206> with status={3} "
    "opcode=129 len=65536 vendor err 129 (Recv) localGid ::ffff:10.9.0.{0} remoteGids::ffff:10.9.0.{1}\n"
)
PORT = "cn-{0}:{1}:99 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port {2}\n"
OFI = "[1,{0}]<stdout>:cn-{0}:72593:73427 [7] create_component:459 NCCL WARN NET/OFI {1}\n"


def test_both_ends_of_the_one_link_that_is_silent(tmp_path: Path) -> None:
    found = unnamed(tmp_path / "one", {"a.log": COMPLETION.format(1, 4, 93, 12) + COMPLETION.format(1, 4, 94, 5)})
    assert "NICs and kernel logs of cn-1 and of the host with the address 10.8.0.4" in found.would_change[0]
    others = (COMPLETION.format(1, 4, 93, 12) + COMPLETION.format(1, 5, 93, 12), COMPLETION.format(1, 4, 93, 4))
    for number, text in enumerate(others):
        assert "what is between" not in " ".join(unnamed(tmp_path / str(number), {"a.log": text}).would_change)


def test_ports_of_the_one_host_that_says_they_failed(tmp_path: Path) -> None:
    own = PORT.format(1, 91, "error") + PORT.format(1, 92, "error")
    assert "switch ports of cn-1: a port of its own failed, 2 of" in unnamed(tmp_path / "one", {"a.log": own}).would_change[0]
    for number, text in enumerate((own + PORT.format(2, 91, "error"), PORT.format(1, 91, "active"))):
        assert "of its own failed" not in " ".join(unnamed(tmp_path / str(number), {"a.log": text}).would_change)


def test_the_one_rank_whose_network_did_not_begin(tmp_path: Path) -> None:
    text = OFI.format(23, "Couldn't open AV. RC: -22, ERROR: Invalid argument")
    assert "of the host of rank 23, whose network alone failed" in unnamed(tmp_path / "one", {"a.log": text}).would_change[0]
    for number, other in enumerate((text + OFI.format(7, "Couldn't open AV."), OFI.format(23, "Connection to peer lost"))):
        assert "network alone" not in " ".join(unnamed(tmp_path / str(number), {"a.log": other}).would_change)


def closed(*lines: str) -> dict[str, str]:
    return {f"rank{rank}.log": f"batch 7\n{line}" for rank, line in enumerate(lines)}


CLOSED = (
    "[rank{0}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[10.0.0.9]:1942{0}. This is typically caused by a remote worker crashing.\n"
)
ALL_LOST = tuple(CLOSED.format(rank) for rank in range(3))


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (closed(*ALL_LOST, ""), True),
        (closed(*ALL_LOST, CLOSED.format(3)), False),
        (closed(*ALL_LOST[:2], "", ""), False),
        (closed(*ALL_LOST), False),
        ({name: text for name, text in closed(*ALL_LOST, "", "").items() if name != "rank3.log"}, False),
    ],
    ids=["one", "all lost a peer", "two", "no log of it", "a log is missing"],
)
def test_the_one_rank_whose_log_tells_of_no_lost_peer(tmp_path: Path, files: Mapping[str, str], found: bool) -> None:
    verdict = unnamed(tmp_path, files)
    pointed = [text for text in verdict.would_change if text.startswith("exit code, host and kernel log of rank 3")]
    assert bool(pointed) is found


def test_the_one_host_that_closed_the_connections_of_several_others(tmp_path: Path) -> None:
    line = "{0}:70:80 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer {1}<41440>\n"
    one = line.format("gpu-1", "gpu-7.cl") + line.format("gpu-2", "gpu-7.cl")
    assert unnamed(tmp_path, {"a.log": one}).would_change[0].startswith("the log and kernel log of gpu-7.cl: 2 hosts lost")
    for other in (line.format("gpu-1", "gpu-7.cl"), one + line.format("gpu-7", "gpu-2.cl")):
        assert "lost connections with it" not in "".join(unnamed(tmp_path, {"a.log": other}).would_change)
