"""Stage and wait from the structure of call paths, as real samplers write them."""

from __future__ import annotations

import pytest

from forensics.model import StageName, WaitKind
from forensics.rules.reductions.stacks.activity import activity
from forensics.rules.reductions.stacks.call_paths import CallPath, frame

SITE = "/opt/venv/lib/python3.11/site-packages/"
LIB = "/usr/lib/python3.11/"


def path(*frames: str) -> CallPath:
    """Innermost first: `function@file`; a bare file is the job's own."""
    return tuple(frame(name, filename, 10 + i) for i, (name, _, filename) in enumerate(f.partition("@") for f in frames))


TRAIN = ("train@/srv/job/train.py", "<module>@/srv/job/train.py")


@pytest.mark.parametrize(
    ("frames", "stage", "wait"),
    [
        (
            (
                f"select@{LIB}selectors.py",
                f"wait@{LIB}multiprocessing/connection.py",
                f"Connection.poll@{LIB}multiprocessing/connection.py",
                f"Queue.get@{LIB}multiprocessing/queues.py",
                f"_MultiProcessingDataLoaderIter._try_get_data@{SITE}torch/utils/data/dataloader.py",
                f"_BaseDataLoaderIter.__next__@{SITE}torch/utils/data/dataloader.py",
            ),
            StageName.DATA,
            WaitKind.DATA,
        ),
        (
            (f"_open_zipfile_writer_file.__init__@{SITE}torch/serialization.py", f"save@{SITE}torch/serialization.py"),
            StageName.CHECKPOINT,
            WaitKind.UNKNOWN,
        ),
        (
            (f"_engine_run_backward@{SITE}torch/autograd/graph.py", f"Tensor.backward@{SITE}torch/_tensor.py"),
            StageName.BACKWARD,
            WaitKind.UNKNOWN,
        ),
        (
            (f"Linear.forward@{SITE}torch/nn/modules/linear.py", f"Module._call_impl@{SITE}torch/nn/modules/module.py"),
            StageName.FORWARD,
            WaitKind.UNKNOWN,
        ),
        (
            (f"_single_tensor_adam@{SITE}torch/optim/adam.py", f"Adam.step@{SITE}torch/optim/adam.py"),
            StageName.OPTIMIZER,
            WaitKind.UNKNOWN,
        ),
        (
            (
                f"all_reduce@{SITE}torch/distributed/distributed_c10d.py",
                f"_exception_logger.<locals>.wrapper@{SITE}torch/distributed/c10d_logger.py",
            ),
            StageName.UNKNOWN,
            WaitKind.COLLECTIVE,
        ),
        ((f"recv@{SITE}torch/distributed/distributed_c10d.py",), StageName.UNKNOWN, WaitKind.POINT_TO_POINT),
        ((f"init_process_group@{SITE}torch/distributed/distributed_c10d.py",), StageName.INIT, WaitKind.STORE),
        ((f"destroy_process_group@{SITE}torch/distributed/distributed_c10d.py",), StageName.UNKNOWN, WaitKind.EXITING),
        ((f"_shutdown@{LIB}threading.py",), StageName.UNKNOWN, WaitKind.EXITING),
        (
            (f"Popen.poll@{LIB}multiprocessing/popen_fork.py", f"BaseProcess.join@{LIB}multiprocessing/process.py"),
            StageName.UNKNOWN,
            WaitKind.CHILD,
        ),
        ((f"synchronize@{SITE}torch/cuda/__init__.py",), StageName.UNKNOWN, WaitKind.DEVICE),
    ],
)
def test_library_frames_tell_stage_and_wait(frames: tuple[str, ...], stage: StageName, wait: WaitKind) -> None:
    found = activity(path(*frames, *TRAIN))
    assert (found.stage, found.wait) == (stage, wait)
    assert not found.by_words


def test_python_310_names_without_class_are_the_same_functions() -> None:
    qualified = activity(path(f"Condition.wait@{LIB}threading.py", *TRAIN))
    bare = activity(path(f"wait@{LIB}threading.py", *TRAIN))
    assert qualified.wait is bare.wait is WaitKind.LOCK


def test_forward_inside_evaluation_is_evaluation() -> None:
    module = f"Module._call_impl@{SITE}torch/nn/modules/module.py"
    assert activity(path(module, "validate@/srv/job/loop.py", *TRAIN)).stage is StageName.EVAL
    assert activity(path(module, f"Trainer.evaluate@{SITE}transformers/trainer.py", *TRAIN)).stage is StageName.EVAL


def test_recomputed_forward_is_backward() -> None:
    frames = path(
        f"Module._call_impl@{SITE}torch/nn/modules/module.py", f"_engine_run_backward@{SITE}torch/autograd/graph.py", *TRAIN
    )
    assert activity(frames).stage is StageName.BACKWARD


def test_data_loading_inside_evaluation_stays_data_loading() -> None:
    frames = path(f"_SingleProcessDataLoaderIter._next_data@{SITE}torch/utils/data/dataloader.py", "evaluate@/srv/job/a.py")
    assert activity(frames).stage is StageName.DATA


@pytest.mark.parametrize(
    ("function", "stage"),
    [
        ("load_batch", StageName.DATA),
        ("ShardReader.__next__", StageName.DATA),
        ("save_model_state", StageName.CHECKPOINT),
        ("writeCheckpoint", StageName.CHECKPOINT),
        ("average_gradients", StageName.BACKWARD),
        ("report_metrics", StageName.CALLBACKS),
        ("train_batch", StageName.UNKNOWN),
        ("process", StageName.UNKNOWN),
        ("update", StageName.UNKNOWN),
    ],
)
def test_words_of_the_job_are_the_last_resort(function: str, stage: StageName) -> None:
    assert activity(path(f"{function}@/srv/job/main.py", "<module>@/srv/job/main.py")).stage is stage


def test_structure_beats_words() -> None:
    frames = path(f"save@{SITE}torch/serialization.py", "load_batch@/srv/job/main.py")
    found = activity(frames)
    assert found.stage is StageName.CHECKPOINT
    assert not found.by_words


def test_a_forked_child_does_not_inherit_its_parents_stage() -> None:
    frames = path(
        "write_part@/srv/job/io.py",
        f"BaseProcess.run@{LIB}multiprocessing/process.py",
        f"BaseProcess._bootstrap@{LIB}multiprocessing/process.py",
        f"Popen._launch@{LIB}multiprocessing/popen_fork.py",
        f"DataLoader.__iter__@{SITE}torch/utils/data/dataloader.py",
        *TRAIN,
    )
    assert activity(frames).stage is StageName.UNKNOWN


@pytest.mark.parametrize(
    ("wchan", "wait"),
    [
        ("anon_pipe_read", WaitKind.IO),
        ("nfs_wait_bit_killable", WaitKind.IO),
        ("hrtimer_nanosleep", WaitKind.SLEEP),
        ("do_wait", WaitKind.CHILD),
        ("futex_do_wait", WaitKind.LOCK),
        ("0", WaitKind.UNKNOWN),
        (None, WaitKind.UNKNOWN),
    ],
)
def test_the_kernel_tells_what_python_does_not(wchan: str | None, wait: WaitKind) -> None:
    assert activity(path("fetch@/srv/job/main.py"), wchan).wait is wait


def test_a_checkout_of_a_trainer_is_a_library_wherever_it_lies() -> None:
    found = frame("evaluate", "/home/user/src/Megatron-LM/megatron/training/training.py", 1)
    assert (found.origin, found.module) == ("library", "megatron/training/training.py")
    own = frame("main", "/home/user/torch/train.py", 1)
    assert own.origin == "app"
