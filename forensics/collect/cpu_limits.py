"""What holds the CPU time of a process down: the quota of its control groups, and how often that stopped it.

Formats: `cpu.max` and `cpu.stat` of the unified hierarchy (Documentation/admin-guide/cgroup-v2.rst), `cpu.cfs_quota_us`,
`cpu.cfs_period_us` and `cpu.stat` of the older one (Documentation/scheduler/sched-bwc.rst).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

_COUNT = re.compile(r"^(\w{1,40}) (\d{1,20})$", re.MULTILINE)
_QUOTA = re.compile(r"(\d{1,18}) (\d{1,18})")
# Folders of the older hierarchy, below the mount.
_CONTROLLER = "cpu"
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """`cores` that a control group may use at most, None without a quota; its periods, those cut short, and us held back."""

    group: str
    cores: float | None = None
    periods: int = 0
    throttled_periods: int = 0
    throttled_us: int = 0


def cpu_limit(paths: Mapping[str, str], mount: Path) -> dict[str, Any] | None:
    """The value of `cpu_limit` in rank.json; None where no control group can be read.

    A group is held back by those above it too: of all on the way up, the one that was held back longest, else the narrowest.
    `paths` are those of /proc/PID/cgroup by controller, `mount` is /sys/fs/cgroup.
    """
    found = [limit for name, folder in _hierarchies(paths, mount) for limit in _limits(paths[name], folder)]
    limited = [limit for limit in found if limit.cores is not None]
    if limited:
        return asdict(max(limited, key=lambda limit: (limit.throttled_us, -(limit.cores or 0.0))))
    return asdict(found[0]) if found else None


def _hierarchies(paths: Mapping[str, str], mount: Path) -> Iterator[tuple[str, Path]]:
    """Controller, and the folder below which its groups lie; the unified hierarchy has the controller ``."""
    if "" in paths:
        yield from (("", folder) for folder in (mount, mount / "unified") if (folder / "cgroup.controllers").exists())
    if _CONTROLLER in paths:
        yield _CONTROLLER, mount / _CONTROLLER


def _limits(path: str, folder: Path) -> Iterator[CpuLimit]:
    """What can be read of a group and of those above it. A path that leaves what is mounted here says nothing."""
    group = PurePosixPath("/") / path
    if ".." in group.parts:
        return
    for each in (group, *list(group.parents)[:_DEEPEST]):
        at = folder / str(each).lstrip("/")
        if at.is_dir():
            counts = {name: int(count) for name, count in _COUNT.findall(_text(at / "cpu.stat"))}
            yield CpuLimit(
                str(each),
                _cores(at),
                counts.get("nr_periods", 0),
                counts.get("nr_throttled", 0),
                counts.get("throttled_usec", counts.get("throttled_time", 0) // 1000),
            )


def _cores(at: Path) -> float | None:
    older = f"{_text(at / 'cpu.cfs_quota_us').strip()} {_text(at / 'cpu.cfs_period_us').strip()}"
    match = _QUOTA.match(_text(at / "cpu.max")) or _QUOTA.match(older)
    return round(int(match[1]) / int(match[2]), 3) if match and int(match[2]) else None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
