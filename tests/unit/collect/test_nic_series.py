"""`forensics nic-sample` on a stand-in for sysfs: what it records is read again, and a signal ends it."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forensics.cli import app
from forensics.collect.interrupts import Interrupts
from forensics.collect.nic_series import Sampling, record
from tests.unit.ingest.reading import read


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    for folder, name, value in (
        ("counters", "port_xmit_data", 7), ("counters", "symbol_error", 0), ("hw_counters", "out_of_sequence", 3),
        ("hw_counters", "asks_the_firmware", 1),
    ):  # fmt: skip
        (port / folder).mkdir(parents=True, exist_ok=True)
        (port / folder / name).write_text(f"{value}\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    return tmp_path


def test_what_is_recorded_is_read_again(sysfs: Path, tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    arguments = ["nic-sample", "--sysfs", str(sysfs), "-o", str(path), "--interval", "0.01", "--seconds", "0.02"]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.output.split()[:3]) == (0, ["wrote", "3", "reads"])
    assert [len(json.loads(line)["ports"]) for line in path.read_text().splitlines()[1:]] == [1, 0, 0]
    found = read(path.read_bytes(), path.name)
    assert found.problems == [] and found.row("devices", device="mlx5_0/1")["rate_bytes_per_s"] == 50_000_000_000
    last = {row["counter"]: row["value"] for row in found.rows("counters") if row["sample"] == 1}
    assert last == {"port_xmit_data": 7, "symbol_error": 0, "out_of_sequence": 3}
    assert CliRunner().invoke(app, arguments).exit_code != 0, "nothing is replaced"


def test_a_signal_ends_it_after_a_whole_line(sysfs: Path) -> None:
    text = io.StringIO()
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert record(text, sysfs / "class/infiniband", "n1", Sampling(60.0), interrupts) == 0
    assert [json.loads(line)["node"] for line in text.getvalue().splitlines()] == ["n1"]


def test_a_host_without_such_nics_is_stated_so(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["nic-sample", "--sysfs", str(tmp_path), "-o", str(tmp_path / "x")])
    assert done.exit_code != 0 and not (tmp_path / "x").exists()
