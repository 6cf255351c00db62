"""How many cores this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores of the affinity mask where the system has one, else all; at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
