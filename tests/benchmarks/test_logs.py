"""Job logs beside `grep -c` of one fixed string in the same run; printed as ratios, with peak memory.

`FORENSICS_BENCH_LOG_MB` is the size of the log of 1,024 ranks (200; the figure in docs/performance.md is of 1000),
`FORENSICS_BENCH_LOG_FILES` the number of files of the folder (4096), of 64 KB each.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.benchmarks.logs import NEEDLE, write_folder, write_log
from tests.benchmarks.measuring import Measured, measure

DIAGNOSE = [sys.executable, "-m", "forensics", "diagnose"]


def test_one_log_of_all_ranks(tmp_path: Path) -> None:
    megabytes = int(os.environ.get("FORENSICS_BENCH_LOG_MB", "200"))
    path = write_log(tmp_path / "job.log", 1024, megabytes * 1_000_000)
    print(f"\n1,024 ranks in one log of {path.stat().st_size / 1e6:.0f} MB")
    _compare(["grep", "-c", "-F", NEEDLE, str(path)], [*DIAGNOSE, str(path)])


def test_a_folder_of_logs(tmp_path: Path) -> None:
    files = int(os.environ.get("FORENSICS_BENCH_LOG_FILES", "4096"))
    folder = write_folder(tmp_path / "logs", files, 1 << 16)
    print(f"\n{files} logs of 64 KB")
    _compare(["grep", "-r", "-c", "-F", NEEDLE, str(folder)], [*DIAGNOSE, str(folder)])


def _compare(grep: list[str], ours: list[str]) -> None:
    idle, least, found = measure([*ours[:3], "--version"]), measure(grep), measure(ours)
    _show("grep -c", least, least)
    _show("starting", idle, least)
    _show("forensics diagnose", found, least)
    assert found.code in (0, 1, 2)


def _show(name: str, found: Measured, least: Measured) -> None:
    ratio, memory = found.cpu_s / max(least.cpu_s, 0.01), found.peak_bytes / 1e6
    print(f"  {name:20} {found.wall_s:6.2f} s wall {found.cpu_s:6.2f} s cpu ({ratio:.0f} of grep) {memory:7.0f} MB")
