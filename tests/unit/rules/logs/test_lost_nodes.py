"""The node that Slurm lost, by `sinfo -R` or `scontrol show node` beside a log that says only that one was."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.ingest._shared.node_lists import hosts
from tests.recordings.verdicts import named, pasted, verdict_of

INIT = "".join(
    f"gx{1 + rank // 4}:{700 + rank}:{800 + rank} [{rank % 4}] NCCL INFO ncclCommInitRank comm 0x5{rank:x} rank {rank} "
    f"nranks 12 cudaDev {rank % 4} nvmlDev {rank % 4} busId {rank % 4}1000 commId 0x9f1c - Init COMPLETE\n"
    for rank in range(12)
)
STEPS = "".join(f"iteration {step}/900 | lm loss: 2.{step}\n" for step in range(40, 46))
CANCELLED = "slurmstepd: error: *** JOB 88 ON gx1 CANCELLED AT 2025-09-02T02:24:31 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***\n"
FAILED = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 9, in <module>\n[rank1]: ValueError: bad\n'
REASONS = "REASON               USER      TIMESTAMP           NODELIST\n"


def row(node: str, reason: str = "Not responding", when: str = "2025-09-02T02:24:30") -> str:
    return f"{reason:20} slurm     {when} {node}\n"


SHOWN = """NodeName=gx2 Arch=x86_64 CoresPerSocket=48
   State=DOWN*+DRAIN ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Reason=Not responding [slurm@2025-09-02T02:25:10]
