"""Exports of dashboards with a column for each GPU: whose columns are read, and which GPU is where to begin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from forensics.ingest import choose
from tests.recordings.verdicts import verdict_of
from tests.unit.ingest.reading import SAMPLES, read, sample

NAME = "gpu_series/handmade_run.csv"
RUN = (SAMPLES / NAME).read_text()
OF_GRAFANA = "GPU utilization-data.csv"


def table(names: Sequence[str], *rows: Sequence[object]) -> str:
    """A table of these columns, a row a minute."""
    lines = [
        ",".join(("Time", *names)),
        *(f"2026-04-02 09:{at:02d}:00,{','.join(map(str, row))}" for at, row in enumerate(rows)),
    ]
    return "\n".join(lines) + "\n"


def test_the_last_readings_of_each_gpu() -> None:
    found = sample(NAME)
    assert found.problems == [] and found.ingester == "gpu_series"
    assert [(row["host"], row["device"]) for row in found.rows("devices")] == [(None, f"GPU-{gpu}") for gpu in range(4)]
    of_two = [(row["counter"], row["value"]) for row in found.rows("counters") if row["device"] == "GPU-2"]
    assert of_two == [("utilization_percent", 0)] * 5 + [("utilization_most_percent", 99)]


@pytest.mark.parametrize(
    ("names", "path", "expected"),
    [
        (("n-07:0", "n-07:1"), OF_GRAFANA, [("n-07", "GPU-0"), ("n-07", "GPU-1")]),
        (("n-07 GPU 0", "n-08 GPU 0"), OF_GRAFANA, [("n-07", "GPU-0"), ("n-08", "GPU-0")]),
        (("GPU 0", "GPU 1"), "gpu power.csv", [(None, "GPU-0"), (None, "GPU-1")]),
        (('"DCGM_FI_DEV_GPU_UTIL{gpu=""0"", Hostname=""n1""}"', '"DCGM_FI_DEV_GPU_UTIL{gpu=""1"", Hostname=""n1""}"'), "a.csv",
         [("n1", "GPU-0"), ("n1", "GPU-1")]),
        (('"{gpu=""0"", instance=""n2:9400""}"', '"{gpu=""1"", instance=""n2:9400""}"'), OF_GRAFANA,
         [("n2", "GPU-0"), ("n2", "GPU-1")]),
        (("a - system/gpu.0.gpu", "b - system/gpu.0.gpu"), "w.csv", [("a", "GPU-0"), ("b", "GPU-0")]),
    ],
    ids=["host and number", "in words", "numbers", "metric and labels", "labels", "two runs"],
)  # fmt: skip
def test_columns_of_gpus(names: Sequence[str], path: str, expected: list[tuple[str | None, str]]) -> None:
    found = read(table(names, (97, 95), (98, "")).encode(), path)
    assert found.problems == []
    assert [(row["host"], row["device"]) for row in found.rows("devices")] == expected


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (("gpu-1", "gpu-2"), OF_GRAFANA),
        (("n-07:0", "n-07:1"), "requests.csv"),
        (("n-07:0", "loss"), OF_GRAFANA),
        (("GPU 0", "GPU 0"), OF_GRAFANA),
        (("GPU 0", "GPU 1"), "GPU power and utilization.csv"),
        (("rank 0 ms", "rank 1 ms"), OF_GRAFANA),
    ],
    ids=["hosts", "of what is not said", "another column", "one GPU twice", "two readings", "ranks"],
)
def test_other_tables_are_left_alone(names: Sequence[str], path: str) -> None:
    found = choose(table(names, (97, 95)).encode(), path)
    assert found is None or found.name != "gpu_series"


def test_a_table_that_was_cut_keeps_its_rows() -> None:
    found = read(RUN[:-9].encode(), NAME)
    assert len([row for row in found.rows("counters") if row["device"] == "GPU-0"]) == 6


def test_the_names_of_many_gpus_fill_the_head() -> None:
    names = [f"calm-lake-7-of-many - system/gpu.{gpu}.gpu" for gpu in range(256)]
    assert len(read(table(names, [97] * 256).encode(), "w.csv").rows("devices")) == 256


def test_a_row_of_words_is_left_out() -> None:
    found = read((RUN + "166,a,b,c,d,e,f,g,h,i,j,k,l\n").encode(), NAME)
    assert [(each.message, each.locator) for each in found.problems] == [("not a row of numbers; left out", "line=14")]


IDLE, BUSY = (100, 0, 100, 100), (97, 98, 96, 99)


@pytest.mark.parametrize(
    ("rows", "is_lead"),
    [
        ([*[BUSY] * 6, *[IDLE] * 6], True),
        ([IDLE] * 12, False),
        ([*[IDLE] * 6, *[BUSY] * 6], False),
        ([*[BUSY] * 6, *[(100, 0, 0, 100)] * 6], False),
        ([*[BUSY] * 9, *[IDLE] * 3], False),
    ],
    ids=["in the end", "never used", "before", "two", "for too short"],
)
def test_the_one_gpu_that_became_idle_is_where_to_begin(rows: list[Sequence[int]], is_lead: bool, tmp_path: Path) -> None:
    (tmp_path / OF_GRAFANA).write_text(table([f"n-0{host}:0" for host in range(4)], *rows))
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects
    assert [lead for lead in verdict.leads if "GPU-0 of n-01" in lead] == list(verdict.leads) and bool(verdict.leads) == is_lead
