"""What the kernel wrote of a rank's process stands beside what else is known of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Confidence, Verdict
from tests.recordings.collection import loose, pid_of, py_spy, whole, write
from tests.recordings.job import Job
from tests.recordings.places import ALL_REDUCE, CHECKPOINT, HOST_CODE
from tests.recordings.verdicts import leaders, stated, verdict_of

HUNG = "[123456.000001] INFO: task python:{pid} blocked for more than 122 seconds.\n"
TWICE = HUNG + "[123580.000001] INFO: task python:{pid} blocked for more than 245 seconds.\n"


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
    assert ("blocked for more than 122 seconds" in stated(verdict_of(tmp_path))) is shown


@pytest.mark.parametrize(("folder", "shown"), [("node-1", True), ("node-2", False)])
def test_the_same_number_on_another_host_is_another_process(folder: str, shown: bool, tmp_path: Path) -> None:
    stacks = {f"node-1/rank{rank}.json": py_spy(HOST_CODE if rank == 2 else ALL_REDUCE, 312 + rank) for rank in range(4)}
    write(tmp_path, {**stacks, f"{folder}/dmesg.txt": HUNG.format(pid=314).encode()})
    assert ("blocked for more than 122 seconds" in stated(verdict_of(tmp_path))) is shown


def unsampled(folder: Path, lines: str, *, asleep: dict[int, str], issued: frozenset[int] = frozenset()) -> Verdict:
    """Stacks of four ranks out of eight, as typed by hand; states of `asleep`, whose stacks no sampler got."""
    job = Job(8, "nccl")
    job.steps(10)
    job.hang({2} - issued)
    others = [rank for rank in range(8) if rank not in asleep]
    write(folder, {f"rank{rank}.json": py_spy(ALL_REDUCE, pid_of(rank)) for rank in others})
    channels = {rank: "rpc_wait_bit_killable" if rank in asleep else "-" for rank in range(8)}
    table = "PID STAT WCHAN COMMAND\n" + "".join(
        f"{pid_of(rank)} {asleep.get(rank, 'R')} {channel} python train.py\n" for rank, channel in channels.items()
    )
    environments = "".join(f"$ cat /proc/{pid_of(rank)}/environ\nRANK={rank}\n" for rank in range(8))
    (folder / "session.txt").write_text(table + environments)
    (folder / "dmesg.txt").write_text("[    1.000001] Linux version 6.8.0\n" + lines)
    if issued:
        loose(job, folder / "dumps", ranks=sorted(issued))
    return verdict_of(folder)


def test_a_rank_that_the_kernel_finds_blocked_is_named_without_a_stack(tmp_path: Path) -> None:
    first = unsampled(tmp_path, TWICE.format(pid=pid_of(2)), asleep={2: "D"}).suspects[0]
    assert (first.ranks, first.rules[0], first.confidence) == ((2,), "FX103", Confidence.LIKELY)


def test_one_report_of_two_minutes_is_a_suspicion(tmp_path: Path) -> None:
    (first,) = (s for s in unsampled(tmp_path, HUNG.format(pid=pid_of(2)), asleep={2: "D"}).suspects if "FX103" in s.rules)
    assert (first.ranks, first.confidence) == ((2,), Confidence.SUSPECT)


@pytest.mark.parametrize(
    ("pids", "asleep", "issued"),
    [
        ((2,), {2: "S"}, frozenset()),
        ((77,), {2: "D"}, frozenset()),
        ((), {2: "D"}, frozenset()),
        ((0, 1, 2, 3), dict.fromkeys(range(4), "D"), frozenset()),
        ((2,), {2: "D"}, frozenset({2})),
    ],
    ids=["it sleeps no longer", "another process", "no report", "half of all", "it waits in the call itself"],
)
def test_who_is_not_the_one_that_is_blocked(
    pids: tuple[int, ...], asleep: dict[int, str], issued: frozenset[int], tmp_path: Path
) -> None:
    lines = "".join(TWICE.format(pid=pid_of(number)) for number in pids)
    suspects = unsampled(tmp_path, lines, asleep=asleep, issued=issued).suspects
    assert not any("FX103" in suspect.rules for suspect in suspects)


def test_what_the_kernel_finds_blocked_stands_still(tmp_path: Path) -> None:
    """One undated sample of stacks: the report of the kernel dates it."""
    texts = {f"rank{rank}.json": py_spy(CHECKPOINT if rank == 2 else ALL_REDUCE, pid_of(rank)) for rank in range(4)}
    write(tmp_path, texts)
    assert "blocked" not in verdict_of(tmp_path).summary
    (tmp_path / "ps.txt").write_text(f"PID STAT WCHAN COMMAND\n{pid_of(2)} D rpc_wait_bit_killable python train.py\n")
    (tmp_path / "dmesg.txt").write_text("[    1.000001] Linux version 6.8.0\n" + TWICE.format(pid=pid_of(2)))
    verdict = verdict_of(tmp_path)
    assert [(suspect.ranks, suspect.rules[0]) for suspect in verdict.suspects] == [((2,), "FX111")]
    assert any("rank 2 blocked for more than 245 s" in symptom.text for symptom in verdict.symptoms)
