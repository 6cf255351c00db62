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


@pytest.mark.parametrize(
    ("above", "host"),
    [
        ("[root@h-7 ~]# dmesg -T", "h-7"),
        ("### dmesg of gpu-a08\n```", "gpu-a08"),
        ("### dmesg of gpu-a08, not of gpu-a09\n```", None),
        ("### dmesg with driver 570\n```", None),
        ("### node-4\n```", None),
    ],
    ids=["a prompt", "a heading", "two hosts", "no host", "no kernel log"],
)
def test_an_xid_is_of_the_host_above_it(tmp_path: Path, above: str, host: str | None) -> None:
    leads = pasted(tmp_path, f"{LOG}\n{above}\n{XID}").leads
    assert any((f"GPU 0000:b3:00 of {host}," if host else "GPU 0000:b3:00,") in lead for lead in leads)


INIT = (
    "h-{1}:{0}01:{0}09 [{2}] NCCL INFO ncclCommInitRank comm 0x55d{0} rank {0} nranks 4 cudaDev {2} nvmlDev {2} "
    "busId {3}000 commId 0x8f01 - Init COMPLETE\n"
)


@pytest.mark.parametrize(("host", "rank"), [("h-7", 1), ("h-8", 3), ("h-9", None)])
def test_an_xid_below_a_host_is_of_the_rank_that_nccl_places_there(tmp_path: Path, host: str, rank: int | None) -> None:
    """Both hosts have a GPU at that address; of a third one no rank is known."""
    start = "".join(INIT.format(at, 7 + at // 2, at % 2, ("4b", "b3")[at % 2]) for at in range(4))
    leads = pasted(tmp_path, f"{start}\n$ ssh {host} dmesg -T\n{XID}").leads
    placed = [lead for lead in leads if "Xid 79" in lead]
    assert placed and all((f"rank {rank}:" if rank is not None else "the rank that uses GPU") in lead for lead in placed)


@pytest.mark.parametrize("between", ["### another one", "[root@h-8 ~]# grep Xid /var/log/messages", "$ cat xids.txt"])
def test_another_heading_or_command_ends_what_is_of_the_host(tmp_path: Path, between: str) -> None:
    for above in ("### dmesg of gpu-a08", "[root@gpu-a08 ~]# dmesg -T"):
        leads = pasted(tmp_path, f"{LOG}\n{above}\nnothing\n{between}\n{XID}").leads
        assert any("GPU 0000:b3:00" in lead for lead in leads) and not any("gpu-a08" in lead for lead in leads)


def test_a_lost_gpu_long_before_the_last_steps_is_no_lead(tmp_path: Path) -> None:
    steps = "".join(f"2026-05-01 03:{at:02d}:10,113 - INFO - step {at}/9000 | loss 2.{at}\n" for at in range(20))
    assert not pasted(tmp_path, f"still there?\n\n[root@h-7 ~]# dmesg -T\n{XID}\n{steps}").leads


def test_what_a_runtime_of_containers_dates_line_by_line(tmp_path: Path) -> None:
    text = f"{LOG}\n[root@h-7 ~]# dmesg -T | tail\n{NIC}"
    dated = "".join(f"2026-03-11T06:00:{at:02d}.{at:09d}Z {line}\n" for at, line in enumerate(text.splitlines()))
    assert any("NIC 0000:9a:00.0 of h-7" in lead for lead in pasted(tmp_path, dated).leads)


@pytest.mark.parametrize(("year", "is_lead"), [(2025, False), (2026, True)])
def test_the_time_at_which_an_old_line_was_printed_is_not_that_of_the_error(tmp_path: Path, year: int, is_lead: bool) -> None:
    xid = f"[Wed Mar 11 05:59:50 {year}] NVRM: Xid (PCI:0000:4c:00): 46, pid=3001, name=python3, Channel stopped"
    steps = (f"step {at}/9000 loss 2.{at}" for at in range(20))
    lines = ["still there?", "[root@k3 ~]# dmesg -T | grep Xid", xid, "$ tail job.log", *steps]
    text = "".join(f"2026-03-11T06:00:{at:02d}.{at:09d}Z {line}\n" for at, line in enumerate(lines))
    assert any("Xid 46" in lead for lead in pasted(tmp_path, text).leads) is is_lead
