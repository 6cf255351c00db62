"""A process killed at any moment: no record is believed that is not whole, and every missing one is counted.

The number of kills is 8, or that of FORENSICS_KILLS (1,000 for a release).
"""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.file import ShimFile, read_file
from forensics.ingest.shim_log.rings import Ring, read_rings
from tests.native.shim_jobs import HERE, compile_c, files, ring_objects

KILLS = int(os.environ.get("FORENSICS_KILLS", "8"))
THREADS = 3
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
TRUTH = np.dtype([("thread", "<u8"), ("published", "<u8")])
pytestmark = pytest.mark.slow  # its program is most of the collector, compiled anew


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("flood") / "flood", [HERE / "flood.c", *ring_objects()])


def kill_one(flood: Path, folder: Path, seconds: float) -> None:
    """Kill the writer some time after it began to write."""
    variables = {"FORENSICS_SHIM_DIR": str(folder / "logs"), "FORENSICS_SHIM_BYTES": "1048576"}
    process = subprocess.Popen([flood, folder / "truth", str(THREADS)], env=variables)
    deadline = time.monotonic() + 20
    while not (folder / "truth").exists() or not (folder / "truth").read_bytes()[8:16].strip(b"\0"):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.001)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()


def rings_of(folder: Path) -> tuple[ShimFile, list[Ring]]:
    (path,) = files(folder / "logs")
    (log,) = [item for item in read_file(io.BytesIO(path.read_bytes())) if isinstance(item, ShimFile)]
    return log, [ring for ring in read_rings(log) if ring.ring_class == "calls"]


def check(folder: Path) -> int:
    """Compare what is read with what each thread knows it did; returns the number of torn records."""
    truth = np.fromfile(folder / "truth", TRUTH)
    published = {int(row["thread"]): int(row["published"]) for row in truth if row["thread"]}
    log, rings = rings_of(folder)
    assert rings
    for ring in rings:
        calls = log.typed(ring.records, layout.CALL)
        own = calls[calls["kind"] == 1]
        assert (own["stream"] == own["count"] * GOLDEN).all()
        assert (own["enter"] == ~own["stream"]).all()
        assert (own["count"] == ring.numbers[calls["kind"] == 1]).all()  # one `thread` record stands before them
        assert len(ring.records) + ring.torn + ring.overwritten == ring.written
        assert ring.torn <= 1
        # The truth is written after the record: the last one may be published and not in it yet, one more may be begun.
        assert 0 <= ring.written - (published[ring.thread] + 1) <= 2
    return sum(ring.torn for ring in rings)


def test_kills_at_random_moments(flood: Path, tmp_path: Path) -> None:
    chance = random.Random(20_26)
    for number in range(KILLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        kill_one(flood, folder, chance.uniform(0, 0.03))
        check(folder)
        shutil.rmtree(folder)


def mixed(log: ShimFile, ring: Ring) -> int:
    """Calls with words of two: each holds its number, and what flood.c makes of the number."""
    calls = log.typed(ring.records, layout.CALL)
    own = calls["kind"] == 1
    number, count, stream, enter = (calls[name][own] for name in ("sequence", "count", "stream", "enter"))
    return int(((number != count + np.uint64(1)) | (stream != count * GOLDEN) | (enter != ~stream)).sum())


def test_a_copy_of_a_log_that_is_written_is_sound(flood: Path, tmp_path: Path) -> None:
    """`forensics collect` copies a live log: what the writer changed meanwhile is left out.

    A block copy reads a cache line in no fixed order: where the writer was, one or two calls may hold words of the call before.
    """
    variables = {"FORENSICS_SHIM_DIR": str(tmp_path / "logs"), "FORENSICS_SHIM_BYTES": "1048576"}
    process = subprocess.Popen([flood, tmp_path / "truth", "2"], env=variables)
    try:
        while not list((tmp_path / "logs").rglob("*.frx")):
            time.sleep(0.01)
        for _ in range(20):
            log, rings = rings_of(tmp_path)
            assert all(mixed(log, ring) <= 2 for ring in rings)
    finally:
        process.kill()
        process.wait()
