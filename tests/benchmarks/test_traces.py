"""Reading traces beside other ways to read them; printed as ratios, with peak memory.

`FORENSICS_BENCH_TRACE_MB` is the size of the single trace (200); `FORENSICS_BENCH_TRACES=32x500` makes a set of 32 traces
of 500 MB each.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.benchmarks.measuring import Measured, measure
from tests.benchmarks.traces import copy_trace, write_trace

READ = "import sys; from pathlib import Path; Path(sys.argv[1]).read_bytes()"
OURS = """
import io, sys
from forensics.bundle.artefact import Artefact
from forensics.ingest.kineto import INGESTER
rows = 0
for item in INGESTER.rows(Artefact(sys.argv[1], 0, lambda: open(sys.argv[1], "rb"))):
    rows += len(next(iter(item.columns.values()))) if hasattr(item, "columns") else 0
print(rows)
"""
ORJSON = "import sys, orjson; print(len(orjson.loads(open(sys.argv[1], 'rb').read())['traceEvents']))"
HTA = "import sys; from hta.trace_analysis import TraceAnalysis; TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir='')"
READ_ALL = "import sys; from pathlib import Path; all(path.read_bytes() for path in sorted(Path(sys.argv[1]).iterdir()))"


def test_one_trace(tmp_path: Path) -> None:
    megabytes = int(os.environ.get("FORENSICS_BENCH_TRACE_MB", "200"))
    path = write_trace(tmp_path / "rank-0.pt.trace.json", 0, 8, megabytes * 1_000_000)
    idle = measure([sys.executable, "-c", "import forensics.ingest.kineto"])
    ours = measure([sys.executable, "-c", OURS, str(path)])
    others = {"read() alone": READ, "orjson, whole": ORJSON} | ({"HTA": HTA} if importlib.util.find_spec("hta") else {})
    rate = path.stat().st_size / 1e6 / max(ours.cpu_s - idle.cpu_s, 1e-9)
    print(
        f"\n{path.stat().st_size / 1e6:.0f} MB, {ours.output.strip()} facts: {rate:.0f} MB/s of processor time beyond starting"
    )
    _show("forensics ingester", ours, ours)
    for name, program in others.items():
        _show(name, measure([sys.executable, "-c", program, str(path)]), ours)
    assert ours.code == 0


@pytest.mark.skipif("FORENSICS_BENCH_TRACES" not in os.environ, reason="needs gigabytes: FORENSICS_BENCH_TRACES=32x500")
def test_a_set_of_traces(tmp_path: Path) -> None:
    ranks, megabytes = map(int, os.environ["FORENSICS_BENCH_TRACES"].split("x"))
    first = write_trace(tmp_path / "rank-0.pt.trace.json", 0, ranks, megabytes * 1_000_000)
    for rank in range(1, ranks):
        copy_trace(first, tmp_path / f"rank-{rank}.pt.trace.json", rank, ranks)
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    read = measure([sys.executable, "-c", READ_ALL, str(tmp_path)])
    ours = measure([sys.executable, "-m", "forensics", "frontier", str(tmp_path)])
    print(f"\n{ranks} traces, {total / 1e9:.1f} GB")
    _show("read() alone", read, ours)
    _show("forensics frontier", ours, ours)
    assert ours.code == 0


def _show(name: str, found: Measured, ours: Measured) -> None:
    if found.code:
        print(f"  {name:20} failed")
        return
    ratio = found.cpu_s / max(ours.cpu_s, 1e-9)
    memory = found.peak_bytes / 1e6
    print(f"  {name:20} {found.wall_s:6.2f} s wall {found.cpu_s:6.2f} s cpu ({ratio:.2f} of ours) {memory:7.0f} MB")
