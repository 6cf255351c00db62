"""All ranks of a host of which some are known."""

from __future__ import annotations

from pathlib import Path

from forensics.case.build import open_case

START = "+ torchrun --nnodes={nodes} --nproc-per-node=4 --rdzv-endpoint=bx1:29500 train.py\n"
RAISED = "[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: ValueError: bad batch\n"
ACCOUNT = """JobID           JobName      State ExitCode        NodeList
------------ ---------- ---------- -------- ---------------
88               train  NODE_FAIL      0:0 {nodes:>15}
"""


def placed(folder: Path, logs: dict[str, list[int]], nodes: int = 3, listed: str = "") -> dict[str, set[int]]:
    """The ranks of each host, by logs that are called by a host and speak of ranks."""
    for host, ranks in logs.items():
        raised = "".join(RAISED.format(rank=rank) for rank in ranks)
        (folder / f"{host}.log").write_text(
            f"{host}:7:9 [0] NCCL INFO Bootstrap : Using eth0:10.7.0.{host[-1]}<0>\n" + START.format(nodes=nodes) + raised
        )
    if listed:
        (folder / "sacct.txt").write_text(ACCOUNT.format(nodes=listed))
    connection = open_case([folder])
    rows = connection.execute("SELECT host, rank FROM process_ranks WHERE method = 'implied'").fetchall()
    connection.close()
    return {host: {rank for own, rank in rows if own == host} for host, _ in rows}


def test_the_block_of_each_host(tmp_path: Path) -> None:
    assert placed(tmp_path, {"bx1": [0, 2], "bx3": [9]}) == {"bx1": {1, 3}, "bx3": {8, 10, 11}}


def test_hosts_of_a_list_that_is_whole_and_fits(tmp_path: Path) -> None:
    assert placed(tmp_path, {"bx1": [0], "bx3": [9]}, listed="bx[1-3]")["bx2"] == {4, 5, 6, 7}


def test_a_list_that_does_not_fit_what_is_known(tmp_path: Path) -> None:
    assert "bx2" not in placed(tmp_path, {"bx1": [0], "bx3": [5]}, listed="bx[1-3]")


def test_a_list_of_another_number_of_hosts(tmp_path: Path) -> None:
    assert "bx2" not in placed(tmp_path, {"bx1": [0], "bx3": [9]}, listed="bx[1-4]")


def test_a_log_of_all_ranks_tells_of_no_host(tmp_path: Path) -> None:
    assert placed(tmp_path, {"bx1": [0, 2, 5], "bx3": [9]}) == {}


def test_two_hosts_with_ranks_of_one_block(tmp_path: Path) -> None:
    assert placed(tmp_path, {"bx1": [0], "bx3": [2]}) == {}
