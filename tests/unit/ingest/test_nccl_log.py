from __future__ import annotations

from typing import Any

import pytest

from forensics.ingest import choose
from tests.unit.ingest.reading import read, sample

START = "ncclCommInitRank comm 0x5500 rank 4 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x9f2b - Init START"
CALL = "AllReduce: opCount {} sendbuff 0x1 recvbuff 0x1 count 4096 datatype 7 op 0 root 0 comm 0x5500 [nranks=8] stream 0x2"


def line(text: str, pid: int = 4100, host: str = "gpu-002") -> str:
    return f"{host}:{pid}:{pid + 66} [0] NCCL INFO {text}\n"


def positions(text: str, path: str = "nccl.log", **known: Any) -> list[dict[str, Any]]:
    return read(text.encode(), path, **known).rows("log_positions")


def test_two_processes_in_one_file() -> None:
    result = sample("nccl_log/handmade_2.28_two_ranks.log")
    assert result.ingester == "nccl_log"
    rows = result.rows("log_positions")
    assert [(row["pid"], row["group_rank"], row["size"], row["init"], row["enqueued"], row["kind"]) for row in rows] == [
        (4100, 4, 8, "complete", 0x1F, "all_gather"),
        (4101, 5, 8, "complete", 0x1E, "all_reduce"),
        (4100, 0, 2, "started", None, None),
    ]
    assert [row["communicator"] for row in rows] == ["0x9f2b64c1a07d3e58"] * 2 + ["0x9f2b64c1a07d3e58/1.2"]
    assert (rows[0]["count"], rows[0]["dtype"], rows[0]["locator"], rows[0]["completed"]) == (4096, "bfloat16", 12, None)
    assert {row["rank"] for row in rows} == {None}


def test_queue_pairs_with_the_names_of_their_nics() -> None:
    rows = sample("nccl_log/handmade_2.28_two_ranks.log").rows("queue_pairs")
    assert [(row["queue_pair"], row["nic"], row["port"], row["host"]) for row in rows] == [
        ("1187", "mlx5_0", 1, "gpu-002"),
        ("1190", "mlx5_3", 1, "gpu-002"),
    ]


def test_failed_completions_and_lost_peers() -> None:
    result = sample("nccl_log/handmade_2.28_two_ranks.log")
    rows = [(row["kind"], row["subject"]) for row in result.rows("log_events") if row["kind"] != "nccl_warning"]
    assert rows == [
        ("completion_error", "peer=10.0.2.9<38114> status=12 vendor=129 nic=mlx5_0"),
        ("peer_closed", "gpu-009"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "NET/IB : Got completion from peer 10.0.2.9<38114> with error 12, opcode 32680, len 0, vendor err 129",
        "NET/IB : Got completion from peer 10.0.2.9<38114> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
        "NET/IB: Got completion from peer 10.0.2.9<38114> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=SEND(0) vendor_err=129 ",
    ],
)
def test_forms_of_a_failed_completion(text: str) -> None:
    content = f"\ngpu-002:4100:4188 [0] transport/net_ib.cc:2427 NCCL WARN {text}\n"
    row = read(content.encode(), "rank4.log").row("log_events", kind="completion_error")
    assert str(row["subject"]).startswith("peer=10.0.2.9<38114> status=12 vendor=129")


def test_op_counts_are_hexadecimal_and_the_highest_counts() -> None:
    content = line(START) + line(CALL.format("9")) + line(CALL.format("a")) + line(CALL.format("10"))
    (row,) = positions(content)
    assert (row["enqueued"], row["locator"]) == (16, 4)


def test_a_pointer_that_is_used_again_is_another_communicator() -> None:
    content = line(START) + line(CALL.format("ff"))
    content += line("comm 0x5500 rank 4 nranks 8 cudaDev 0 busId 1b000 - Destroy COMPLETE")
    content += line(START.replace("0x9f2b", "0xaaaa")) + line(CALL.format("1"))
    assert [(row["communicator"], row["init"], row["enqueued"]) for row in positions(content)] == [
        ("0x9f2b", "destroyed", 255),
        ("0xaaaa", "started", 1),
    ]


@pytest.mark.parametrize(
    ("split", "name"),
    [
        ("parent 0x5500 splitCount 3 color 7 key 4- Init START", "0x9f2b/3.7"),  # 2.26
        ("parent 0x5500 childCount 3 color 7 key 4 - Init START", "0x9f2b/3.7"),  # 2.27
        ("parent 0x5500 color 7 key 4 commId 0xbb - Init START", "0xbb"),  # 2.21
        ("parent 0x7777 splitCount 3 color 7 key 4- Init START", None),
    ],
)
def test_names_of_split_communicators(split: str, name: str | None) -> None:
    content = line(START) + line(f"ncclCommSplit comm 0x66 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 {split}")
    assert positions(content)[1]["communicator"] == name


def test_a_file_of_one_process_gives_it_the_rank_of_the_file() -> None:
    assert positions(line(START), rank=4)[0]["rank"] == 4
    both = line(START) + line(START.replace("rank 4", "rank 5"), pid=4101)
    assert [row["rank"] for row in positions(both, rank=4)] == [None, None]


def test_a_rank_in_front_of_the_line() -> None:
    content = "".join(f"[rank{rank}]: {line(START, 4096 + rank)}" for rank in (4, 5))
    assert [row["rank"] for row in positions(content)] == [4, 5]


def test_send_and_receive_are_marked() -> None:
    (row,) = positions(line(START) + line(CALL.format("3").replace("AllReduce", "Send")))
    assert row["is_p2p"] is True


def test_a_local_rank_that_leaves_in_good_order_is_no_lost_peer() -> None:
    content = line("[Service thread] Connection closed by localRank 3")
    assert read(content.encode(), "nccl.log").rows("log_events") == []


def test_local_times_of_warnings_have_no_zone() -> None:
    rows = sample("nccl_log/handmade_2.28_two_ranks.log").rows("log_events")
    assert {row["time_ns"] for row in rows} == {None}


def test_long_lines_escapes_and_absurd_numbers_do_no_harm() -> None:
    content = line("x" * 10_000_000) + line(CALL.format("f" * 16)) + "\x1b[31m" + line(START) + line(CALL.format("5"))
    content += line(START.replace("nranks 8", "nranks " + "9" * 40))
    rows = positions(content)
    assert [row["enqueued"] for row in rows] == [None, 5]


def test_a_training_log_with_few_lines_of_nccl_stays_one() -> None:
    content = "".join(f"step {number}\n" for number in range(20)) + line(START)
    ingester = choose(content.encode(), "rank4.log")
    assert ingester is not None
    assert ingester.name == "training_log"
    assert len(positions(content, "rank4.log", rank=4)) == 1
