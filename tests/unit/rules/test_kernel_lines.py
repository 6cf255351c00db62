"""What the kernel wrote of a rank's process stands beside what else is known of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.collection import pid_of, py_spy, whole, write
from tests.recordings.job import Job
from tests.recordings.places import ALL_REDUCE, CHECKPOINT, HOST_CODE
from tests.recordings.verdicts import leaders, told, verdict_of

HUNG = "[123456.000001] INFO: task python:{pid} blocked for more than 122 seconds.\n"


@pytest.mark.parametrize(("of", "shown"), [(2, True), (1, False)])
def test_a_task_that_the_kernel_finds_hung_is_evidence_of_its_rank_only(of: int, shown: bool, tmp_path: Path) -> None:
    job = Job(4)
    job.steps(10)
    job.hang({2})
    found = whole(job, {2: HOST_CODE})
    found.kernel_log(HUNG.format(pid=pid_of(of)))
    (first,) = leaders(verdict_of(found.write(tmp_path)))
    assert first.ranks == (2,)
    assert any("blocked for more than 122 seconds" in each.statement for each in first.evidence) is shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("mce: [Hardware Error]: Machine check events logged", True),
        ("pcieport 0000:17:01.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", True),
        ("pcieport 0000:17:01.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer", False),
        ("eth0: Link is Up - 10Gbps", False),
    ],
)
def test_errors_of_a_host_are_shown_and_accuse_nobody(line: str, shown: bool, tmp_path: Path) -> None:
    (tmp_path / "dmesg.txt").write_text(f"[    1.000001] Linux version 6.8.0\n[  123.000001] {line}\n")
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects
    assert any(line in label.reason for label in verdict.labels) is shown


NFS = "[123400.000001] nfs: server filer-3 not responding, still trying\n"


@pytest.mark.parametrize(
    ("state", "lines", "shown"),
    [("D", NFS, True), ("S", NFS, False), ("D", f"{NFS}[123450.000001] nfs: server filer-3 OK\n", False)],
    ids=["asleep in the kernel", "asleep elsewhere", "back again"],
)
def test_storage_that_the_kernel_lost_is_evidence_of_who_sleeps_in_the_kernel(
    state: str, lines: str, shown: bool, tmp_path: Path
) -> None:
    job = Job(4)
    job.steps(10)
    job.hang({2})
    found = whole(job, {2: CHECKPOINT})
    found.samples(2, state)
    found.kernel_log(*lines.splitlines())
    (first,) = leaders(verdict_of(found.write(tmp_path)))
    assert first.ranks == (2,)
    assert any("filer-3" in each.statement for each in first.evidence) is shown


@pytest.mark.parametrize(("host", "shown"), [("node-1", True), ("node-2", False)])
def test_a_journal_of_several_hosts_says_of_which_each_line_is(host: str, shown: bool, tmp_path: Path) -> None:
    stacks = {f"node-1/rank{rank}.json": py_spy(HOST_CODE if rank == 2 else ALL_REDUCE, 312 + rank) for rank in range(4)}
    line = f"Mar 21 02:04:11 {host} kernel: INFO: task python:314 blocked for more than 122 seconds.\n"
    write(tmp_path, {**stacks, "journal.txt": line.encode()})
    assert ("blocked for more than 122 seconds" in told(verdict_of(tmp_path))) is shown


@pytest.mark.parametrize(("folder", "shown"), [("node-1", True), ("node-2", False)])
def test_the_same_number_on_another_host_is_another_process(folder: str, shown: bool, tmp_path: Path) -> None:
    stacks = {f"node-1/rank{rank}.json": py_spy(HOST_CODE if rank == 2 else ALL_REDUCE, 312 + rank) for rank in range(4)}
    write(tmp_path, {**stacks, f"{folder}/dmesg.txt": HUNG.format(pid=314).encode()})
    assert ("blocked for more than 122 seconds" in told(verdict_of(tmp_path))) is shown
