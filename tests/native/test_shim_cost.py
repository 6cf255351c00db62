"""A record costs little more than its two clock reads, whatever else the machine is doing."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.shim_cost import measure

# 15 ns for all but the clock; the factor is for machines whose cores are shared.
BOUND_NS, NOISE = 15.0, 3.0


def test_a_call_is_recorded_in_nanoseconds(built: Path, tmp_path: Path) -> None:
    cost = measure(built / "libforensics_shim.so", tmp_path, with_cold=False)
    assert cost.shim <= NOISE * (cost.clock + BOUND_NS), cost.lines()
    assert cost.line >= 3 * cost.shim, cost.lines()
