from __future__ import annotations

import json
import random
import re
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.fixtures.simulator.writers.nic_epochs import packed
from forensics.ingest.nic_epochs import layout
from tests.unit.ingest.reading import SAMPLES, Result, read

PAGE = Path(__file__).parents[3] / "docs/formats/nic-epochs.md"
TEXT: dict[str, Any] = {
    "host": "n1", "rank": 3, "nic": "mlx5_2", "epoch_ns": 32_000, "clock": "realtime", "first_epoch": 100, "epochs": 50,
    "lost": [[120, 4]], "queue_pairs": [{"number": 77, "remote_number": 78, "gid": "fe80::1"}, {"number": 9, "generation": 2}],
}  # fmt: skip
RUNS = [(0, 0, 100, np.array([5, 0, 900_000], np.uint32)), (1, 1, 130, np.array([7], np.uint32))]


@pytest.fixture(scope="module")
def content() -> bytes:
    return (SAMPLES / "nic_epochs" / "simulated_0.epochs").read_bytes()


def sealed(content: bytes, **fields: Any) -> bytes:
    """The file with fields of its head changed and a checksum that fits."""
    head = np.frombuffer(content[:32], layout.HEAD).copy()
    for name, value in fields.items():
        head[name] = value
    end = 32 + int(head["text_bytes"][0]) + int(head["runs"][0]) * 32
    head["checksum"] = zlib.crc32(content[32:end], zlib.crc32(head.tobytes()[:28]))
    return head.tobytes() + content[32:]


def with_run(**fields: Any) -> Result:
    """A capture whose first run has other fields."""
    content = packed(TEXT, RUNS)
    begin = 32 + int(np.frombuffer(content, layout.HEAD, 1)["text_bytes"][0])
    table = np.frombuffer(content, layout.RUN, 2, begin).copy()
    for name, value in fields.items():
        table[0][name] = value
    return read(sealed(content[:begin] + table.tobytes() + content[begin + 64 :]))


def test_the_page_describes_the_layout_that_is_read() -> None:
    text = PAGE.read_text()
    for title, kind in (("Head", layout.HEAD), ("Table of runs", layout.RUN)):
        part = text.split(f"# {title}\n")[1].split("\n#")[0]
        rows = re.findall(r"^\| (\d+) \| (\d+) \| [\w\[\]]+ \| (\w+) \|", part, re.MULTILINE)
        assert kind.fields is not None
        assert [(int(at), int(size), name) for at, size, name in rows] == [
            (field[1], field[0].itemsize, name) for name, field in kind.fields.items()
        ]


def test_the_sample_gives_its_capture_queue_pairs_and_runs(content: bytes) -> None:
    found = read(content)
    assert found.problems == []
    assert found.ingester == "nic_epochs"
    (identity,) = found.identities
    assert identity.rank == 0
    (capture,) = found.rows("captures")
    assert (capture["epoch_ns"], capture["unit"], capture["clock"]) == (32_000, "bytes", "realtime")
    names = {row["queue_pair"] for row in found.rows("queue_pairs")}
    runs = found.rows("nic_epochs")
    assert names and {row["queue_pair"] for row in runs} <= names
    assert {row["direction"] for row in runs} == {"send", "recv"}
    first = capture["first_epoch"]
    for row in runs:
        count = len(json.loads(row["values"]))
        assert first <= row["first_epoch"] and row["first_epoch"] + count <= first + capture["epochs"]


def test_what_is_written_is_what_is_read() -> None:
    found = read(packed(TEXT, RUNS))
    assert found.problems == []
    assert found.rows("captures")[0]["lost"] == "[[120,4]]"
    assert [row["queue_pair"] for row in found.rows("queue_pairs")] == ["mlx5_2/77", "mlx5_2/9.2"]
    rows = [
        (row["queue_pair"], row["direction"], row["first_epoch"], json.loads(row["values"])) for row in found.rows("nic_epochs")
    ]
    assert rows == [("mlx5_2/77", "send", 100, [5, 0, 900_000]), ("mlx5_2/9.2", "recv", 130, [7])]


def test_widths_fit_the_values() -> None:
    for largest in (200, 60_000, 4_000_000_000):
        runs = [(0, 0, 0, np.array([1, largest], np.uint32))]
        assert json.loads(read(packed(TEXT, runs)).rows("nic_epochs")[0]["values"]) == [1, largest]


def test_a_cut_file_is_read_up_to_the_cut() -> None:
    content = packed(TEXT, RUNS)
    found = read(content[:-5])
    assert [problem.fatal for problem in found.problems] == [False, False]
    assert json.loads(found.rows("nic_epochs")[0]["values"]) == [5, 0]
    assert "behind the cut" in found.problems[1].message


