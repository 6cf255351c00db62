"""Hosts of the test bed with clocks that are out of step and drift: what the logs then say, and what is made of them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.file import ShimFile, read_file
from forensics.rules.diagnosis import diagnose
from tests.native.shim_scenarios import SQUARE, Recording, hung_logs, loaded
from tests.native.testbed import Shape, start
from tests.native.testbed import built as bed
from tests.recordings.shim_logs import logs_in
from tests.unit.ingest.reading import Result, read

pytestmark = pytest.mark.slow

SECOND = 10**9
AHEAD_S, FAST_PPM, UP_S = 100, 20000, 86400
CLOCKS = f"host=1,offset_us={AHEAD_S * 10**6},ppm={FAST_PPM},uptime_us={UP_S * 10**6};host=3,offset_us=-3600000000"


def skewed(shim: Path) -> dict[str, str]:
    """What the ranks of a bed with such clocks are given besides."""
    return {"LD_PRELOAD": f"{bed() / 'libtestbed_host.so'}:{shim}", "TESTBED_CLOCKS": CLOCKS}


def read_all(logs: Mapping[int, bytes]) -> list[Result]:
    return [read(content, f"host.{rank}.1.1.frx") for rank, content in sorted(logs.items())]


def rate(content: bytes, clock: str) -> float:
    """Nanoseconds of a clock for each tick of the CPU counter, over the whole log."""
    (log,) = read_file(io.BytesIO(content))
    assert isinstance(log, ShimFile)
    table = log.tables[layout.CLOCKS]
    rows = np.sort(table[table["layout"] == 1], order="counter")
    return float((rows[-1][clock] - rows[0][clock]) / (int(rows[-1]["counter"]) - int(rows[0]["counter"])))


def test_each_host_has_its_own_clock_and_name(built: Path, tmp_path: Path) -> None:
    shim = built / "libforensics_shim.so"
    env = {**loaded(shim, tmp_path / "logs"), **skewed(shim)}
    with start(bed(), tmp_path / "job", Shape(dp=2, per_host=1, steps=3), env=env) as job:
        assert job.finish() == [0, 0]
        logs = logs_in(tmp_path / "logs")
    here, there = read_all(logs)
    assert [log.identities[0].host for log in (here, there)] == ["host0", "host1"]
    pairs = zip(here.rows("operations"), there.rows("operations"), strict=True)
    apart = [two["entered_ns"] - one["entered_ns"] for one, two in pairs]
    assert all(AHEAD_S - 20 < ns / SECOND < AHEAD_S + 20 for ns in apart)
    for clock in ("realtime_ns", "monotonic_ns"):
        assert rate(logs[1], clock) / rate(logs[0], clock) == pytest.approx(1 + FAST_PPM / 1e6, abs=FAST_PPM / 4e6)
    up = [min(row["monotonic_ns"] for row in log.rows("clocks")) / SECOND for log in (here, there)]
    assert up[1] - up[0] == pytest.approx(UP_S, abs=20)


@pytest.mark.parametrize("fault", ["never_calls:rank=1,step=1", "link_down:rank=0,peer=2,step=1,oneway=1"])
def test_clocks_out_of_step_change_no_verdict(fault: str, built: Path, tmp_path: Path) -> None:
    verdicts = []
    shim = built / "libforensics_shim.so"
    for name, env in (("true", {}), ("skewed", skewed(shim))):
        folder = tmp_path / name
        folder.mkdir()
        logs = hung_logs(shim, folder, Recording(fault, SQUARE, env))
        place = folder / "copied"
        place.mkdir()
        for rank, content in logs.items():
            (place / f"host.{rank}.{100 + rank}.1.frx").write_bytes(content)
        verdicts.append(diagnose(open_case([place])))
    one, two = verdicts
    assert one.outcome is two.outcome
    assert (two.suspects[0].ranks, two.suspects[0].cause) == (one.suspects[0].ranks, one.suspects[0].cause)
