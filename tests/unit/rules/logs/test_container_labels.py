"""Lines of processes behind the label of a container or a unit: who wrote them is as known as without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted

DIED = """(TaskRunner pid=8929) ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
(TaskRunner pid=8929) \tclass_name: create_colocated_worker_cls.<locals>.WorkerDict
(TaskRunner pid=8929) \tpid: 9094
(TaskRunner pid=8929) \tname: gxWorkerDict_0:1
(TaskRunner pid=8929) \tip: 10.9.3.18
(TaskRunner pid=8929) The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR
"""
RAISED = """[2026-01-03 11:24:51 TP{0}] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/srt/managers/scheduler.py", line 2702, in run_scheduler_process
    scheduler.event_loop_normal()
IndexError: index 151 is out of bounds for dimension 0 with size 8
"""
SERVES = "[2026-01-03 11:24:20 TP{0}] Decode batch. #running-req: 30, #token: 96430, #queue-req: 1\n"


def labelled(front: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{front}{line}\n" for line in text.splitlines())


POD = labelled("[pod/srv-1/main] ")
DATED = labelled("[pod/srv-1/main] 2026-01-03T11:24:52.204417113Z ")
SERVICE = labelled("trainer-1  | ")
UNIT = labelled("Jan 03 11:24:52 gpu-7 train[4711]: ")


@pytest.mark.parametrize("front", [POD, DATED, SERVICE, UNIT])
def test_an_actor_of_which_the_driver_tells(tmp_path: Path, front: Callable[[str], str]) -> None:
    assert named(pasted(tmp_path, front(DIED))) == {1}


@pytest.mark.parametrize("front", [POD, DATED, SERVICE])
def test_the_process_of_a_server_that_ended_it(tmp_path: Path, front: Callable[[str], str]) -> None:
    serves = "".join(SERVES.format(number) for number in range(8))
    assert named(pasted(tmp_path, front(serves + RAISED.format(6)))) == {6}
    assert not named(pasted(tmp_path, front(serves + RAISED.format(6) + RAISED.format(2)))), "of several none is the first"


def test_processes_of_servers_in_several_pods(tmp_path: Path) -> None:
    other = labelled("[pod/srv-0/main] ")
    first, second = (range(8), range(8, 16))
    parts = [front("".join(map(SERVES.format, numbers))) for front, numbers in ((other, first), (POD, second))]
    assert named(pasted(tmp_path, "".join(parts) + POD(RAISED.format(11)))) == {11}
    alike = [front("".join(map(SERVES.format, first))) for front in (other, POD)]
    assert not named(pasted(tmp_path, "".join(alike) + POD(RAISED.format(6)))), "each pod is a server of its own"