"""


CHECKED = SHOWN.replace("Not responding", "NHC: check_hw_ib: No IB port mlx5_2:1 is ACTIVE (LinkUp 200 Gb/sec).")


def judged(folder: Path, table: str, end: str = CANCELLED) -> set[int]:
    (folder / "train.out").write_text(INIT + STEPS + end)
    (folder / "nodes.txt").write_text(table)
    return named(verdict_of(folder))


@pytest.mark.parametrize(
    "table",
    [REASONS + row("gx2"), REASONS + row("gx9") + row("gx2") + row("gx1", "bad disk"), SHOWN, CHECKED],
    ids=["alone", "beside nodes of others", "shown whole", "found by a node check"],
)
def test_the_ranks_of_the_node_that_was_lost(tmp_path: Path, table: str) -> None:
    assert judged(tmp_path, table) == {4, 5, 6, 7}


@pytest.mark.parametrize(
    ("table", "end"),
    [
        (REASONS + row("gx2", when="2025-09-02T07:00:00"), CANCELLED),
        (REASONS + row("gx2", "maintenance"), CANCELLED),
        (REASONS + row("gx[2-3]"), CANCELLED),
        (REASONS + row("gx9"), CANCELLED),
        (REASONS + row("gx2"), CANCELLED.replace("DUE TO NODE FAILURE", "DUE TO TIME LIMIT")),
        (REASONS + row("gx2"), ""),
        (REASONS + row("gx2"), FAILED + CANCELLED),
        (CHECKED.replace("DOWN*+DRAIN", "IDLE+DRAIN"), CANCELLED),
    ],
    ids=[
        "hours later",
        "set aside",
        "two of them",
        "another job's",
        "time limit",
        "the job goes on",
        "failed before",
        "drained only",
    ],
)
def test_nodes_of_which_the_job_says_nothing(tmp_path: Path, table: str, end: str) -> None:
    assert not judged(tmp_path, table, end) & {4, 5, 6, 7}


@pytest.mark.parametrize(
    "form",
    ["[{host}] rank {rank}/4 initialized", "{host}: Rank {rank} of 4 ready", "INFO rank {rank}/4 runs on {host}"],
)
def test_the_rank_of_a_lost_host_where_each_rank_states_its_host(tmp_path: Path, form: str) -> None:
    lost = STEPS + "srun: error: Node failure on gx2\n"
    stated = [form.format(rank=rank, host=f"gx{1 + rank // 2}") for rank in range(4)]
    for name, lines in {
        "all": stated,
        "some": stated[:3],
        "from 1": [each.replace("ank 0", "ank 4") for each in stated],
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.out").write_text("\n".join(lines) + "\n" + lost)
        assert named(verdict_of(tmp_path / name)) == ({2, 3} if name == "all" else set())


SRUN = "+ srun --nodes=3 --ntasks-per-node=4 --nodelist=gx[1-3] python t.py\n"


@pytest.mark.parametrize(
    ("command", "right"),
    [
        (SRUN, {4, 5, 6, 7}),
        (SRUN.replace("gx[1-3]", "gx1,gx2,gx3"), {4, 5, 6, 7}),
        (SRUN.replace("--nodes", "-m cyclic --nodes"), set()),
        (SRUN.replace("gx[1-3]", "gx3,gx2,gx1"), set()),
        (SRUN.replace("node=4", "node=1"), set()),
        (SRUN + SRUN.replace("node=4", "node=2"), set()),
        (SRUN.replace("python t.py", "torchrun --nproc_per_node=2 t.py"), set()),
    ],
    ids=["in a row", "each by its name", "in turn", "another order", "one each", "two commands", "of a launcher"],
)
def test_the_ranks_of_a_lost_node_by_the_command_that_started_them(command: str, right: set[int], tmp_path: Path) -> None:
    (tmp_path / "slurm.out").write_text(command + STEPS + "srun: error: Node failure on gx2\n" + CANCELLED)
    assert named(verdict_of(tmp_path)) == right


def test_a_node_that_the_scheduler_saw_lost_after_others_gave_up_on_it(tmp_path: Path) -> None:
    gave_up = "".join(
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
        f"Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
        for rank in (0, 1, 9)
    )
    lost = "srun: error: Node failure on gx2\n"
    for name, above in {"others": gave_up, "itself": gave_up.replace("[Rank 9]", "[Rank 5]")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.out").write_text(INIT + STEPS + above + lost)
        assert named(verdict_of(tmp_path / name)) == ({4, 5, 6, 7} if name == "others" else set())


def test_lists_of_nodes() -> None:
    assert [*hosts("gpu-[003-005,9],login1")] == ["gpu-003", "gpu-004", "gpu-005", "gpu-9", "login1"]
    assert len([*hosts("gpu-[1-999999999]")]) == 4096
    assert [*hosts(f"gpu-[{'1' * 400}-2]")] == []


def test_the_ranks_of_a_lost_node_by_the_list_that_a_job_prints(tmp_path: Path) -> None:
    start = "SLURM_JOB_NODELIST=gx[1-4]\n+ srun torchrun --nnodes 4 --nproc_per_node 2 train.py\n"
    for name, text in {"whole": start, "longer": start.replace("-4]", "-5]")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.out").write_text(text + STEPS + "srun: error: Node failure on gx3\n")
        assert named(verdict_of(tmp_path / name)) == ({4, 5} if name == "whole" else set())


LOST = "ORTE has lost communication with a remote daemon.\n\n  Remote daemon: [[12345,0],3] on node gpu-07\n"
LOST_BY_PRRTE = LOST.replace("[[12345,0],3]", "[prterun-gpu-01-88@0,3]")


@pytest.mark.parametrize("text", [LOST, LOST_BY_PRRTE, "srun: error: Node failure on gpu-07\n"])
@pytest.mark.parametrize("name", ["rank5.log", "worker_5.log", "logs/5.out"])
def test_a_lost_node_is_not_of_the_rank_that_a_file_is_called_by(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("step 3 loss 2.1\n" + text)
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert "gpu-07" in verdict.would_change[0]


NODES = "NAME      STATUS                     ROLES    AGE   VERSION\n"
DESCRIBED = (
    "Name:               gx2\nRoles:              <none>\nTaints:             node.kubernetes.io/unreachable:NoExecute\n"
    "Conditions:\n  Type             Status    LastHeartbeatTime\n  ----             ------    -----------------\n"
    "  MemoryPressure   Unknown   Mon, 04 Aug 2025 10:11:02 +0000\n  Ready            {}   Mon, 04 Aug 2025 10:11:02 +0000\n"
)


def node(name: str, status: str) -> str:
    return f"{name:9} {status:26} <none>   30d   v1.29.6-gke.1\n"


@pytest.mark.parametrize(
    "table",
    [
        NODES + node("gx1", "Ready") + node("gx2", "NotReady"),
        "$ kubectl get nodes\n" + NODES + node("gx2", "NotReady,SchedulingDisabled"),
        DESCRIBED.format("Unknown"),
        "$ kubectl describe node gx2\n" + DESCRIBED.format("False"),
    ],
)
def test_the_one_node_that_kubernetes_finds_not_ready_is_where_to_begin(tmp_path: Path, table: str) -> None:
    (tmp_path / "train.out").write_text(STEPS)
    (tmp_path / "nodes.txt").write_text(table)
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert "kernel log of node gx2" in verdict.would_change[0]


@pytest.mark.parametrize(
    "table",
    [
        NODES + node("gx1", "NotReady") + node("gx2", "NotReady"),
        NODES + node("gx1", "Ready,SchedulingDisabled"),
        DESCRIBED.format("True"),
        DESCRIBED.format("False").replace("Roles:", "Node: ").replace("Taints:", "Status:"),
    ],
    ids=["two", "cordoned", "ready", "a pod"],
)
def test_nodes_that_point_nowhere(tmp_path: Path, table: str) -> None:
    (tmp_path / "train.out").write_text(STEPS)
    (tmp_path / "nodes.txt").write_text(table)
    assert not any("not ready" in each for each in verdict_of(tmp_path).would_change)


LISTED = " {0}  {1}{1}{1}{1}{1}{1}  192.0.2.{0}   False           {2:11} {3:70}192.0.2.{0}    CPU: 192.0   \n"
CHECKED = (
    "2026-08-19 02:32:11,405 - [slurm_plugin.slurm_resources:is_state_healthy] - WARNING - "
    "Node state check: node {0}(192.0.2.4) in {1}\n"
)


def listed(*states: tuple[str, str]) -> str:
    head = "    NODE_ID      NODE_IP     IS_HEAD_NODE    STATE    STATE_MESSAGE    NODE_NAME    RESOURCES_TOTAL\n"
    return head + "".join(LISTED.format(at, f"1f0b8d6c{at}a", *state) for at, state in enumerate(states))


@pytest.mark.parametrize(
    ("text", "node"),
    [
        (
            listed(("ALIVE", ""), ("DEAD", "Unexpected termination: health check failed due to missing too many heartbeats")),
            "192.0.2.1",
        ),
        (CHECKED.format("q-st-p5-6", "DOWN state, node state: DOWN+CLOUD"), "q-st-p5-6"),
        (CHECKED.format("q-st-p5-6", "failing state: DOWN+CLOUD+NOT_RESPONDING"), "q-st-p5-6"),
    ],
)
def test_the_one_node_that_a_cluster_lists_as_dead_is_where_to_begin(tmp_path: Path, text: str, node: str) -> None:
    verdict = pasted(tmp_path, text)
    assert not named(verdict)
    assert f"kernel log of node {node}," in verdict.leads[0]


@pytest.mark.parametrize(
    "states",
    [
        pytest.param([("DEAD", "Expected termination: received SIGTERM")], id="asked to go"),
        pytest.param([("DEAD", "Termination of node that's idle for longer than 300s")], id="idle"),
        pytest.param([("DEAD", "health check failed")] * 2, id="two"),
    ],
)
def test_nodes_that_were_asked_to_go_or_are_several_are_no_lead(tmp_path: Path, states: list[tuple[str, str]]) -> None:
    verdict = pasted(tmp_path, "[rank0]: step 4 loss 2.1\n" + listed(("ALIVE", ""), *states))
    assert not any("kernel log of node" in lead for lead in verdict.leads)
