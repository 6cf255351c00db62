"""NCCL RAS reports, JSON and text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.recordings.ras import Comm, Member, as_json, as_text, without_commas
from tests.unit.ingest.reading import Result, read, sample

WORLD = "27a079b828ff1a75"


def counts(result: Result, kind: str) -> dict[int, int]:
    rows = [row for row in result.rows("ras_ranks") if row["communicator"] == WORLD and row["kind"] == kind]
    return {row["comm_rank"]: row["launched"] for row in rows}


def test_every_rank_and_kind_of_the_json_form() -> None:
    result = sample("nccl_ras/handmade_behind.0.json", sample=1)
    assert (result.ingester, result.problems) == ("nccl_ras", [])
    assert counts(result, "all_reduce") == {rank: 411 if rank == 5 else 412 for rank in range(8)}
    assert counts(result, "all_gather") == dict.fromkeys(range(8), 24)
    row = result.row("ras_ranks", communicator=WORLD, comm_rank=5, kind="all_reduce")
    assert (row["address"], row["pid"], row["device"], row["size"]) == ("10.0.0.2", 4150, 1, 8)
    assert (row["status"], row["init_state"], row["async_error"], row["snapshot"]) == ("running", 0, 0, 1)
    assert row["locator"] == "communicator=0,rank=5"
    (report,) = result.rows("ras_reports")
    assert (report["form"], report["nccl_version"], report["communicators"]) == ("json", "2.30.7", 2)


def test_a_kind_that_no_rank_used_has_no_rows_and_zero_is_kept_where_some_did() -> None:
    members = [Member(rank, "10.0.0.1", 10 + rank, rank, {"AllReduce": rank}) for rank in range(2)]
    result = read(as_json([Comm(0xA, members), Comm(0xB, [Member(0, "10.0.0.1", 10), Member(1, "10.0.0.1", 11)])]))
    used = [row for row in result.rows("ras_ranks") if row["communicator"].endswith("a")]
    assert [(row["comm_rank"], row["kind"], row["launched"]) for row in used] == [(0, "all_reduce", 0), (1, "all_reduce", 1)]
    unused = [row for row in result.rows("ras_ranks") if row["communicator"].endswith("b")]
    assert [(row["comm_rank"], row["kind"], row["launched"]) for row in unused] == [(0, None, 0), (1, None, 0)]


def test_missing_ranks_without_commas_are_read_all_the_same() -> None:
    """NCCL 2.28.7 and 2.28.9 leave out a comma just where a rank is missing."""
    result = sample("nccl_ras/handmade_lost_2.28.7.json")
    assert result.problems == []
    lost = [(row["comm_rank"], row["pid"], row["status"]) for row in result.rows("ras_ranks") if row["status"] != "running"]
    assert lost == [(3, 4130, "dead")]


def test_the_three_ways_of_missing() -> None:
    members = [Member(rank, "10.0.0.1", 10 + rank, rank, {"AllReduce": 7}) for rank in range(4)]
    lost = [replace(members[i], lost=word) for i, word in enumerate(("dead", "unresponsive", "nocomm"))]
    result = read(as_json([Comm(0xA, [*lost, members[3]])]))
    assert {row["comm_rank"]: row["status"] for row in result.rows("ras_ranks")} == {
        0: "dead",
        1: "unresponsive",
        2: "nocomm",
        3: "running",
    }


def test_the_text_form_names_the_smaller_sets_only() -> None:
    result = sample("nccl_ras_text/handmade_behind.0.txt")
    assert (result.ingester, result.problems) == ("nccl_ras_text", [])
    rows = [(row["comm_rank"], row["ranks"], row["kind"], row["launched"]) for row in result.rows("ras_ranks")]
    assert rows == [(None, 7, "all_reduce", 412), (5, 1, "all_reduce", 411)]
    (report,) = result.rows("ras_reports")
    assert (report["communicators"], report["gpus"], report["nccl_version"]) == (2, 8, "2.30.7")


def test_lost_processes_of_the_text_form() -> None:
    result = sample("nccl_ras_text/handmade_lost.txt")
    lost = [(row["communicator"], row["comm_rank"], row["pid"], row["status"]) for row in result.rows("ras_ranks")][:2]
    assert lost == [(None, None, 4130, "dead"), (WORLD, 3, 4130, "dead")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  The missing ranks: 21,22", [(21, "unresponsive"), (22, "unresponsive")]),
        ("  The unknown ranks: 3", [(3, "nocomm")]),
        ("  Rank 7 has status UNKNOWN", [(7, "nocomm")]),
        ("  Rank 7 has status FINALIZE -- [process information not found]", [(7, "finalize")]),
    ],
)
def test_lines_of_older_releases(line: str, expected: list[tuple[int, str]]) -> None:
    text = f"Job summary\n===========\n\nProcesses\n\n#0-0 (cf264af53edbe986) INCOMPLETE\n{line}\n\nWarnings\n========\n"
    result = read(text.encode(), "ras-0.txt")
    assert [(row["comm_rank"], row["status"]) for row in result.rows("ras_ranks")] == expected


def test_one_count_of_all_kinds_before_2_26() -> None:
    text = (
        "Job summary\n===========\n\nProcesses\n\nWarnings\n========\n\n#0-0 (27a079b828ff1a75) MISMATCH\n"
        "  Communicator ranks have different collective operation counts\n  3 ranks have launched up to operation 6650\n"
        "  Rank 2 has not launched any operations -- GPU 2 (NVML 6) managed by process 483074 on node 172.16.64.210\n"
    )
    rows = read(text.encode(), "ras-0.txt").rows("ras_ranks")
    assert [(row["kind"], row["launched"], row["device"]) for row in rows] == [("collective", 6650, None), ("collective", 0, 6)]


def test_one_rank_that_is_behind_is_a_set_of_its_own() -> None:
    text = (
        "Job summary\n===========\n\nProcesses\n\nWarnings\n========\n\n#0-0 (27a079b828ff1a75) MISMATCH\n"
        "  Communicator ranks have different AllGather operation counts\n  31 ranks have launched up to operation 641\n"
        "  1 rank has launched up to operation 640\n  Rank 12 -- GPU 4 managed by process 323032 on node 10.138.19.124\n"
    )
    rows = read(text.encode(), "ras-0.txt").rows("ras_ranks")
    assert [(row["comm_rank"], row["launched"]) for row in rows] == [(None, 641), (None, 640), (12, 640)]


def test_errors_of_ranks() -> None:
    text = (
        "Job summary\n===========\n\nProcesses\n\n#1-0 (cf264af53edbe986) ERROR\n  Asynchronous error on 1 rank\n"
        "  Rank 4 reported Remote process error -- GPU 4 managed by process 12 on node 10.0.0.1\n\nWarnings\n========\n"
    )
    (row,) = read(text.encode(), "ras-0.txt").rows("ras_ranks")
    assert (row["comm_rank"], row["async_error"], row["pid"]) == (4, 6, 12)


def test_cut_empty_and_hostile_reports_give_warnings_only() -> None:
    whole = as_text([Comm(0xA, [Member(rank, "10.0.0.1", 10 + rank, rank, {"AllReduce": 7 - rank}) for rank in range(3)])])
    head = whole[: whole.index(b"Warnings")]
    assert [problem.message for problem in read(head).problems] == ["ends before its section of warnings: it may be cut"]
    report = as_json([Comm(0xA, [Member(0, "10.0.0.1", 10, 0, {"AllReduce": 7})])])
    (problem,) = read(report[:-40]).problems
    assert problem.fatal
    document = json.loads(report)
    document["communicators"][0]["ranks"][0] |= {"pid": [], "collective_counts": {"AllReduce": "x", "Reduce": 1 << 80}}
    document["communicators"].append({"hash": "zz"})
    document["communicators"].append(7)
    result = read(json.dumps(document).encode())
    assert [problem.message for problem in result.problems] == [
        "2 communicators instead of 1",
        "a communicator without a hash; left out",
    ]
    assert [(row["pid"], row["launched"]) for row in result.rows("ras_ranks")] == [(None, 0)]


def test_the_repair_does_not_touch_a_sound_report() -> None:
    lost = Comm(0xA, [Member(0, "10.0.0.1", 10, lost="dead"), Member(1, "10.0.0.1", 11, 1, {"AllReduce": 7})])
    broken = read(without_commas(as_json([lost])))
    assert broken.rows("ras_ranks") == read(as_json([lost])).rows("ras_ranks")
