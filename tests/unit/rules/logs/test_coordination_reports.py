"""Barriers of JAX's coordination service that timed out, as they were reported before the message counted who came."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Confidence, Outcome
from tests.recordings.verdicts import named, pasted

TASK = "/job:jax_worker/replica:0/task:{0}"
GRPC = "\nAdditional GRPC error information from remote target unknown_target_for_coordination_leader:\n"


def begins(size: int, own: int = 2) -> str:
    return f"09:14:02 distributed INFO joined 10.7.0.4:8476, num_processes={size}, process_id={own}\n"


def late(*tasks: int, name: str = "restore_done0", end: str = GRPC, task: str = TASK) -> str:
    head = f"XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: {name}. Timed out task names:\n"
    return head + "".join(f"{task.format(number)}\n" for number in tasks) + end


STEPS = "".join(f"09:5{n}:00 INFO step {n} loss 2.{n}\n" for n in range(9))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (begins(8) + late(6), {6}),
        (begins(8) + late(6, 1), {1, 6}),
        ("I0312 main.py:52] JAX process: 2 / 8\n" + late(6, 1), {1, 6}),
        (late(6), {6}),
        (begins(8) + late(6) + late(0, 2, 3, name="Shutdown::81"), {6}),
        (begins(8) + late(6, 1).replace(TASK.format(1), "epoch done\n" + TASK.format(1)), {1, 6}),
        (begins(8) + late(6, 1, name="a").replace(":\n/", r":\n/").replace("\n/", r"\n/"), {1, 6}),
        (begins(8) + late(4) + begins(8) + late(6), {6}),
    ],
    ids=["one", "two", "flax", "no size", "what follows", "a line between", "ends of lines are spelled", "a second attempt"],
)
def test_the_tasks_that_a_barrier_waited_for(tmp_path: Path, text: str, right: set[int]) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == (right, Outcome.HANG)


@pytest.mark.parametrize(
    "text",
    [
        begins(8) + late(0, 1, 3, 4),
        begins(64) + late(*range(10, 29)),
        begins(8) + late(6, end=""),
        begins(4) + late(6),
        begins(4) + begins(8) + late(1),
        late(6, 1),
        begins(2) + late(1, name="Shutdown::81"),
        late(1, name="Shutdown::81"),
        begins(8) + late(2, task="/job:worker/replica:0/task:{0}\n/job:chief/replica:0/task:{0}"),
        begins(8) + late(6) + begins(8),
        begins(8) + late(6) + STEPS,
        begins(8) + f"we saw Barrier timed out. Barrier_id: a. Timed out task names: {TASK.format(3)} on Monday\nand more\n",
        begins(8) + late(),
    ],
    ids=[
        "half of them",
        "as many as it prints",
        "cut below the names",
        "no such task",
        "two jobs",
        "perhaps most",
        "who ends first of two",
        "who ends first",
        "kinds of tasks",
        "begun again",
        "goes on",
        "a sentence",
        "no names",
    ],
)
def test_barriers_that_tell_of_nobody(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


def test_a_barrier_of_which_too_little_is_stated_is_a_hang_unless_the_job_goes_on(tmp_path: Path) -> None:
    assert pasted(tmp_path, late(6, 1)).outcome is Outcome.HANG
    assert pasted(tmp_path, late(6, 1) + STEPS).outcome is not Outcome.HANG
    assert pasted(tmp_path, STEPS + late(6, 1, name="Shutdown::81")).outcome is not Outcome.HANG


def test_one_of_unknown_many_is_no_more_than_a_suspect(tmp_path: Path) -> None:
    (suspect,) = pasted(tmp_path, late(6)).suspects
    assert suspect.confidence is Confidence.SUSPECT
    (suspect,) = pasted(tmp_path, begins(8) + late(6)).suspects
    assert suspect.confidence is Confidence.LIKELY


LOST = (
    "E coordination_service.cc:954] {0} has been set to ERROR: UNAVAILABLE: Task {0} heartbeat timeout. The task has failed.\n"
)
UNHEALTHY = "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n{0}\nThe tasks have crashed.\n"


@pytest.mark.parametrize("form", [LOST, UNHEALTHY], ids=["one", "a list"])
def test_a_task_whose_heartbeats_stopped_is_a_suspect(tmp_path: Path, form: str) -> None:
    text = form.format(TASK.format(37))
    (suspect,) = pasted(tmp_path, text * 2).suspects
    assert (suspect.ranks, suspect.confidence) == ((37,), Confidence.SUSPECT)
    assert "missing in the coordination service" in suspect.evidence[0].statement
    assert not named(pasted(tmp_path, form.format(TASK.format(0)))), "the service is of task 0"
    assert not named(pasted(tmp_path, text + form.format(TASK.format(9)))), "which was first is not told"
    assert not named(pasted(tmp_path, text + STEPS)), "the job goes on"


EXITED = (
    "[ERROR] DISTRIBUTED(801,7f,python):2026-05-01-10:12:00.101 [meta_server_node.cc:511] UpdateTopoState] The node: {0} is "
    "timed out. It may exit with exception, please check this node's log.\n"
)
MSRUN = "[ERROR] ME(802:281,MainProcess):2026-05-01-10:12:38.722.000 [process_entity/_api.py:431] Time out nodes are ['{0}']\n"


@pytest.mark.parametrize("form", [EXITED, MSRUN, EXITED + MSRUN], ids=["scheduler", "msrun", "both"])
def test_a_worker_of_mindspore_that_its_scheduler_lost(tmp_path: Path, form: str) -> None:
    (suspect,) = pasted(tmp_path, form.format(3)).suspects
    assert (suspect.ranks, suspect.confidence) == ((3,), Confidence.SUSPECT)
    assert named(pasted(tmp_path, form.format(0))) == {0}, "the scheduler is no worker"
    assert not named(pasted(tmp_path, form.format(3) + form.format(5))), "which was first is not told"
    assert not named(pasted(tmp_path, MSRUN.format("3', '5"))), "which was first is not told"
    assert not named(pasted(tmp_path, form.format(3) + STEPS)), "the job goes on"
