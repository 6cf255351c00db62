"""The quota of control groups, as the files of both hierarchies tell it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.collect.cpu_limits import cpu_limit

_HELD = "usage_usec 9\nnr_periods 200\nnr_throttled 90\nthrottled_usec 4500000\n"
_FREE = "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
_MARK = {"cgroup.controllers": "cpu memory\n"}


def limit_of(folder: Path, files: Mapping[str, str], paths: Mapping[str, str]) -> dict[str, object] | None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return cpu_limit(paths, folder)


@pytest.mark.parametrize(
    ("files", "paths", "stated"),
    [
        ({"pod/one/cpu.max": "200000 100000\n", "pod/one/cpu.stat": _HELD},
         {"": "/pod/one"}, ("/pod/one", 2.0, 200, 90, 4500000)),
        ({"pod/cpu.max": "50000 100000\n", "pod/cpu.stat": _HELD, "pod/one/cpu.max": "max 100000\n", "pod/one/cpu.stat": _FREE},
         {"": "/pod/one"}, ("/pod", 0.5, 200, 90, 4500000)),
        ({"pod/cpu.max": "800000 100000\n", "pod/one/cpu.max": "400000 100000\n", "pod/one/cpu.stat": _FREE},
         {"": "/pod/one"}, ("/pod/one", 4.0, 0, 0, 0)),
        ({"pod/one/cpu.max": "max 100000\n", "pod/one/cpu.stat": _FREE}, {"": "/pod/one"}, ("/pod/one", None, 0, 0, 0)),
        ({"cpu.max": "100000 100000\n", "cpu.stat": _HELD}, {"": "/"}, ("/", 1.0, 200, 90, 4500000)),
    ],
    ids=["its own group", "a group above", "the narrowest of two", "no quota", "inside a container"],
)  # fmt: skip
def test_the_unified_hierarchy(
    files: Mapping[str, str], paths: Mapping[str, str], stated: tuple[object, ...], tmp_path: Path
) -> None:
    found = limit_of(tmp_path, _MARK | dict(files), paths)
    assert found is not None and tuple(found.values()) == stated


def test_the_older_hierarchy_counts_nanoseconds(tmp_path: Path) -> None:
    stat = "nr_periods 10\nnr_throttled 5\nthrottled_time 7000000\n"
    files = {"cpu/job/cpu.cfs_quota_us": "150000\n", "cpu/job/cpu.cfs_period_us": "100000\n", "cpu/job/cpu.stat": stat}
    found = limit_of(tmp_path, files, {"": "/", "cpu": "/job", "cpuacct": "/job"})
    assert found == {"group": "/job", "cores": 1.5, "periods": 10, "throttled_periods": 5, "throttled_us": 7000}
    files["cpu/job/cpu.cfs_quota_us"] = "-1\n"
    found = limit_of(tmp_path, files, {"cpu": "/job"})
    assert found is not None and found["cores"] is None


@pytest.mark.parametrize("paths", [{}, {"": "/gone/elsewhere"}, {"": "/../outside"}, {"memory": "/job"}])
def test_what_cannot_be_read_is_null(paths: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    found = limit_of(tmp_path, {"outside/cpu.max": "1000 100000\n"}, paths)
    assert found is None


def test_a_damaged_file_is_no_quota(tmp_path: Path) -> None:
    found = limit_of(tmp_path, _MARK | {"job/cpu.max": "many\n", "job/cpu.stat": "nr_periods x\n"}, {"": "/job"})
    assert found == {"group": "/job", "cores": None, "periods": 0, "throttled_periods": 0, "throttled_us": 0}
