"""Metrics of dcgm-exporter: the last Xid of a GPU is a lead, and accuses a rank only where others wait for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.ingest import choose
from forensics.model import Confidence, Verdict
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import SAMPLES

TEXT = (SAMPLES / "dcgm_metrics/handmade_metrics.prom").read_text()
START = "".join(
    f"n-7:{900 + rank}:1240 [{rank}] NCCL INFO comm 0x55 rank {rank} nranks 4 cudaDev {rank} busId {0x1A + rank * 16:x}000 "
    "commId 0x29d7 - Init COMPLETE\n"
    for rank in range(4)
)
GAVE_UP = "".join(
    f"[rank{rank}]:[E811 16:20:19.2 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=59, OpType=ALLREDUCE, NumelIn=27, NumelOut=27, Timeout(ms)=600000) ran for 600098 milliseconds before "
    "timing out.\n"
    for rank in (0, 1, 3)
)


def judged(folder: Path, log: str, metrics: str) -> Verdict:
    (folder / "job.log").write_text("world_size=4\n" + START + log)
    (folder / "metrics.txt").write_text(metrics)
    return verdict_of(folder)


def test_devices_and_the_last_xid_are_read(tmp_path: Path) -> None:
    (tmp_path / "n-7.prom").write_text(TEXT)
    with open_case([tmp_path]) as case:
        assert case.execute("SELECT host, device, pci FROM devices ORDER BY device").fetchall()[2] == (
            "n-7",
            "GPU-2",
            "0000:3a:00.0",
        )
        found = case.execute("SELECT host, device, kind, code, locator FROM device_events").fetchall()
    assert found == [("n-7", "0000:3a:00.0", "xid", 79, 10)]


def test_readings_and_reasons_are_those_of_nvidia_smi(tmp_path: Path) -> None:
    rows = ("POWER_USAGE", "81.25"), ("FB_USED", "3"), ("SM_CLOCK", "NaN"), ("GPU_TEMP", "9223372036854775794")
    text = "".join(f'DCGM_FI_DEV_{name}{{gpu="1",Hostname="n-7"}} {value}\n' for name, value in rows)
    (tmp_path / "n-7.prom").write_text(text + 'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="1",Hostname="n-7"} 72\n')
    with open_case([tmp_path]) as case:
        found = case.execute("SELECT device, counter, value FROM counters ORDER BY counter").fetchall()
        held = case.execute("SELECT host, device, text FROM device_events WHERE kind = 'throttle' ORDER BY text").fetchall()
    assert found == [("GPU-1", "memory_used_bytes", 3 << 20), ("GPU-1", "power_mw", 81250)]
    assert held == [("n-7", "GPU-1", "hw_slowdown"), ("n-7", "GPU-1", "hw_thermal_slowdown")]


def test_the_rank_whose_gpu_is_lost_is_suspected_where_others_wait(tmp_path: Path) -> None:
    verdict = judged(tmp_path, GAVE_UP, TEXT)
    assert named(verdict) == {2}
    assert "FX147" in {rule for suspect in verdict.suspects for rule in suspect.rules}


@pytest.mark.parametrize("code", ["79", "45", "31"])
def test_an_undated_xid_accuses_nobody_where_nobody_waits(tmp_path: Path, code: str) -> None:
    assert named(judged(tmp_path, "step 4 loss 2.1\nstep 5 loss 2.0\n", TEXT.replace("79", code))) == set()


def test_what_was_cleaned_up_after_an_error_is_no_error_of_the_gpu(tmp_path: Path) -> None:
    verdict = judged(tmp_path, GAVE_UP, TEXT.replace("79", "45"))
    assert "FX147" not in {rule for suspect in verdict.suspects for rule in suspect.rules}
    assert all(suspect.confidence is not Confidence.CONFIRMED for suspect in verdict.suspects)


@pytest.mark.parametrize("text", ["GET /metrics\n" + TEXT, TEXT.replace("DCGM_FI_", "node_"), TEXT + "step 4 loss 2.1\n"])
def test_other_texts_are_left_alone(text: str) -> None:
    found = choose(text.encode()[:4096] + b"\n", "metrics.txt")
    assert found is None or found.name != "dcgm_metrics"
