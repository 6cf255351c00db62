"""Events of the board of a host: what is read of them, and when they are where to begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import unnamed
from tests.unit.ingest.reading import read, sample

STEPS = "".join(f"2026-03-11 03:{at:02d}:10,113 - INFO - step {at}/9000 | loss 2.{at}\n" for at in range(20))
BOOT = "  1 | {0} | OS Boot | C: boot completed | Asserted\n"
ECC = "  2 | {0} | Memory CPU1_DIMM_F1 | Uncorrectable ECC (UnCorrectable ECC |  DIMM21) | Asserted\n"
OFF = "  3 | {0} | System ACPI Power State #0x83 | S4/S5: soft-off | Asserted\n"
FIXED = "  4 | {0} | Memory #0x87 | Correctable ECC | Asserted\n"
LOST = "  5 | {0} | Power Supply #0x51 | Power Supply AC lost | {1}\n"
NOW, SOON, EARLIER, OLD = "03/11/2026 | 03:19:40", "03/11/2026 | 03:25:02", "03/10/2026 | 20:11:00", "01/14/2026 | 08:03:40"


def test_the_sample() -> None:
    rows = sample("system_event_log/handmade_sel_elist.txt").rows("device_events")
    assert [(row["kind"], row["locator"]) for row in rows] == [
        ("host_started", 2),
        ("host_fault", 6),
        ("host_fault", 7),
        ("host_off", 8),
    ]
    assert rows[1]["text"] == "2026-03-11T03:12:49 Uncorrectable ECC (UnCorrectable ECC |  DIMM21)"


@pytest.mark.parametrize("when", ["03/11/26 | 03:12:49", "03/11/2026 | 03:12:49 AM UTC", "03/11/2026 | 03:12:49 CET"])
def test_forms_of_dates(when: str) -> None:
    (row,) = read(ECC.format(when).encode()).rows("device_events")
    assert row["text"].startswith("2026-03-11T03:12:49 ")


@pytest.mark.parametrize(
    ("events", "is_lead"),
    [
        (BOOT.format(OLD) + ECC.format(NOW), True),
        (BOOT.format(OLD) + ECC.format(EARLIER), True),
        (ECC.format(EARLIER) + BOOT.format(SOON), False),
        (ECC.format(NOW) + BOOT.format(SOON), True),
        (BOOT.format(OLD) + OFF.format(NOW), True),
        (BOOT.format(OLD) + OFF.format(EARLIER), False),
        (LOST.format(NOW, "Asserted"), True),
        (LOST.format(NOW, "Asserted") + LOST.format(SOON, "Deasserted"), False),
        (ECC.format(OLD), False),
        (FIXED.format(NOW) + BOOT.format(OLD), False),
    ],
    ids=[
        "a fault",
        "by another zone",
        "over before a start",
        "that started it again",
        "off",
        "off before",
        "without power",
        "with power again",
        "old",
        "corrected",
    ],
)
def test_a_host_whose_board_reports_a_fault(tmp_path: Path, events: str, is_lead: bool) -> None:
    others = BOOT.format(OLD) + FIXED.format(OLD)
    text = f"[root@n-1 ~]# ipmitool sel list\n{others}[root@n-2 ~]# ipmitool sel list\n{events}"
    leads = unnamed(tmp_path, {"job.log": STEPS, "sel.txt": text}).leads
    assert any("n-2" in lead for lead in leads) is is_lead
    assert not any("n-1" in lead for lead in leads)


@pytest.mark.parametrize("files", [{"sel.txt": "n-1 n-2"}, {"n-1_sel.txt": "n-1", "n-2_sel.txt": "n-2"}])
def test_faults_of_two_hosts_are_no_lead(tmp_path: Path, files: dict[str, str]) -> None:
    texts = {
        name: "".join(f"[root@{host} ~]# ipmitool sel list\n{ECC.format(NOW)}" for host in hosts.split())
        for name, hosts in files.items()
    }
    assert not any("board" in lead for lead in unnamed(tmp_path, {"job.log": STEPS, **texts}).leads)


@pytest.mark.parametrize("log", ["", "".join(f"step {at}/9000 loss 2.{at}\n" for at in range(20))], ids=["no log", "undated"])
def test_without_a_dated_end_of_the_job_nothing_shows_that_a_fault_is_of_it(tmp_path: Path, log: str) -> None:
    assert not any("board" in lead for lead in unnamed(tmp_path, {"job.log": log, "sel.txt": ECC.format(NOW)}).leads)


def test_a_host_that_is_not_of_the_job(tmp_path: Path) -> None:
    text = f"[root@n-9 ~]# ipmitool sel list\n{ECC.format(NOW)}"
    log = f"SLURM_JOB_NODELIST=n-[1-4]\n{STEPS}"
    assert not any("n-9" in lead for lead in unnamed(tmp_path, {"job.log": log, "sel.txt": text}).leads)
