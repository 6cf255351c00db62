"""Workers of Ray Train that died, by number and address of their process, and deaths that tell of nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted

HOSTS = ("10.9.1.4", "10.9.1.7")
PIDS = ((410, 411), (411, 410))
"""On both hosts the same numbers, in another order: ranks 0 and 1, 2 and 3."""


def workers(front: str = "", pids: tuple[tuple[int, int], ...] = PIDS) -> str:
    rows = [
        f"(TorchTrainer pid=77) - ({front}ip={host}, pid={pid}) world_rank={2 * node + local}, local_rank={local}, node_rank=0"
        for node, host in enumerate(HOSTS)
        for local, pid in enumerate(pids[node])
    ]
    return "\n".join(("(TorchTrainer pid=77) Started distributed worker processes: ", *rows, ""))


CRASHED = "its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits."
KILLED = "it was killed by `ray.kill`."


def died(pid: int, host: str | None, why: str = CRASHED, error: str = "ActorDiedError") -> str:
    lines = [f"ray.exceptions.{error}: The actor died unexpectedly before finishing this task.", "\tclass_name: RayTrainWorker"]
    lines += ["\tactor_id: 5d0a", f"\tpid: {pid}", "\tnamespace: 9c", *([f"\tip: {host}"] if host else [])]
    return "\n".join((*lines, f"The actor is dead because {why}", ""))


STEPS = "".join(f"(RayTrainWorker pid=410, ip=10.9.1.4) step {number} loss 1.{number}\n" for number in range(20, 80, 10))


LABELS = "".join(
    f"(WorkerDict pid={pid}, ip={HOSTS[node]}) [rank{2 * node + local}]:[W321 02:04:11.1 ProcessGroupNCCL.cpp:4561] using GPU\n"
    for node in range(2)
    for local, pid in enumerate(PIDS[node])
)
GAVE_UP = "".join(
    f"(WorkerDict pid={pid}, ip={HOSTS[0]}) [rank{rank}]:[E321 02:34:11.1 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog "
    "caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran "
    "for 1800001 milliseconds before timing out.\n"
    for rank, pid in enumerate(PIDS[0])
)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (LABELS + died(410, HOSTS[1]), {3}),
        (LABELS + died(411, HOSTS[1]) + GAVE_UP, {2}),
        (workers() + died(410, HOSTS[0]), {0}),
        (workers() + died(410, HOSTS[1]), {3}),
        (workers() + died(411, HOSTS[1], error="RayActorError"), {2}),
        (workers("node_id=4ac7, ") + STEPS + died(411, HOSTS[0]), {1}),
        (workers(pids=((410, 411), (510, 511))) + died(510, None), {2}),
        (workers().replace("Trainer pid=77) - ", "rain pid=77)   * ") + "noise\n" * 400 + died(410, HOSTS[1]), {3}),
    ],
    ids=[
        "ranks in front of lines",
        "and others gave up",
        "first host",
        "second host",
        "older form",
        "with nodes",
        "no address and one number",
        "far below",
    ],
)
def test_the_worker_that_died(tmp_path: Path, text: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == right


@pytest.mark.parametrize(
    "text",
    [
        LABELS + died(410, None),
        LABELS + GAVE_UP + died(410, HOSTS[0]),
        LABELS + LABELS.replace("[rank3]", "[rank2]") + died(410, HOSTS[1]),
        workers() + died(410, None),
        workers() + died(410, "10.9.1.9"),
        workers() + died(410, HOSTS[1], why=KILLED),
        workers() + died(410, HOSTS[1], why="its owner has died. Owner Id: 01"),
        workers() + died(410, HOSTS[1]) + workers(pids=((610, 611), (710, 711))),
        workers() + died(410, HOSTS[1]) + workers(pids=((610, 611), (710, 711))) + STEPS,
        workers() + died(77, HOSTS[0]),
        workers() + died(410, HOSTS[1]) + died(411, HOSTS[0]),
        workers() + died(410, HOSTS[1]).partition("\tpid")[0],
        workers() + "the actor died, see pid: 410 and ip: 10.9.1.7\n",
    ],
    ids=[
        *("labels without the address", "ended by its watchdog", "two ranks of a label"),
        *("no address", "another host", "killed on purpose", "with its owner", "started again", "goes on", "the trainer"),
        *("two at once", "cut", "a sentence"),
    ],
)
def test_deaths_that_tell_of_nobody(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


END = "(TaskRunner pid=77) 'Final validation metrics: {'val/acc': 0.61}'\n"
WORK = "".join(f"(TaskRunner pid=77) Training Progress: {step}/40 [1:02:11<0:00, 92.1s/it]\n" for step in range(37, 41))
MEMORY = (
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory. (actor ID: 5d0a, name=X.__init__, "
    "pid=510, memory used=91.10GB) was running was 240.1GB / 250.0GB (0.96), which exceeds the memory usage threshold of 0.95. "
    "Ray killed this worker\n"
)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (WORK + END + died(510, None), set()),
        (WORK + died(510, None), {2}),
        (WORK + END + WORK + died(510, None), {2}),
        (WORK + END + MEMORY, {2}),
        (WORK + END.replace("Final", "Initial") + died(510, None), {2}),
    ],
    ids=["below the end", "no end", "trains again", "a kill that is told", "before the first step"],
)
def test_a_worker_that_went_away_with_its_finished_job(tmp_path: Path, text: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, workers(pids=((410, 411), (510, 511))) + text)) == right


@pytest.mark.parametrize(("end", "outcome"), [(END, Outcome.HEALTHY), ("", Outcome.FAILSTOP)])
def test_a_worker_of_unknown_rank_below_the_end_of_its_job(tmp_path: Path, end: str, outcome: Outcome) -> None:
    verdict = pasted(tmp_path, WORK + end + died(510, None))
    assert (verdict.outcome, bool(verdict.leads)) == (outcome, not end)


def snippet(rank: int, *below: str) -> str:
    context = f"  distributed_context=DistributedContext(world_rank={rank}, world_size=4, local_rank=0, node_rank={rank})"
    stated = (f"[Rank {rank} Error Snippet]:", "WorkerStatus(", context, ")", *below)
    return "".join(f"(TrainController pid=77, ip=10.9.1.2) {line}\n" for line in stated)


def lost(rank: int) -> str:
    raised = "RuntimeError: NCCL communicator was aborted on this rank, connection closed by remote peer"
    return snippet(rank, "Traceback (most recent call last):", '  File "fit.py", line 9, in <module>', raised)


def gone(rank: int, pid: int, host: str = HOSTS[0], why: str = CRASHED) -> str:
    return snippet(rank, *died(pid, host, why).removeprefix("ray.exceptions.ActorDiedError: ").rstrip("\n").split("\n"))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (gone(2, 940), {2}),
        (gone(2, 940) + lost(0), {2}),
        (lost(0) + lost(3) + gone(1, 941, HOSTS[1]), {1}),
        (gone(2, 940) + lost(0) + died(940, HOSTS[0]), {2}),
    ],
    ids=["alone", "before who lost it", "behind them", "raised again by the driver"],
)
def test_the_rank_below_whose_name_the_controller_tells_of_a_death(tmp_path: Path, text: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == right


@pytest.mark.parametrize(
    "text",
    [
        gone(2, 940) + gone(3, 941),
        lost(0) + died(940, HOSTS[0]),
        gone(2, 940, why=KILLED),
        snippet(2) + "nothing of it\n" * 40 + died(940, HOSTS[0]),
    ],
    ids=["two", "of another process", "on purpose", "far below"],
)
def test_deaths_that_are_not_of_the_rank_above(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


NODE = (
    "(raylet) The node with node id: 77aa and address: {0} and node name: {0} has been marked dead because the detector has "
    "missed too many heartbeats from it.\n"
)


def test_all_ranks_of_a_node_that_was_lost(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, workers() + STEPS + NODE.format(HOSTS[1]))) == {2, 3}


@pytest.mark.parametrize(
    "text",
    [
        workers() + NODE.format("10.9.1.9"),
        workers().replace("world_rank=1,", "world_rank=6,") + NODE.format(HOSTS[1]),
        workers() + NODE.format(HOSTS[0]) + NODE.format(HOSTS[1]),
        workers() + NODE.format(HOSTS[1]) + workers() + STEPS,
        NODE.format(HOSTS[1]),
    ],
    ids=["without workers", "a list that was cut", "both", "started again", "no list"],
)
def test_lost_nodes_that_tell_of_no_rank(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


def test_a_worker_of_verl_whose_end_its_driver_tells(tmp_path: Path) -> None:
    """Only its name says which process of the node it is, behind the label of who prints it."""
    stated = died(940, HOSTS[0]).replace("\tnamespace", "\tname: 07GxnAWorkerDict_0:3\n\tnamespace")
    front = "".join(f"(TaskRunner pid=61) {line}\n" for line in stated.splitlines())
    assert named(pasted(tmp_path, front)) == {3}, "the first node counts from 0"
    assert not named(pasted(tmp_path, front.replace("_0:3", "_1:3"))), "of how many each node has is not told"
    one_node = "(TaskRunner pid=61) {'trainer': {'n_gpus_per_node': 8, 'nnodes': 1}}\n"
    assert named(pasted(tmp_path, one_node + front)) == {3}
