"""What monitors, coordinators and batch systems say of processes: whom it names, where to begin, and when it shows nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Confidence, Outcome
from tests.recordings.verdicts import named, pasted, verdict_of

MONITOR = "[2025-02-03 04:05:06,700] [WARNING] [ft@n3] [RankMonitorServer:{}@n3] {}. Waited 900.00 seconds.\n"
AGENT = "E0203 04:05:12.902 861 torch/x/api.py:874] failed (exitcode: -9) local_rank: {} (pid: 870) of binary: /bin/python\n"
NO_BEAT = "Did not get subsequent heartbeat"
JSRUN = "ERROR:  One or more process (first noticed rank {}) terminated with signal {}\n"
LSF = "TERM_{}: job killed after reaching LSF run time limit.\n"
AZURE = "Process 'worker on rank {} and node {}' exited with code {} and error message 'Execution failed. {}'\n"
FOLLOWED = (
    "Process killed by signal with name SIGKILL. It was terminated by the runtime due to failure in other processes on the"
)
PBS = "=>> PBS: job killed: {}\n"
ALIVE = "ERROR:tensorflow:Cluster check alive failed, /job:worker/replica:0/task:{} is down, aborting collectives: timeout\n"
LIGHTHOUSE = (
    "2025-03-04T05:06:07.1 [INFO] [torchft::lighthouse] - Replica {} timed out (last heartbeat: Instant {{ tv_sec: 5 }})\n"
)
EXECUTOR = "24/02/03 04:05:06 ERROR TaskSchedulerImpl: Lost executor {} on {}: {}\n"
BARRIER = "Stage failed because barrier task ResultTask(3, {}) finished unsuccessfully.\n"
EFA = (
    "libfabric:44:17:efa:cq:efa_rdm_cq_poll():390<warn> Unresponsive receiver (reachable by EFA device but handshake failed) "
    "My EFA addr: fi_addr_efa://[fe80::{0}]:13:1 My host id: i-0a{0} Peer EFA addr: fi_addr_efa://[fe80::9]:3:4 "
    "Peer host id: i-0d9\n"
)
ORTE = "ORTE has lost communication with its daemon located on node:\n\n  hostname:  {}\n\nThis is usually due to a failure\n"
TASK = "srun: error: {}: task {}: {}\n"
STEPS = "".join(f"step {at}/900 loss 2.{at}\n" for at in range(40, 50))


@pytest.mark.parametrize("number", [3, 19])
def test_a_rank_that_its_monitor_killed_accuses_nobody(tmp_path: Path, number: int) -> None:
    verdict = pasted(tmp_path, MONITOR.format(number, NO_BEAT) + AGENT.format(3))
    assert not named(verdict)
    assert verdict.outcome is Outcome.HANG


@pytest.mark.parametrize(
    ("below", "outcome"),
    [
        ("", Outcome.HANG),
        (STEPS, Outcome.INCONCLUSIVE),
        (STEPS.replace("/900 loss 2.4", "/900 loss 1.4"), Outcome.INCONCLUSIVE),
    ],
    ids=["the end", "from a checkpoint", "the same steps"],
)
def test_monitors_that_gave_up_on_all_ranks_before_the_job_began_again(tmp_path: Path, below: str, outcome: Outcome) -> None:
    gave_up = "".join(MONITOR.format(rank, NO_BEAT) for rank in range(4))
    verdict = pasted(tmp_path, STEPS + gave_up + below)
    assert (verdict.outcome, named(verdict)) == (outcome, set())


def test_lines_that_were_written_late_below_a_monitor_are_no_second_start(tmp_path: Path) -> None:
    late = "".join(f"step {at}/900 loss 2.{at}\n" for at in range(50, 53))
    gave_up = "".join(MONITOR.format(rank, NO_BEAT) for rank in range(4))
    assert pasted(tmp_path, STEPS + gave_up + late).outcome is Outcome.HANG


def test_a_rank_that_was_killed_before_its_monitor_gave_up_is_named(tmp_path: Path) -> None:
    killed = AGENT.format(3) + MONITOR.format(1, NO_BEAT)
    assert named(pasted(tmp_path, killed)) == {3}


@pytest.mark.parametrize(
    ("text", "rank", "confidence"),
    [
        (JSRUN.format(11, 9), 11, Confidence.LIKELY),
        (AZURE.format(3, 0, -9, FOLLOWED) + AZURE.format(9, 1, 1, "Process exited with status code 1. Error: x"), 9, None),
    ],
)
def test_the_rank_that_a_launcher_saw_end(tmp_path: Path, text: str, rank: int, confidence: Confidence | None) -> None:
    verdict = pasted(tmp_path, STEPS + text)
    assert named(verdict) == {rank}
    assert confidence in (None, verdict.suspects[0].confidence)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            PBS.format("walltime 86423 exceeded limit 86400") + "n7: rank 3 died from signal 15\n",
            "cancelled the job for its time",
        ),
        (PBS.format("vmem 91gb exceeded limit 90gb"), "cancelled the job for its memory limit"),
        (JSRUN.format(0, 9) + LSF.format("RUNLIMIT"), "cancelled the job for its time limit"),
        (PBS.format("node 2 (n19) requested job terminate, 'EOF' (code 1099)"), "console and kernel log of n19"),
        (ALIVE.format(3) * 2, "kernel log of task /job:worker/replica:0/task:3: it alone was found gone"),
        (LIGHTHOUSE.format("fit_2:0b1c"), "kernel log of replica group fit_2:0b1c"),
        (
            EXECUTOR.format(4, "10.9.6.22", "Command exited with code 137") + BARRIER.format(5),
            "kernel log of executor 4 on 10.9.6.22",
        ),
        (BARRIER.format(5), "the log of Spark's barrier task 5"),
        (EFA.format(1) + EFA.format(2), "kernel log of host i-0d9"),
        (ORTE.format("cn-17"), "console and kernel log of cn-17"),
        (
            TASK.format("dx-31", 6, "Exited with exit code 1") + TASK.format("dx-25", 0, "Terminated"),
            "what task 6 of srun on dx-31",
        ),
    ],
)
def test_where_to_begin(tmp_path: Path, text: str, said: str) -> None:
    verdict = pasted(tmp_path, STEPS + text)
    assert not named(verdict)
    assert said in verdict.would_change[0]


@pytest.mark.parametrize(
    "text",
    [
        ALIVE.format(3) + ALIVE.format(1),
        LIGHTHOUSE.format("fit_2:0b1c") + STEPS,
        EXECUTOR.format(4, "10.9.6.22", "Executor decommission: spot") + BARRIER.format(5),
        EXECUTOR.format(4, "10.9.6.22", "Command exited with code 137"),
        EFA.format(1) + EFA.format(1).replace("i-0d9", "i-0d8"),
        EXECUTOR.format(4, "10.9.6.22", "x") + EXECUTOR.format(5, "10.9.6.23", "x") + BARRIER.format(5),
    ],
)
def test_several_and_those_that_the_job_went_on_without_are_no_lead(tmp_path: Path, text: str) -> None:
    assert not any("found gone" in each for each in pasted(tmp_path, STEPS + text).would_change)


@pytest.mark.parametrize(
    "text",
    [
        TASK.format("dx-31", 6, "Exited with exit code 1"),
        TASK.format("dx-31", 6, "Exited with exit code 1") * 2 + TASK.format("dx-30", 5, "Exited with exit code 1"),
        TASK.format("dx-31", 6, "Exited with exit code 1") + TASK.format("dx-25", 0, "Terminated") + "[rank9]: ValueError: x\n",
    ],
)
def test_a_task_that_ended_by_a_code_is_no_lead_alone_nor_beside_ranks(tmp_path: Path, text: str) -> None:
    assert not any("what task" in each for each in pasted(tmp_path, STEPS + text).would_change)


def test_a_kill_by_the_owner_of_the_job_accuses_nobody(tmp_path: Path) -> None:
    assert not named(pasted(tmp_path, STEPS + JSRUN.format(7, 9) + "TERM_OWNER: job killed by owner.\n"))


def test_an_unordered_kill_is_not_confirmed(tmp_path: Path) -> None:
    text = "=   RANK 3 PID 90211 RUNNING AT n4\n=   KILLED BY SIGNAL: 9 (Killed)\n"
    assert pasted(tmp_path, text).suspects[0].confidence is Confidence.LIKELY


def test_the_output_of_a_job_of_pbs_is_a_log_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "fit.o441920").write_text(PBS.format("walltime 86423 exceeded limit 86400"))
    assert "time limit" in verdict_of(tmp_path).would_change[0]
