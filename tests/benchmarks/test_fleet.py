"""Summaries of a fleet: bytes of a rank and step, and time and memory from them to a verdict.

FORENSICS_BENCH_FLEET (default 512) says how many ranks, of 100 steps each. No time is asserted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from io import BytesIO
from pathlib import Path

import pytest

from forensics.bundle.artefact import Artefact
from forensics.case.database import schema_columns
from forensics.case.summaries.writing import summary_section
from tests.benchmarks.dumps import culprit, dump
from tests.benchmarks.fleet import STEPS, write_fleet
from tests.benchmarks.measuring import measure

RANKS = int(os.environ.get("FORENSICS_BENCH_FLEET", "512"))
ROOT = Path(__file__).parents[2]
MOST_BYTES = 2700
"""Of a rank and step: the leanest published tracer."""


@pytest.mark.parametrize("hangs", [True, False], ids=["hang", "slow"])
def test_from_the_summaries_of_a_fleet_to_a_verdict(hangs: bool, tmp_path: Path) -> None:
    begin = time.process_time()
    size = write_fleet(tmp_path / "fleet", RANKS, hangs)
    each = size / RANKS / STEPS
    print(f"\n{RANKS} ranks x {STEPS} steps: {size / 1e6:.1f} MB, {each:.0f} bytes a rank and step; ", end="")
    print(f"written in {time.process_time() - begin:.1f} s cpu")
    command = [sys.executable, "-m", "forensics", "diagnose", str(tmp_path / "fleet"), "--format", "json"]
    ours = measure(command, {"PYTHONPATH": str(ROOT)})
    print(f"  {ours.wall_s:7.2f} s wall, {ours.cpu_s:7.2f} s cpu, {ours.peak_bytes / 1e6:6.0f} MB")
    verdict = json.loads(ours.output)
    assert each <= MOST_BYTES
    assert verdict["outcome"] == ("hang" if hangs else "slowdown")
    assert [suspect["ranks"] for suspect in verdict["suspects"]] == [[culprit(RANKS)]]


def test_what_a_summary_of_a_dump_costs_the_node() -> None:
    content = dump(0, 64)
    artefact = Artefact("rank_0", len(content), lambda: BytesIO(content), rank=0, rank_method="path")
    begin = time.process_time()
    sections = [summary_section(artefact, schema_columns(), timed) for timed in ({0}, set()) for _ in range(8)]
    each = (time.process_time() - begin) / len(sections)
    sizes = [len(section or b"") for section in (sections[0], sections[-1])]
    print(
        f"\na dump of {len(content)} bytes: {1000 * each:.1f} ms cpu; {sizes[0]} bytes with recorded steps, {sizes[1]} without"
    )
    assert sizes[0] < sizes[1] < len(content) / 10
