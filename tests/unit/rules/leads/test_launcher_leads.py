"""Where to begin with what launchers and schedulers say of one task, process, node or pod, and that several are no lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted, unnamed, verdict_of

MPICH = (
    "===================================================\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
    "=   PID {1} RUNNING AT {0}\n=   EXIT CODE: {2}\n=   CLEANING UP REMAINING PROCESSES\n"
)
PEER = "MPID_nem_tcp_connpoll(1826): Communication error with rank {}: Connection reset by peer\n"
UNLAUNCHED = "srun: error: Task launch for 77.0 failed on node {}: Job credential expired\n"
NODE = "[2026-01-03 15:45:13,982] [ERROR] [launch.py:321:x] ['python', 'a.py', '--local_rank={}'] exits with return code = {}\n"
MSRUN = "[ERROR] ME(130:28,MainProcess):2026-01-03-14:22:26.839.923 [m/_api.py:268] Worker process {} exit with exception.\n"
PADDLE = "Container rank {} status failed cmd ['python', '-u', 't.py'] code -6 log log/default.2.log\n"
NIC = "cn-{0}:91:{1} [0] transport/net_ib.cc:93 NCCL WARN NET/IB : {2}Got async event : {3}\n"
COLOSSAL = "Error: failed to run torchrun --nnodes=2 --node_rank=1 t.py on gx-{}, is localhost: False, exception: {}\n"
EXITED = "2026-01-15 13:41:10,551 WARN exited: fit_{} ({}; not expected)\n"
UNIT = "● fit@{0}.service - Trainer rank {0}\n     Loaded: loaded (/etc/systemd/system/fit@.service)\n   Main PID: {1}\n"
NOMAD = (
    "Name                = llm.fit[{0}]\nClient Status       = {1}\n\nRecent Events:\n"
    '2026-03-01T09:59:58Z  Terminated      Exit Code: {2}, Exit Message: "OOM Killed"\n'
)
COMPOSE = "fit-0  | epoch 1 loss 2.0\nfit-{0} exited with code {1}\n"
PODS = "NAME                 READY   STATUS    RESTARTS   AGE\n"


def pod(name: str, state: str, restarts: str = "0") -> str:
    return f"{name:20} 0/1     {state:16}   {restarts}          12m\n"


HOROVOD = "The first process to do so was:\nProcess name: {0}[{1}]\nExit code: {2}\n"
TPU = (
    "E0511 18:18:50.796514 915 session_master.cc:505] Session master detected TPU session error from worker {}.svc:8471. The\n"
)
NEAR = (
    "n1:90:91 [0] enqueue.cc:94 NCCL WARN Mismatched collective detected, please check your collective calls at and around "
    "rank {}. You can use NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=COLL to see the collective logs\n"
)
HEADED = "NAME                 READY   STATUS             RESTARTS   AGE\n"
JOB = pod("fit-master-0", "Running") + pod("fit-worker-1", "Running")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("srun: error: c002: task 0: Killed\n", "what task 0 of srun on c002 was"),
        (
            "srun: error: c3: tasks 16-23: Killed\nsrun: error: c2: tasks 8-15: Terminated\n",
            "kernel log and memory of c3, and which ranks tasks 16-23 of srun were",
        ),
        (
            "srun: error: c2: task 3: Exited with exit code 1\nsrun: error: c3: tasks 16-23: Killed\n",
            "what task 3 of srun on c2",
        ),
        (UNLAUNCHED.format("cn131"), "the log of slurmd, the clock and munge of cn131"),
        (MPICH.format("cn-4", 1082, 134), "the log of process 1082 on cn-4"),
        (MPICH.format("jo@cn-4", 1082, 134), "the log of process 1082 on cn-4"),
        (PEER.format(1) * 2, "log, exit code and kernel log of rank 1"),
        (NODE.format(3, -7), "shared memory of their host"),
        (MSRUN.format(1306), "the log of process 1306 and the kernel log of its host"),
        (HOROVOD.format("gx-2", 0, 1), "the log of process 0 of Horovod on gx-2"),
        (TPU.format("job-15"), "the log and chips of worker job-15.svc"),
        (NEAR.format(3) * 2, "the calls of number 3 of the communicator"),
        (COMPOSE.format(2, 137) + COMPOSE.format(0, 1), "the log of fit-2, the kernel log"),
        ("ssh: connect to host gx-4 port 22: No route to host\n", "whether gx-4 is up"),
        ("pdsh@gx-0: gx-4: ssh exited with exit code 255\n", "whether gx-4 is up"),
        (COLOSSAL.format(4, "No authentication methods available"), "whether gx-4 is up"),
        (
            EXITED.format(2, "terminated by SIGSEGV (core dumped)") + EXITED.format(0, "exit status 1"),
            "the log of fit_2, the ker",
        ),
        (UNIT.format(2, "5102 (code=killed, signal=KILL)") + UNIT.format(1, "5101 (python)"), "the log of fit@2.service"),
        (NOMAD.format(2, "failed", 137) + NOMAD.format(1, "running", 1), "the log of llm.fit[2], the kernel log"),
        ("jobset failed due to one or more job failures (first failed job: gpt-workers-2)\n", "the log of pod gpt-workers-2"),
        (PADDLE.format(2), "the end of the log of local rank 2"),
        (NIC.format(1, 91, "", "local catastrophic error"), "of cn-1: its own NIC reported a local catastrophic error"),
        (
            NIC.format(1, 91, "mlx5_0:1 ", "local access violation work queue error"),
            "of cn-1: its own NIC reported a local acc",
        ),
        (
            PODS + JOB + pod("fit-worker-0", "Error"),
            "events of pod fit-worker-0: its state is Error (job.log#line=4), 2 other pods",
        ),
        ("ops> " + (HEADED + JOB + pod("fit-worker-0", "Error")).replace("\n", "\nops> "), "pod fit-worker-0"),
        (PODS + pod("fit-worker-0", "CrashLoopBackOff", "8 (2m ago)") + JOB, "its state is CrashLoopBackOff"),
        (PODS + JOB + pod("fit-worker-0", "Pending"), "its state is Pending"),
        (PODS + pod("t-0-x7k2p", "Running") + pod("t-1-abcde", "ImagePullBackOff"), "events of pod t-1-abcde"),
    ],
)
def test_the_one_of_which_a_launcher_tells(tmp_path: Path, text: str, said: str) -> None:
    verdict = pasted(tmp_path, text)
    assert not named(verdict)
    assert said in verdict.would_change[0]


@pytest.mark.parametrize(
    "text",
    [
        "srun: error: c002: task 0: Killed\nsrun: error: c003: task 1: Killed\n",
        "srun: error: c002: task 0: Terminated\n",
        "srun: error: c3: tasks 16-23: Killed\nsrun: error: c2: tasks 8-15: Killed\n",
        "srun: error: c002: task 0: Exited with exit code 1\n",
        UNLAUNCHED.format("cn131") + UNLAUNCHED.format("cn132"),
        MPICH.format("cn-4", 1082, 134) + MPICH.format("cn-5", 1083, 134),
        MPICH.format("cn-4", 1082, 15),
        PEER.format(1) + PEER.format(4),
        NODE.format(3, -15),
        NODE.format(3, 1),
        MSRUN.format(1306) + MSRUN.format(1307),
        HOROVOD.format("gx-2", 0, 1) + HOROVOD.format("gx-2", 1, 1),
        NEAR.format(3) + NEAR.format(7),
        TPU.format("job-15") + TPU.format("job-14"),
        PADDLE.format(2) + PADDLE.format(3),
        COMPOSE.format(2, 137) + COMPOSE.format(0, 137),
        EXITED.format(0, "exit status 1") + EXITED.format(2, "terminated by SIGKILL"),
        EXITED.format(2, "terminated by SIGTERM"),
        EXITED.format(2, "terminated by SIGKILL") + "step 10 loss 2.1\nstep 20 loss 2.0\nstep 30 loss 1.9\n",
        NOMAD.format(2, "running", 137),
        NOMAD.format(2, "failed", 1),
        NOMAD.format(2, "failed", 143),
        NOMAD.format(2, "failed", 137) + NOMAD.format(1, "failed", 137),
        "ConnectionResetError: [Errno 104] Connection reset by peer while reading a shard\n",
        EXITED.format(2, "exit status 0").replace("not expected", "expected"),
        UNIT.format(2, "5102 (code=exited, status=1/FAILURE)"),
        UNIT.format(2, "5102 (code=killed, signal=KILL)") + UNIT.format(1, "5101 (code=killed, signal=KILL)"),
        "ssh: connect to host gx-4 port 22: No route to host\nssh: connect to host gx-5 port 22: No route to host\n",
        "ssh: connect to host github.com port 22: Connection timed out\n",
        "pdsh@gx-0: gx-4: ssh exited with exit code 1\n",
        COLOSSAL.format(4, "Encountered a bad command exit code!"),
        "Gracefully stopping... (press Ctrl+C again to force)\n" + COMPOSE.format(2, 137),
        NIC.format(1, 91, "", "local catastrophic error") + NIC.format(2, 91, "", "local catastrophic error"),
        NIC.format(1, 91, "mlx5_0:1 ", "client reregistration event"),
        PODS + JOB + pod("fit-worker-0", "Completed"),
        PODS + JOB + pod("old-worker-0", "Error"),
        PODS + pod("fit-worker-0", "Error") + pod("fit-worker-1", "Error"),
        PODS + JOB + pod("fit-worker-0", "Error") + pod("fit-worker-2", "Error"),
        PODS + JOB + pod("fit-worker-0", "Error") + pod("fit-worker-0", "Running"),
        PODS + pod("exp-a-0", "Running") + pod("exp-b-0", "Error"),
    ],
)
def test_what_is_no_lead(tmp_path: Path, text: str) -> None:
    verdict = pasted(tmp_path, text)
    assert not named(verdict)
    assert not verdict.leads


@pytest.mark.parametrize("end", [MPICH.format("cn-4", 1082, 1), "srun: error: c002: task 0: Exited with exit code 1\n"])
def test_the_error_of_a_rank_tells_more_than_that_its_launcher_ended(tmp_path: Path, end: str) -> None:
    error = 'step 3\nTraceback (most recent call last):\n  File "t.py", line 90, in <module>\nValueError: bad row\n'
    assert "ValueError: bad row" in pasted(tmp_path, error + end).would_change[0]


LEFT = "{} has exited due to process rank 2 with PID 1705 on{}node gx2 exiting{}improperly. There are three reasons"


@pytest.mark.parametrize(
    ("launcher", "before", "behind"), [("mpirun", "\n", " "), ("prterun", " ", "\n"), ("mpiexec", " ", " ")]
)
def test_the_rank_that_left_mpi_without_its_end(tmp_path: Path, launcher: str, before: str, behind: str) -> None:
    verdict = pasted(tmp_path, LEFT.format(launcher, before, behind) + " this could occur:\n")
    assert (named(verdict), verdict.outcome) == ({2}, Outcome.FAILSTOP)


def test_a_row_of_torchrun_without_the_number_of_the_process(tmp_path: Path) -> None:
    row = "  rank      : {0} (local_rank: {0})\n  exitcode  : {1} \n  error_file: <N/A>\n"
    head = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \nRoot Cause (first observed failure):\n"
    at = "[0]:\n  time      : 2026-01-03_17:02:3{}\n  host      : gpu21\n"
    assert named(pasted(tmp_path, head + at.format(3) + row.format(1, 1))) == {1}
    asked = head + at.format(3) + row.format(1, 1) + at.format(5) + row.format(0, -15)
    assert named(pasted(tmp_path, asked)) == {1}


CLOSED = "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 10401 closing signal SIGTERM\n"
FAILED = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 0 (pid: {}) of binary: /a/python\n"
)


def test_an_agent_that_closed_others_is_not_the_rank_that_its_file_is_called_by(tmp_path: Path) -> None:
    (tmp_path / "rank5.log").write_text(CLOSED + FAILED.format(10398))
    assert 5 not in named(verdict_of(tmp_path))
    (tmp_path / "rank5.log").write_text(FAILED.format(10398))
    assert named(verdict_of(tmp_path)) == {5}, "the only process of its agent"


@pytest.mark.parametrize(
    ("fronts", "where"),
    [
        (("gx-2: ",), "processes of gx-2 was"),
        (("",), "processes of one node was"),
        (("gx-2: ", "gx-3: "), "processes of one node was"),
    ],
)
def test_pdsh_shows_the_node_of_a_process_that_a_signal_ended(tmp_path: Path, fronts: tuple[str, ...], where: str) -> None:
    text = "".join(front + NODE.format(3, -9) for front in fronts)
    assert where in unnamed(tmp_path, {"job.log": "step 4 loss 2.1\n" + text}).leads[0]
