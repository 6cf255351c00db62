from __future__ import annotations

import random
from pathlib import Path

import pytest

from forensics.ingest.megatrace_log import LINE_CHARS, RING_LINES
from tests.recordings.verdicts import verdict_of
from tests.unit.ingest.reading import SAMPLES, Result, read, sample

GROUP = -4411223344556677889
LABEL = f"nccl:megatrace-{GROUP & (1 << 64) - 1:016x}"


@pytest.fixture(scope="module")
def log() -> Result:
    return sample("megatrace_log/handmade_rank_3.log")


def line(number: int, group: int | None = GROUP, dump: int = 1, **other: object) -> str:
    """A line as the patch writes it: what is longer than its buffer is cut."""
    known = {"rank": 3, "kind": "AllReduce", "stream": "0x55d0a1b2c3d0", "count": 1024, **other}
    said = (
        f"[{1760000000 + number}.{number:09d}] [Rank {known['rank']}] Fun {known['kind']} Data {known['count']} "
        f"stream {known['stream']} opCount {number}"
    )
    said += "" if group is None else f" groupHash {group}"
    return f"[save_count {dump}] {said[:LINE_CHARS]}\n"


def read_lines(*lines: str) -> Result:
    return read("".join(lines).encode(), "rank_3.log")


def coverage(log: Result) -> tuple[str, str | None]:
    (row,) = log.rows("coverage")
    return row["status"], row["reason"]


def test_calls_of_the_sample(log: Result) -> None:
    rows = log.rows("operations")
    assert len(rows) == 15
    first, receive = rows[0], rows[2]
    assert (first["kind"], first["rank"], first["op_id"], first["count"], first["stream"]) == ("all_reduce", 3, 0, 1, 0)
    assert (first["communicator"], first["pg_name"]) == (LABEL, LABEL)
    assert (receive["kind"], receive["is_p2p"], receive["stream"]) == ("recv", True, 0x55D0A1B2E000)
    assert receive["entered_ns"] == 1760000006_000000137


def test_a_call_says_nothing_of_its_end(log: Result) -> None:
    """A history, as a shim log is: no snapshot, no number that members share, nothing enqueued by the recorder's clock."""
    assert {row["state"] for row in log.rows("operations")} == {"pending"}
    for name in ("snapshot", "sequence", "enqueued_ns", "returned_ns", "dtype", "peer"):
        assert name not in log.rows("operations")[0]
    assert not log.rows("log_positions")


def test_the_sample_is_of_one_rank(log: Result) -> None:
    assert [(item.rank, item.host) for item in log.identities] == [(3, None)]
    assert log.problems == []


def test_a_hash_that_was_cut_is_shown_by_a_whole_one(log: Result) -> None:
    cut = [row for row in log.rows("operations") if row["kind"] == "reduce_scatter"]
    assert {row["communicator"] for row in cut} == {"nccl:megatrace-8f43af171eaf0cb2"}
    alone = read_lines(line(123456, -8123456789012345678, kind="ReduceScatter", count=25165824))
    assert alone.rows("operations")[0]["communicator"] is None
    assert coverage(alone) == ("partial", "1 of 1 lines do not state their communicator")


def test_a_cut_hash_that_fits_two_is_nobodys() -> None:
    two = [-8123456789012345671, -8123456789012345672]
    cut = line(123456, two[0], kind="ReduceScatter", count=25165824)
    log = read_lines(*(line(1, group) for group in two), cut)
    assert [row["communicator"] for row in log.rows("operations")][2] is None


def test_a_number_that_was_cut_is_unknown() -> None:
    cut = line(123456789, stream="0xffffffffffffffff", count=10**19, kind="A" * 27)
    log = read_lines(cut)
    assert len(cut) == len("[save_count 1] \n") + LINE_CHARS
    assert log.rows("operations")[0]["op_id"] is None


def test_logs_without_groups() -> None:
    log = sample("megatrace_log/handmade_without_groups_rank_0.log")
    assert {row["communicator"] for row in log.rows("operations")} == {None}
    assert coverage(log) == ("partial", "4 of 4 lines do not state their communicator")


def test_launches_without_a_line_are_counted(log: Result) -> None:
    """Several calls of a group share a number; the numbers of one communicator leave none out."""
    assert coverage(log) == ("partial", "3 launches between the others have no line")
    assert coverage(read_lines(line(1), line(1), line(2), line(2))) == ("ok", None)
    assert coverage(read_lines(line(5), line(1), line(6))) == ("ok", None)  # a new communicator of the same group


def test_a_full_ring_was_overwritten() -> None:
    whole = [line(7, dump=2)] * RING_LINES
    assert coverage(read_lines(line(7), *whole)) == ("partial", "1 dumps filled the ring: older lines were overwritten")
    assert coverage(read_lines(*whole[1:], line(7, dump=3))) == ("ok", None)


def test_lines_of_several_ranks_keep_theirs() -> None:
    log = read_lines(line(1, rank=0), line(1, rank=1), line(2, rank=-1))
    assert [row["rank"] for row in log.rows("operations")] == [0, 1, None]
    assert [item.rank for item in log.identities] == []


def test_damaged_lines_are_left_out_with_their_place() -> None:
    log = read_lines(line(1), "[save_count 1] [1760\n", line(2), "x\n" * 40)
    assert [row["locator"] for row in log.rows("operations")] == [1, 3]
    assert log.problems[0].locator == "line=2"
    assert log.problems[-1].message == "41 lines in all could not be read"
    assert len(log.problems) == 21


def test_cut_anywhere() -> None:
    content = (SAMPLES / "megatrace_log/handmade_rank_3.log").read_bytes()
    for end in range(60, len(content), 37):
        log = read(content[:end], "rank_3.log")
        assert len(log.rows("operations")) + len(log.problems) == content[:end].count(b"\n") + (content[end - 1 : end] != b"\n")


def test_hostile_lines_never_raise() -> None:
    content = (SAMPLES / "megatrace_log/handmade_rank_3.log").read_bytes()
    chance = random.Random(5)
    for _ in range(40):
        damaged = bytearray(content)
        for _ in range(chance.randrange(1, 200)):
            damaged[chance.randrange(130, len(content))] = chance.randrange(256)
        assert read(bytes(damaged), "rank_3.log").ingester == "megatrace_log"
    large = line(1, 10**19, count=10**20 - 1, stream="0x" + "f" * 16)
    row = read_lines(
        large, line(1), "[save_count 1] [9999999999.000000000] [Rank 0] Fun A Data 1 stream (nil) opCount 1\n"
    ).rows("operations")
    assert (row[0]["count"], row[0]["stream"]) == (None, -1)
    assert row[2]["entered_ns"] is None


def test_a_log_that_ends_earlier_accuses_nobody(tmp_path: Path) -> None:
    """A process that called until it was killed leaves a file that ends at an earlier pause."""
    for rank in range(8):
        calls = 480 if rank == 5 else 500
        (tmp_path / f"rank_{rank}.log").write_text("".join(line(number, rank=rank) for number in range(calls)))
    assert verdict_of(tmp_path).suspects == ()
