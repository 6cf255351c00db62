"""The recorder: what it writes is what happened, and nothing it meets reaches the trainer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from forensics.recorder import Recorder, layout
from forensics.recorder import writer as writer_module
from tests.unit.ingest.reading import Result, read

ROOT = Path(__file__).parents[3]


def recorded(folder: Path, rank: int = 0) -> Result:
    path = folder / f"rank_{rank}.stages"
    return read(path.read_bytes(), path.name)


def stages(found: Result, step: int) -> list[str]:
    rows = [row for row in found.rows("stage_spans") if row["step"] == step and not row["side_channel"]]
    return [row["stage"] for row in sorted(rows, key=lambda row: int(row["order_index"]))]


def test_steps_and_stages_come_back(tmp_path: Path) -> None:
    perf = Recorder(tmp_path, rank=2, world_size=4)
    for _ in range(3):
        with perf.step(), perf.stage("data"):
            time.sleep(0.002)
    perf.close()
    found = recorded(tmp_path, 2)
    assert perf.error is None
    assert found.identities[0].rank == 2 and found.config() == {"world_size": "4"}
    assert [row["step"] for row in found.rows("steps")] == [0, 1, 2]
    assert all(2e6 <= row["duration_ns"] < 5e8 for row in found.rows("stage_spans"))


def test_a_wait_belongs_to_the_step_that_consumes_the_batch(tmp_path: Path) -> None:
    perf = Recorder(tmp_path, rank=0)

    def loader() -> Any:
        for number in range(3):
            time.sleep(0.02 if number == 1 else 0)
            yield number

    for _ in perf.batches(loader()):
        with perf.step(), perf.stage("forward"):
            pass
    perf.close()
    waits = {row["step"]: row["duration_ns"] for row in recorded(tmp_path).rows("stage_spans") if row["stage"] == "data"}
    assert waits[1] > 15e6 > max(waits[0], waits[2])


def test_a_prefetch_is_moved_to_the_next_step(tmp_path: Path) -> None:
    perf = Recorder(tmp_path, rank=0)
    for number in range(2):
        with perf.step():
            with perf.stage("forward"):
                pass
            if number == 0:
                with perf.prefetch():
                    time.sleep(0.02)
    perf.close()
    found = recorded(tmp_path)
    walls = {row["step"]: row["wall_ns"] for row in found.rows("steps")}
    assert stages(found, 0) == ["forward"] and stages(found, 1) == ["data", "forward"]
    assert walls[0] < 15e6 < walls[1]


def test_nested_stages_are_rejected_and_probes_are_side_channels(tmp_path: Path) -> None:
    perf = Recorder(tmp_path, rank=0)
    with perf.step(), perf.stage("forward"):
        with perf.stage("loss"):
            pass
        with perf.probe("attention"):
            pass
    with perf.stage("outside"):
        pass
    perf.close()
    found = recorded(tmp_path)
    assert stages(found, 0) == ["forward"]
    assert [row["side_channel"] for row in found.rows("stage_spans")].count(True) == 1
    stated = " ".join(problem.message for problem in found.problems)
    assert "1 stages lay inside another" in stated and "1 stages lay outside a step" in stated


def test_accumulation_is_numbered(tmp_path: Path) -> None:
    perf = Recorder(tmp_path, rank=0)
    with perf.step():
        for _ in range(4):
            with perf.stage("forward"):
                pass
            with perf.stage("backward"):
                pass
    perf.close()
    found = recorded(tmp_path)
    assert [row["substep"] for row in found.rows("stage_spans")] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found.rows("steps")[0]["accumulation"] == 4


def test_the_file_is_bounded_and_keeps_the_newest_steps(tmp_path: Path) -> None:
    perf = Recorder(tmp_path, rank=0, slots=10, spans=2)
    for _ in range(100):
        with perf.step():
            for name in ("data", "forward", "backward"):
                with perf.stage(name):
                    pass
    perf.close()
    assert (tmp_path / "rank_0.stages").stat().st_size == layout.SLOTS_OFFSET + 10 * layout.slot_bytes(2)
    found = recorded(tmp_path)
    assert [row["step"] for row in found.rows("steps")] == list(range(90, 100))
    assert any("100 stages did not fit" in problem.message for problem in found.problems)


def test_an_exception_of_the_trainer_passes_through(tmp_path: Path) -> None:
    perf = Recorder(tmp_path, rank=0)
    with pytest.raises(ValueError, match="mine"), perf.step(), perf.stage("forward"):
        raise ValueError("mine")
    with perf.step(), perf.stage("forward"):
        pass
    perf.close()
    assert len(recorded(tmp_path).rows("steps")) == 2


@pytest.mark.parametrize("folder", ["/proc/nowhere/at/all", "/dev/null/x", "\0"])
def test_a_folder_that_cannot_be_written_costs_nothing(folder: str) -> None:
    perf = Recorder(folder, rank=0)
    for batch in perf.batches([1, 2]):
        with perf.step(), perf.stage("data"), perf.device_time():
            assert batch
    perf.close()
    assert perf.error


def test_without_a_folder_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORENSICS_STAGES", raising=False)
    perf = Recorder()
    with perf.step(), perf.stage("data"):
        pass
    assert perf.error


def test_a_disk_that_does_not_answer_blocks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module.Writer, "_flush", lambda self: time.sleep(60))
    perf = Recorder(tmp_path, rank=0)
    began = time.monotonic()
    for _ in range(writer_module.MAX_WAITING + 50):
        with perf.step(), perf.stage("data"):
            pass
    assert time.monotonic() - began < 5
    assert perf._counts.dropped == 50
    perf._writer = None


def test_an_older_file_of_the_rank_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        perf = Recorder(tmp_path, rank=0)
        with perf.step():
            pass
        perf.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank_0.stages", "rank_0.stages.previous"]


@pytest.mark.slow
def test_a_killed_process_leaves_what_was_written(tmp_path: Path) -> None:
    script = (
        "import os, time, signal\nfrom forensics.recorder import Recorder\n"
        f"perf = Recorder({str(tmp_path)!r}, rank=0)\n"
        "with perf.step(), perf.stage('data'):\n    pass\n"
        "time.sleep(1.5)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, check=False)
    assert len(recorded(tmp_path).rows("steps")) == 1


def test_only_the_standard_library_is_imported() -> None:
    code = "import sys, forensics.recorder as r; print([m for m in ('numpy', 'torch', 'duckdb', 'typer') if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


class FakeEvent:
    """A CUDA event that is ready at the second look."""

    def __init__(self, enable_timing: bool) -> None:
        self.looks = 0

    def record(self) -> None: ...

    def query(self) -> bool:
        self.looks += 1
        return self.looks > 1

    def elapsed_time(self, other: FakeEvent) -> float:
        return 12.5


def test_device_times_are_written_when_they_are_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        Event = FakeEvent
        is_initialized = staticmethod(lambda: True)
        is_current_stream_capturing = staticmethod(lambda: False)

    class Torch:
        cuda = Cuda

    monkeypatch.setitem(sys.modules, "torch", Torch)
    monkeypatch.setattr(writer_module, "INTERVAL_S", 0.05)
    perf = Recorder(tmp_path, rank=0, device_share=0.5)
    for _ in range(4):
        with perf.step(), perf.stage("forward"), perf.device_time():
            pass
    time.sleep(0.5)
    perf.close()
    sides = [row for row in recorded(tmp_path).rows("stage_spans") if row["side_channel"]]
    assert [(row["step"], row["stage"], row["device_ns"], row["device_ready"]) for row in sides] == [
        (0, "forward", 12_500_000, True),
        (2, "forward", 12_500_000, True),
    ]
    assert recorded(tmp_path).problems == []


@pytest.mark.parametrize(
    ("ready", "capturing", "why"), [(False, False, "CUDA was not initialised"), (True, True, "a CUDA graph was being captured")]
)
def test_device_times_that_cannot_be_taken_are_stated(
    ready: bool, capturing: bool, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Torch:
        class cuda:
            is_initialized = staticmethod(lambda: ready)
            is_current_stream_capturing = staticmethod(lambda: capturing)

    monkeypatch.setitem(sys.modules, "torch", Torch)
    perf = Recorder(tmp_path, rank=0, device_share=1.0)
    with perf.step(), perf.stage("forward"), perf.device_time():
        pass
    perf.close()
    found = recorded(tmp_path)
    assert [problem.message for problem in found.problems] == [f"rank 0: device times were asked for and none was taken, {why}"]
    assert len(found.rows("steps")) == 1


def test_a_record_without_device_regions_says_nothing_of_devices(tmp_path: Path) -> None:
    perf = Recorder(tmp_path, rank=0, device_share=1.0)
    with perf.step(), perf.stage("forward"):
        pass
    perf.close()
    assert recorded(tmp_path).problems == []
