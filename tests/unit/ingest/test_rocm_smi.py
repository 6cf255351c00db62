"""The table of `rocm-smi`: readings of each GPU, and the one that is idle among busy ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import SAMPLES, read, sample

TABLE = (SAMPLES / "rocm_smi/handmade_concise.txt").read_text()


def values(name: str, device: str) -> dict[str, int]:
    return {row["counter"]: row["value"] for row in sample(f"rocm_smi/{name}").rows("counters") if row["device"] == device}


@pytest.mark.parametrize(
    ("name", "device", "power", "limit", "clock", "use"),
    [
        ("handmade_concise.txt", "GPU-2", 90_000, 750_000, 132, 0),
        ("handmade_concise_5.txt", "GPU-0", 142_000, 560_000, 1700, 100),
    ],
)
def test_readings_of_both_forms(name: str, device: str, power: int, limit: int, clock: int, use: int) -> None:
    found = values(name, device)
    assert (found["power_mw"], found["power_limit_mw"], found["clock_sm_mhz"]) == (power, limit, clock)
    assert (found["utilization_percent"], found["memory_used_percent"]) == (use, 83)


def test_a_row_that_lacks_a_reading_is_left_out() -> None:
    cut = TABLE.replace("142.0W", "N/A", 1)
    assert {row["device"] for row in read(cut.encode(), "smi.txt").rows("devices")} == {"GPU-1", "GPU-2", "GPU-3"}


def test_the_idle_gpu_of_one_of_two_hosts(tmp_path: Path) -> None:
    busy = TABLE.replace(" 90.0W", "142.0W").replace(" 132Mhz", "1900Mhz").replace("83%    0%", "83%    100%")
    (tmp_path / "smi.txt").write_text(f"[root@mi-1 ~]# rocm-smi\n{busy}[root@mi-2 ~]# rocm-smi\n{TABLE}")
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert "GPU-2 of mi-2" in verdict.would_change[0] and "7 others" in verdict.would_change[0]
