"""Nodes that a file system shut out, and ports of a fabric that nobody reached: where to begin, and whom they concern."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, unnamed, verdict_of

EXPELLED = (
    "2026-11-30_14:13:02.771+0100: [E] Node 10.30.1.27 ({node}) is being expelled because of an expired lease. Pings sent: 60."
)
GAVE_UP = (
    "[rank{0}]:[E1130 14:22:40.331678 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=512, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600031 milliseconds before "
    "timing out.\n"
)
JOB = "SLURM_JOB_NODELIST=oak-c[05-08]\nSLURM_NTASKS_PER_NODE=2\n"
RETRIES = (
    "[{host}:5100:0:5100] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_2:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n"
    "[{host}:5100:0:5100] ib_mlx5_log.c:177  DCI QP 0xd16 wqe[6168]: SEND s-e [rqpn 0x17de rlid {lid}] [inl len 61]\n"
)
PORT = "CA 'mlx5_2'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n\t\tBase lid: {0}\n"


def gave_up(*ranks: int) -> str:
    return "".join(GAVE_UP.format(rank) for rank in ranks)


@pytest.mark.parametrize("why", ["because of an expired lease", "due to expired lease"])
def test_a_node_of_the_job_that_was_shut_out_is_where_to_begin(tmp_path: Path, why: str) -> None:
    expelled = EXPELLED.format(node="oak-c07").replace("because of an expired lease", why)
    verdict = unnamed(tmp_path, {"mmfs.log.latest": expelled, "job.log": f"{JOB}{gave_up(0, 7)}"})
    assert any(lead.startswith("network, console and kernel log of node oak-c07") for lead in verdict.leads)


@pytest.mark.parametrize("nodes", [("oak-d11",), ("oak-c05", "oak-c07"), ()], ids=["another", "two", "none"])
def test_nodes_of_others_and_several_that_were_shut_out_are_no_lead(tmp_path: Path, nodes: tuple[str, ...]) -> None:
    expelled = "\n".join(EXPELLED.format(node=node) for node in nodes) or "2026-11-30_14:00:00.000+0100: [N] Connected"
    verdict = unnamed(tmp_path, {"mmfs.log.latest": expelled, "job.log": f"{JOB}{gave_up(0, 7)}"})
    assert not any("shut it out" in lead for lead in verdict.leads)


def test_the_ranks_of_such_a_node_that_alone_are_silent_are_suspects(tmp_path: Path) -> None:
    placed = "".join(f"oak-c{5 + rank // 2:02d}: rank {rank}/8 initialized\n" for rank in range(8))
    (tmp_path / "mmfs.log.latest").write_text(EXPELLED.format(node="oak-c07"))
    (tmp_path / "job.log").write_text(placed + gave_up(0, 1, 2, 3, 6, 7))
    assert named(verdict_of(tmp_path)) == {4, 5}


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"ibstat.elm-3.txt": PORT.format(1033), "ibstat.elm-9.txt": PORT.format(1037)}, "port mlx5_2/1 of elm-9 (LID 1037)"),
        ({}, "the port that `saquery -O 1037` names (LID 1037)"),
    ],
)
def test_the_port_that_several_hosts_do_not_reach(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    if files:
        files["ibstat.elm-4.txt"] = PORT.format(1034)
    log = "".join(RETRIES.format(host=host, lid=1037) for host in ("elm-3", "elm-4", "elm-5"))
    verdict = unnamed(tmp_path, {"mpirun.out": log, **files})
    assert verdict.leads[0].startswith(expected)


@pytest.mark.parametrize("sent", [[("elm-3", 1037)], [("elm-3", 1037), ("elm-4", 1035), ("elm-5", 1037)]])
def test_sends_of_one_host_or_to_several_ports_show_no_port(tmp_path: Path, sent: list[tuple[str, int]]) -> None:
    verdict = unnamed(tmp_path, {"mpirun.out": "".join(RETRIES.format(host=host, lid=lid) for host, lid in sent)})
    assert not any("LID" in lead for lead in verdict.leads)
