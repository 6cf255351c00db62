"""Time and memory of a diagnosis against the floor and, where torch is installed, its own analyzer, in the same run.

FORENSICS_BENCH_RANKS (default 64,256) says how many ranks, FORENSICS_BENCH_ANALYZER (default 256) up to how many the analyzer
runs. No time is asserted: the numbers are printed, as ratios between programs that ran one after the other on one machine.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.benchmarks.conftest import Dumps
from tests.benchmarks.dumps import ENTRIES, PREFIX, culprit
from tests.benchmarks.measuring import Measured, measure

RANKS = [int(count) for count in os.environ.get("FORENSICS_BENCH_RANKS", "64,256").split(",")]
ANALYZER_RANKS = int(os.environ.get("FORENSICS_BENCH_ANALYZER", "256"))
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("ranks", RANKS)
def test_diagnosis_of_a_large_job(ranks: int, dumps: Dumps) -> None:
    folder = dumps(ranks)
    size = sum(path.stat().st_size for path in folder.iterdir())
    floor = measure([sys.executable, str(ROOT / "tests/benchmarks/floor.py"), str(folder)])
    ours = measure([sys.executable, "-m", "forensics", "diagnose", str(folder), "--format", "json"], {"PYTHONPATH": str(ROOT)})
    official = _analyzer(folder) if ranks <= ANALYZER_RANKS else None
    print(f"\n{ranks} ranks x {ENTRIES} entries, {size / 1e6:.0f} MB")
    print(_row("unpickling alone (1 process)", floor, floor))
    print(_row("forensics diagnose", ours, floor))
    if official is not None:
        print(_row("torchfrtrace", official, floor))
        time, memory = official.wall_s / ours.wall_s, official.peak_bytes / ours.peak_bytes
        print(f"  {time:.1f} x the time of forensics, {memory:.1f} x its memory")
    verdict = json.loads(ours.output)
    assert floor.code == 0
    assert [suspect["ranks"] for suspect in verdict["suspects"]] == [[culprit(ranks)]]
    assert [len(victims["ranks"]) for victims in verdict["victims"]] == [ranks - 1]
    assert verdict["coverage"]["rank"][0]["present"] == [str(rank) for rank in range(ranks)]


def _analyzer(folder: Path) -> Measured | None:
    """PyTorch's own analyzer, None when torch is not installed."""
    if find_spec("torch") is None:
        return None
    module = "torch.distributed.flight_recorder.fr_trace"
    return measure([sys.executable, "-m", module, str(folder), "-p", PREFIX])


def _row(name: str, run: Measured, floor: Measured) -> str:
    wall = f"{run.wall_s:7.2f} s wall ({run.wall_s / floor.wall_s:.2f} x)"
    cpu = f"{run.cpu_s:7.2f} s cpu ({run.cpu_s / floor.cpu_s:.2f} x)"
    return f"  {name:30}{wall}, {cpu}, {run.peak_bytes / 1e6:6.0f} MB"