@pytest.mark.parametrize("length", [8, 31, 40, 200])
def test_a_file_cut_before_its_data_is_refused_whole(content: bytes, length: int) -> None:
    (problem,) = read(content[:length]).problems
    assert problem.fatal and problem.locator == f"byte={length}"


def test_another_version_is_refused_and_a_later_minor_is_read(content: bytes) -> None:
    (problem,) = read(sealed(content, major=2)).problems
    assert problem.fatal and "layout 2" in problem.message
    assert read(sealed(content, minor=7)).problems == []


def test_a_flipped_byte_in_the_tables_is_noticed(content: bytes) -> None:
    broken = bytearray(content)
    broken[60] ^= 1
    (problem,) = read(bytes(broken)).problems
    assert problem.fatal and "checksum" in problem.message


@pytest.mark.parametrize(
    "fields",
    [
        {"queue_pair": 2}, {"direction": 2}, {"width": 3}, {"width": 0}, {"offset": 0}, {"offset": 2**63},
        {"first_epoch": 2**63 - 1},
        {"count": 0},
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_is_dropped_with_its_position(fields: dict[str, int]) -> None:
    found = with_run(**fields)
    (problem,) = found.problems
    assert problem.locator and problem.locator.startswith("byte=") and not problem.fatal
    assert [row["queue_pair"] for row in found.rows("nic_epochs")] == ["mlx5_2/9.2"]


def test_a_run_that_claims_the_universe_is_cut() -> None:
    found = with_run(count=2**63)
    assert sum(len(json.loads(row["values"])) for row in found.rows("nic_epochs")) < 20


def test_runs_that_share_bytes_do_not_multiply() -> None:
    count = 4000
    values = np.full(1 << 16, 3_000_000_000, np.uint32)
    content = packed(TEXT, [(0, 0, 0, values)] + [(0, 0, n, values[:1]) for n in range(count)])
    begin = 32 + int(np.frombuffer(content, layout.HEAD, 1)["text_bytes"][0])
    table = np.frombuffer(content, layout.RUN, count + 1, begin).copy()
    table["offset"], table["count"] = table["offset"][0], len(values)
    found = read(sealed(content[:begin] + table.tobytes() + content[begin + table.nbytes :]))
    assert len(found.rows("nic_epochs")) <= 2
    assert any("more values than the file has bytes" in problem.message for problem in found.problems)


def test_values_beyond_what_a_table_holds_are_dropped() -> None:
    content = packed(TEXT, [(0, 0, 0, np.array([1, 2], np.uint32))])
    begin = 32 + int(np.frombuffer(content, layout.HEAD, 1)["text_bytes"][0])
    table = np.frombuffer(content, layout.RUN, 1, begin).copy()
    table["width"], table["count"], table["offset"] = 8, 1, table["offset"][0]
    found = read(sealed(content[:begin] + table.tobytes()) + b"\xff" * 8)
    assert found.rows("nic_epochs") == [] and "out of range" in found.problems[-1].message


@pytest.mark.parametrize("epoch", [0, -1, None, "x", 10**30, True])
def test_a_description_without_an_epoch_is_refused(epoch: Any) -> None:
    (problem,) = read(packed({**TEXT, "epoch_ns": epoch} if epoch != 10**30 else {**TEXT, "epoch_ns": 10**18}, RUNS)).problems
    assert problem.fatal


@pytest.mark.parametrize("key", ["host", "rank", "nic", "lost", "queue_pairs", "first_epoch", "clock"])
@pytest.mark.parametrize("value", [None, 5, -1, "x", [], {}, [[1]], [{"number": "a"}], ["\ud800"[:0], 3.5]])
def test_no_value_of_the_description_does_harm(key: str, value: Any) -> None:
    found = read(packed({**TEXT, key: value}, RUNS))
    assert len(found.rows("captures")) == 1


def test_noise_gives_problems_only(content: bytes) -> None:
    random.seed(5)
    for _ in range(200):
        broken = bytearray(content)
        for _ in range(random.randint(1, 40)):
            broken[random.randrange(8, len(broken))] = random.randrange(256)
        sealed_again = sealed(bytes(broken)) if random.random() < 0.5 and max(broken[12:16]) < 1 else bytes(broken)
        assert read(sealed_again) is not None


def test_a_million_values_are_read_in_no_time() -> None:
    values = np.random.default_rng(1).integers(0, 1_600_000, 4_000_000).astype(np.uint32)
    content = packed(TEXT, [(0, 0, 0, values)])
    began = time.process_time()
    (row,) = read(content).rows("nic_epochs")
    assert time.process_time() - began < 2.0
    assert row["values"].count(",") == len(values) - 1
