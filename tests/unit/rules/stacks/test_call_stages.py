"""The stage of a stuck call is that of the call, not of the place the host has come to since."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import create_autospec

import pytest

from forensics.model import StageName
from forensics.rules.reductions.calls.positions import Communicators, Operation
from forensics.rules.reductions.stacks.activity import activity
from forensics.rules.reductions.stacks.call_paths import CallPath, CallPaths, frame
from forensics.rules.reductions.stacks.recorded_stages import stage_of_path
from forensics.rules.reductions.stacks.samples import Sample, Stacks, StacksByRank
from forensics.rules.reductions.text.evidence_text import CallStages, EvidenceText
from forensics.rules.reductions.waits.graph import Wait
from forensics.rules.reductions.waits.sinks import wait_graph
from tests.recordings.collection import whole
from tests.recordings.job import Frame, Job
from tests.recordings.places import HOST_CODE
from tests.recordings.verdicts import verdict_of

SITE = "/opt/venv/lib/python3.11/site-packages/"
CALL = ("all_reduce", f"{SITE}torch/distributed/distributed_c10d.py", 2900)
GRADIENT = ("apply", f"{SITE}torch/autograd/function.py", 311)
MEGATRON = "/srv/src/Megatron-LM/megatron/core/"
P2P = f"{MEGATRON}pipeline_parallel/p2p_communication.py"
STEP = ("DistributedOptimizer.step", f"{MEGATRON}optimizer/distrib_optimizer.py", 9)
GATHER = ("_ParamAndGradBucketGroup.start_param_sync", f"{MEGATRON}distributed/param_and_grad_buffer.py", 240)
TRAIN = (("train_step", "/srv/job/train.py", 12), ("<module>", "/srv/job/train.py", 30))


def path(*frames: Frame) -> CallPath:
    return tuple(frame(name, file, line) for name, file, line in frames)


@pytest.mark.parametrize(
    ("frames", "stage"),
    [
        ((CALL, ("step", f"{SITE}torch/optim/adamw.py", 9), *TRAIN), StageName.OPTIMIZER),
        ((CALL, ("sum_shards", "/srv/job/layers.py", 9), GRADIENT), StageName.BACKWARD),
        ((CALL, ("reduce_bucket", "/srv/job/buckets.py", 9)), StageName.BACKWARD),
        ((CALL, ("sum_shards", "/srv/job/layers.py", 9), *TRAIN), StageName.UNKNOWN),
        ((CALL, ("beat", "/srv/job/health.py", 9), ("run", "/usr/lib/python3.11/threading.py", 9),
          ("_bootstrap", "/usr/lib/python3.11/threading.py", 9)), StageName.UNKNOWN),
        ((CALL, *[("deeper", "/srv/job/layers.py", line) for line in range(40)]), StageName.UNKNOWN),
        ((), StageName.UNKNOWN),
        ((CALL, ("P2PCommunicator.send_backward", P2P, 9), *TRAIN), StageName.BACKWARD),
        ((CALL, ("recv_forward", P2P, 9), *TRAIN), StageName.FORWARD),
        ((CALL, ("send_forward_recv_backward", P2P, 9), *TRAIN), StageName.UNKNOWN),
        ((CALL, ("PipelineEngine._exec_send_grads", f"{SITE}deepspeed/runtime/pipe/engine.py", 9), *TRAIN), StageName.BACKWARD),
        ((CALL, GATHER, STEP, *TRAIN), StageName.OPTIMIZER),
        ((CALL, GATHER, ("Module._call_impl", f"{SITE}torch/nn/modules/module.py", 9), *TRAIN), StageName.FORWARD),
    ],
    ids=["optimizer", "autograd function", "gradient hook", "own code", "another thread", "a path that was cut", "no frames",
         "gradients to the stage before", "activations of the stage before", "both at once", "a stage of DeepSpeed",
         "parameters after the step", "parameters before a layer"],
)  # fmt: skip
def test_stage_of_a_recorded_call(frames: tuple[Frame, ...], stage: StageName) -> None:
    assert stage_of_path(path(*frames)) is stage


def exchange(description: str, sender: int, receiver: int) -> Job:
    """Rank 0 to 3 in a line; one message never arrives, and the hosts have gone on."""
    job = Job(4, "nccl")
    job.steps(10)
    line = job.group(range(4), description)
    for _ in range(3):
        job.call(line, f"send {sender}->{receiver}", (sender,))
        job.call(line, f"recv {receiver}<-{sender}", (receiver,))
    job.call(line, f"send {sender}->{receiver}", (sender,), done=False)
    job.call(line, f"recv {receiver}<-{sender}", (receiver,), done=False)
    return job


@pytest.mark.parametrize(
    ("description", "sender", "receiver", "stage"),
    [
        ("PIPELINE_MODEL_PARALLEL_GROUP", 1, 2, StageName.FORWARD),
        ("mesh_pp", 2, 1, StageName.BACKWARD),
        ("mesh_pp", 3, 0, StageName.FORWARD),
        ("mesh_pp", 0, 2, StageName.UNKNOWN),
        ("context_parallel", 1, 2, StageName.UNKNOWN),
        ("copper", 1, 2, StageName.UNKNOWN),
    ],
)
def test_messages_of_a_pipeline_tell_their_direction(
    description: str, sender: int, receiver: int, stage: StageName, tmp_path: Path
) -> None:
    verdict = verdict_of(whole(exchange(description, sender, receiver), dict.fromkeys(range(4), HOST_CODE)).write(tmp_path))
    stages = {suspect.stage.name for suspect in verdict.suspects if set(suspect.ranks) == {sender, receiver}}
    assert stages == {stage}


@pytest.mark.parametrize(("ahead", "stage"), [((), StageName.OPTIMIZER), ((0, 1), StageName.UNKNOWN)])
def test_where_a_host_stands_is_the_stage_of_its_last_call_only(ahead: tuple[int, ...], stage: StageName) -> None:
    """No call path was recorded."""
    place = path(("step", f"{SITE}torch/optim/adamw.py", 9), *TRAIN)
    sample = Sample(0, 4, 4, True, False, activity(place), "s#thread=4")
    stages = CallStages(CallPaths({}), Communicators(()), StacksByRank(dict.fromkeys((0, 1), Stacks((sample,), (), ()))))
    wait = Wait("data", 7, dict.fromkeys((0, 1)), ())
    assert stages.of_wait(wait, (0, 1), ahead) is stage


NORM = ("clip_grad_norm_", f"{SITE}torch/nn/utils/clip_grad.py", 220)
SCHEDULE = ("step", f"{SITE}torch/distributed/pipelining/schedules.py", 90)
PASS = ("backward_one_chunk", f"{SITE}torch/distributed/pipelining/stage.py", 70)


@pytest.mark.parametrize(
    ("call", "host", "stage"),
    [
        ((CALL, *TRAIN), (NORM, *TRAIN), StageName.OPTIMIZER),
        ((CALL, ("train_step", "/srv/job/train.py", 11), TRAIN[1]), (NORM, *TRAIN), StageName.UNKNOWN),
        ((CALL, SCHEDULE, *TRAIN), (PASS, SCHEDULE, *TRAIN), StageName.UNKNOWN),
        ((CALL,), (NORM,), StageName.UNKNOWN),
    ],
    ids=["the line that makes the call", "another line", "a library makes the call and goes on", "no code of the job"],
)
def test_a_host_at_the_line_that_made_the_call_shows_its_stage(
    call: tuple[Frame, ...], host: tuple[Frame, ...], stage: StageName
) -> None:
    """The recorded path ends in the job's own code, which shows no stage."""
    sample = Sample(0, 4, 4, True, False, activity(path(*host)), "s#thread=4")
    stages = CallStages(CallPaths({7: path(*call)}), Communicators(()), StacksByRank({0: Stacks((sample,), (), ())}))
    operation = Operation("all_reduce", "[[1]]", 1000, 7, "dump#entry=3", order=3)
    assert stages.of_wait(Wait("world", 9, {0: operation}, ()), (0,)) is stage


def test_a_host_with_a_later_call_of_another_group_is_ahead() -> None:
    calls = {number: Operation("all_reduce", "[[4]]", 1000, None, f"dump#entry={number}", order=number) for number in (3, 4)}
    stuck, later = Wait("data", 7, {0: calls[3], 1: calls[3]}, ()), Wait("world", 9, {0: calls[4]}, (1,))
    text = create_autospec(EvidenceText, instance=True, graph=wait_graph([stuck, later]))
    assert EvidenceText._ahead(text, stuck) == {0}
    assert not EvidenceText._ahead(text, later)
