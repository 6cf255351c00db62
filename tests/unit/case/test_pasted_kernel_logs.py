"""Lines of a kernel that stand in a ticket beside those of a job: below the command that printed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from tests.recordings.verdicts import named, pasted

WATCHDOG = (
    "[rank{0}]:[E311 14:02:0{0}.1 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=45, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds\n"
)
LOG = "Subject: it hangs\n\n" + "".join(map(WATCHDOG.format, range(4)))
NIC = (
    "[Wed Mar 11 13:50:40 2026] mlx5_core 0000:9a:00.0: poll_health:823:(pid 0): device's health compromised - "
    "reached miss count\n"
)
UP = "[Wed Mar 11 13:40:12 2026] mlx5_core 0000:9a:00.0 ens6: Link up\n"
LOST = (
    "[Wed Mar 11 04:19:33 2026] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
    "               NVRM: (PCI ID: 10de:2330) installed in this system has\n"
    "               NVRM: fallen off the bus and is not responding to commands.\n"
)
XID = "[Wed Mar 11 04:19:33 2026] NVRM: Xid (PCI:0000:b3:00): 79, pid=4101, name=python, GPU has fallen off the bus.\n"


@pytest.mark.parametrize("block", ["{}", "```console\n{}```\n"], ids=["plain", "fenced"])
@pytest.mark.parametrize(
    ("lines", "lead"),
    [(NIC, "NIC 0000:9a:00.0 of h-7"), (LOST, "GPU 0000:b3:00 of h-7"), (UP, None)],
    ids=["a NIC", "a message of several lines", "nothing wrong"],
)
def test_a_device_of_the_host_whose_prompt_stands_above(tmp_path: Path, block: str, lines: str, lead: str | None) -> None:
    verdict = pasted(tmp_path, LOG + "\n" + block.format(f"[root@h-7 ~]# dmesg -T | tail\n{lines}"))
    assert not named(verdict)
    assert any(lead in each for each in verdict.leads) if lead else not any("h-7" in each for each in verdict.leads)


def test_nics_of_two_hosts_that_stop_together_are_no_lead(tmp_path: Path) -> None:
    both = "".join(f"[root@{host} ~]# dmesg -T | tail\n{NIC}" for host in ("h-7", "h-8"))
    assert not any("NIC" in lead for lead in pasted(tmp_path, f"{LOG}\n{both}").leads)


def test_what_the_log_is_read_for_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(f"{LOG}\n[root@h-7 ~]# dmesg -T | tail\n{XID}{NIC}")
    case = open_case([tmp_path])
    kinds = "SELECT kind FROM device_events UNION ALL SELECT kind FROM log_events WHERE kind = 'xid' ORDER BY kind"
    assert case.execute(kinds).fetchall() == [("nic_fatal",), ("xid",)]
