"""A Dask cluster on this machine, where the library is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

needs_dask = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs distributed")


@contextmanager
def running(workers: int) -> Iterator[str]:
    """A cluster of processes on this machine; the address of its scheduler."""
    import distributed

    with distributed.LocalCluster(workers, threads_per_worker=1, dashboard_address=None, silence_logs=50) as one:
        yield one.scheduler_address
