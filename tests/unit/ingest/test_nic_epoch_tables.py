"""NIC epochs as CSV and as Parquet: the same capture, in any order, and bad rows by their place."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from tests.unit.ingest.reading import Result, read

CSV = b"""# host=n1
# nic=mlx5_2
# rank=3
# epoch_ns=32000
# clock=realtime
epoch,queue_pair,direction,bytes,gid,remote_gid,remote_number
130,77,recv,7,fe80::1,fe80::2,78
100,77,tx,5,fe80::1,fe80::2,78
102,77,tx,900000,fe80::1,fe80::2,78
"""


def runs(found: Result) -> list[tuple[str, str, int, list[int]]]:
    rows = found.rows("nic_epochs")
    return [(row["queue_pair"], row["direction"], row["first_epoch"], json.loads(row["values"])) for row in rows]


def test_rows_of_one_nic_in_any_order() -> None:
    found = read(CSV)
    assert (found.ingester, found.problems) == ("nic_epochs", [])
    assert [(each.rank, each.host) for each in found.identities] == [(3, "n1")]
    (capture,) = found.rows("captures")
    assert (capture["nic"], capture["epoch_ns"], capture["clock"]) == ("mlx5_2", 32_000, "realtime")
    assert (capture["first_epoch"], capture["epochs"]) == (100, 31)
    assert runs(found) == [("mlx5_2/77", "send", 100, [5, 0, 900_000]), ("mlx5_2/77", "recv", 130, [7])]
    pair = found.row("queue_pairs", number=77)
    assert (pair["gid"], pair["remote_nic"], pair["remote_queue_pair"], pair["rank"]) == ("fe80::1", "fe80::2", "78", 3)


def test_times_stand_for_epochs_and_nics_are_captures_of_their_own() -> None:
    text = "time_ns;host;nic;rank;epoch_ns;queue_pair;direction;bytes\n"
    text += "".join(f"{32_000 * at};n{at % 2};mlx5_0;{at % 2};32000;9;send;{at}\n" for at in range(1, 5))
    found = read(text.encode())
    assert found.problems == [] and [row["clock"] for row in found.rows("captures")] == ["realtime"] * 2
    assert sorted(row["host"] for row in found.rows("captures")) == ["n0", "n1"]
    assert sorted(runs(found)) == [("n0:mlx5_0/9", "send", 2, [2, 0, 4]), ("n1:mlx5_0/9", "send", 1, [1, 0, 3])]


def test_bad_rows_are_named_by_their_line_and_the_others_are_read() -> None:
    bad = b"x,77,send,1\n5,77,sideways,1\n5,77,send,-1\n5\n\n9,77,send\n"
    found = read(CSV + bad + b"131,77,recv,8,fe80::1,fe80::2,78\n")
    assert [problem.locator for problem in found.problems] == ["line=10", "line=11", "line=12", "line=13", "line=15"]
    assert runs(found)[-1] == ("mlx5_2/77", "recv", 130, [7, 8])


def test_without_a_length_of_epochs_nothing_is_read() -> None:
    found = read(CSV.replace(b"# epoch_ns=32000\n", b""))
    assert found.rows("captures") == [] and "epoch_ns" in found.problems[0].message and found.problems[-1].fatal


def test_many_bad_rows_are_counted() -> None:
    found = read(CSV + b"x\n" * 50)
    assert len(found.problems) == 21 and "30 more rows" in found.problems[-1].message


def test_parquet_with_the_same_columns(tmp_path: Path) -> None:
    path = tmp_path / "epochs.parquet"
    rows = "SELECT 100 + n AS epoch, 77 AS queue_pair, 'send' AS direction, n AS bytes, 32000 AS epoch_ns, 'mlx5_0' AS nic"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({rows} FROM range(3) r(n)) TO '{path}' (FORMAT parquet)")
    found = read(path.read_bytes())
    assert (found.problems, runs(found)) == ([], [("mlx5_0/77", "send", 100, [0, 1, 2])])


@pytest.mark.parametrize("columns", ["1 AS a", "1 AS epoch, 2 AS bytes"])
def test_another_parquet_file_is_named_and_not_read(columns: str, tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {columns}) TO '{tmp_path}/x.parquet' (FORMAT parquet)")
    content = (tmp_path / "x.parquet").read_bytes()
    for found in (read(content), read(content[:20])):
        assert found.rows("captures") == [] and found.problems[0].fatal


def test_a_map_of_queue_pairs_has_no_captures() -> None:
    found = read(b"# host=n1\nnic;queue_pair;rank;peer\nmlx5_0;77;3;5\nmlx5_0;;3;5\n;78;3;5\nmlx5_0;79;;\nmlx5_1;80;;4\n")
    assert found.ingester == "nic_epochs" and found.rows("captures") == []
    assert [problem.locator for problem in found.problems] == ["line=4", "line=5", "line=6"]
    rows = [(row["nic"], row["number"], row["rank"], row["peer"]) for row in found.rows("queue_pairs")]
    assert rows == [("mlx5_0", 77, 3, 5), ("mlx5_1", 80, None, 4)]


def test_a_row_says_what_was_captured_of_its_nic(tmp_path: Path) -> None:
    path = tmp_path / "epochs.parquet"
    said = "32000 AS epoch_ns, 90 AS first_epoch, 500 AS epochs, 25000000000 AS line_bytes_per_s"
    rows = f"SELECT 100 + n AS epoch, 77 AS queue_pair, 'send' AS direction, n AS bytes, 'mlx5_' || n AS nic, {said}"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({rows} FROM range(2) r(n)) TO '{path}' (FORMAT parquet)")
    captures = read(path.read_bytes()).rows("captures")
    assert [(row["first_epoch"], row["epochs"], row["line_bytes_per_s"]) for row in captures] == [(90, 500, 25e9)] * 2


def test_parts_of_a_capture_that_rows_tell_apart_are_one() -> None:
    rows = "100,10,105,77,tx,5\n200,10,205,77,tx,5\n200,-10,206,77,tx,5\n,10,207,77,tx,5\n"
    found = read(b"# nic=a\n# epoch_ns=32000\nfirst_epoch,epochs,epoch,queue_pair,direction,bytes\n" + rows.encode())
    (capture,) = found.rows("captures")
    assert (capture["first_epoch"], capture["epochs"]) == (100, 110)
