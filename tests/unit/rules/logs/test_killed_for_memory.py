"""Tasks that were killed for memory: who they were, where the launcher counts them or a kernel names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted


def of_step(kills: int, *said: str, form: str = "oom_kill events in StepId=4.0. Some of the step tasks") -> str:
    """What Slurm prints of a step of six tasks on one host whose memory ran out."""
    killed = f"slurmstepd: error: Detected {kills} {form} have been OOM Killed.\n"
    return killed + "".join(f"srun: error: n2: {line}\n" for line in said)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (of_step(3, "tasks 1-2,4: Out Of Memory", "tasks 0,3,5: Terminated"), {1, 2, 4}),
        (of_step(2, "tasks 0-1: Out Of Memory", form="oom-kill event(s) in StepId=4.0 cgroup. Some of the tasks"), {0, 1}),
        (of_step(1, "task 2: Out Of Memory", "task 3: Out Of Memory") + of_step(1), {2, 3}),
    ],
    ids=["some of a host", "older form", "by node"],
)
def test_tasks_that_were_killed_for_memory(tmp_path: Path, text: str, right: set[int]) -> None:
    verdict = pasted(tmp_path, text)
    assert named(verdict) == right
    assert "held the memory" in verdict.suspects[0].next_steps[0]


@pytest.mark.parametrize(
    "text",
    [
        of_step(1, "tasks 1-2,4: Out Of Memory"),
        of_step(7, "tasks 0-5: Out Of Memory"),
        of_step(2, "tasks 0-1: Killed"),
        of_step(1, "tasks 0-1: Out Of Memory") + of_step(1).replace("4.0", "9.0"),
        of_step(2, "tasks 0-1: Out Of Memory", form="oom_kill events in StepId=4.batch. Some of the step tasks"),
    ],
    ids=["one kill of three tasks", "children too", "another reason", "two steps", "of the script"],
)
def test_tasks_of_which_nothing_tells_who_was_killed_for_memory(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


def test_where_to_begin_with_the_one_task_of_a_host_that_was_killed_for_memory(tmp_path: Path) -> None:
    of_nodes = of_step(1, "task 1: Out Of Memory") + "srun: error: n1: task 0: Terminated\n"
    verdict = pasted(tmp_path, "srun -N2 --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=8 a.py\n" + of_nodes)
    assert not named(verdict)
    assert verdict.would_change[0].startswith("what task 1 of srun on n2 was, one rank or the launcher of several")


@pytest.mark.parametrize(
    ("before", "right"),
    [
        ("SLURM_JOB_NODELIST=n[1-2]\n", {3}),
        ("SLURM_JOB_NODELIST=n[1-4]\n", set()),
        ("SLURM_JOB_NODELIST=n[1-2]\nsrun -n4 torchrun --nnodes=4 --nproc_per_node=2 a.py\n", set()),
        ("", set()),
    ],
    ids=["two nodes", "as many nodes", "launchers", "no list"],
)
@pytest.mark.parametrize("end", [of_step(1, "task 3: Out Of Memory"), "srun: error: n2: task 3: Killed\n"])
def test_a_task_with_a_number_above_those_of_the_nodes_is_not_alone_on_its_host(
    tmp_path: Path, end: str, before: str, right: set[int]
) -> None:
    assert named(pasted(tmp_path, before + end)) == right


@pytest.mark.parametrize(
    ("commands", "right"),
    [
        (["srun --ntasks-per-node=8 python train.py --lr 1"], {3}),
        (["srun -N2 --ntasks-per-node=4 /opt/env/bin/python3.11 -u train.py"] * 2, {3}),
        (["srun --ntasks-per-node=1 python train.py"], set()),  # a process may start others
        (["srun --ntasks-per-node=2 bash run.sh"], set()),
        (["srun --ntasks-per-node=2 torchrun --nproc_per_node=4 a.py"], set()),
        (["srun --ntasks-per-node=2 python -u my_launcher.py train.py"], set()),
        (["srun python prepare.py", "srun --ntasks-per-node=8 python train.py"], set()),  # of which step is not known
        (["srun --ntasks-per-node=4 python prepare.py", "srun --ntasks-per-node=8 python train.py"], set()),
    ],
)
@pytest.mark.parametrize("end", [of_step(1, "task 3: Out Of Memory"), "srun: error: n2: task 3: Killed\n"])
def test_tasks_of_which_a_node_gets_several_are_ranks(tmp_path: Path, end: str, commands: list[str], right: set[int]) -> None:
    assert named(pasted(tmp_path, "".join(f"+ {command}\n" for command in commands) + end)) == right
