"""Failures of hosts beside a log of steps: those dated long before the first step are of something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of

STEPS = "".join(f"2026-06-02 10:{at:02d}:00,101 | INFO | step {at * 10}/9000 loss 2.{at}\n" for at in range(10, 30))
EVICTED = "[{}] LustreError: 167-0: fs-OST0004-osc-ff: This client was evicted by fs-OST0004; in progress operations\n"
CORE = (
    "           PID: 71 (python3)\n        Signal: 11 (SEGV)\n     Timestamp: {} CEST (1h ago)\n"
    "  Command Line: python3 -u t.py --local_rank=3\n      Hostname: gx-3\n"
)
UNIT = (
    "× fit@3.service - Trainer\n     Active: failed (Result: signal) since {} UTC; 1h ago\n"
    "   Main PID: 88 (code=killed, signal=KILL)\n"
)


@pytest.mark.parametrize(
    ("name", "text", "then", "long_before"),
    [
        ("dmesg-n7.txt", EVICTED, "Tue Jun  2 10:25:00 2026", "Sun May 31 10:00:00 2026"),
        ("core.txt", CORE, "Tue 2026-06-02 10:25:00", "Sun 2026-05-31 10:00:00"),
        ("status.txt", UNIT, "Tue 2026-06-02 10:25:00", "Sun 2026-05-31 10:00:00"),
    ],
)
def test_what_happened_long_before_the_steps_is_no_lead(
    name: str, text: str, then: str, long_before: str, tmp_path: Path
) -> None:
    (tmp_path / "train.log").write_text(STEPS)
    leads = []
    for when in (then, long_before, ""):
        (tmp_path / name).write_text(text.format(when))
        verdict = verdict_of(tmp_path)
        assert not named(verdict)
        leads.append(bool(verdict.leads))
    assert leads == [True, False, True]


def test_without_dated_steps_nothing_is_old(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 10 loss 2.1\nstep 20 loss 2.0\n")
    (tmp_path / "dmesg-n7.txt").write_text(EVICTED.format("Sun May 31 10:00:00 2026"))
    assert verdict_of(tmp_path).leads


def test_ssh_that_failed_while_the_job_went_on(tmp_path: Path) -> None:
    failed = "ssh: connect to host backup-1 port 22: Connection refused\n"
    (tmp_path / "train.log").write_text(failed + STEPS)
    assert not verdict_of(tmp_path).leads
    (tmp_path / "train.log").write_text(STEPS + failed)
    assert verdict_of(tmp_path).leads
