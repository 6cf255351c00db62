"""Stage and wait from the structure of call paths, as real samplers write them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.model import Component, StageName, WaitKind
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
        ((f"_CoalescingManager.wait@{SITE}torch/distributed/distributed_c10d.py",), StageName.UNKNOWN, WaitKind.COLLECTIVE),
        ((f"_verify_param_shape_across_processes@{SITE}torch/distributed/utils.py",), StageName.UNKNOWN, WaitKind.COLLECTIVE),
        ((f"_sync_buffers@{SITE}torch/nn/parallel/distributed.py",), StageName.FORWARD, WaitKind.COLLECTIVE),
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
        ((f"ArrayImpl._value@{SITE}jax/_src/array.py",), StageName.UNKNOWN, WaitKind.DEVICE),
        (
            (
                f"ExecuteReplicated.__call__@{SITE}jax/_src/interpreters/pxla.py",
                f"sync_global_devices@{SITE}jax/experimental/multihost_utils.py",
            ),
            StageName.UNKNOWN,
            WaitKind.COLLECTIVE,
        ),
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


@pytest.mark.parametrize(
    ("around", "stage"),
    [
        (("evaluate@/srv/job/a.py",), StageName.EVAL),
        (("Trainer.validate@/srv/job/a.py",), StageName.EVAL),
        (("train_and_evaluate@/srv/job/a.py",), StageName.FORWARD),
        (("train_epoch@/srv/job/a.py", "evaluate@/srv/job/a.py"), StageName.FORWARD),
        (("forward_backward_step@/srv/job/a.py",), StageName.FORWARD),
    ],
)
def test_a_forward_pass_with_names_of_its_own_is_of_the_evaluation_around_it(around: tuple[str, ...], stage: StageName) -> None:
    module = f"Module._call_impl@{SITE}torch/nn/modules/module.py"
    assert (
        activity(path("Block.forward@/srv/job/net.py", module, "Net.forward@/srv/job/net.py", module, *around)).stage is stage
    )


def test_data_loading_inside_evaluation_stays_data_loading() -> None:
    frames = path(f"_SingleProcessDataLoaderIter._next_data@{SITE}torch/utils/data/dataloader.py", "evaluate@/srv/job/a.py")
    assert activity(frames).stage is StageName.DATA


@pytest.mark.parametrize(
    ("function", "stage"),
    [
        ("load_batch", StageName.DATA),
        ("load_microbatch", StageName.DATA),
        ("receive_microbatch", StageName.UNKNOWN),
        ("wait_for_microbatches", StageName.UNKNOWN),
        ("next_sequences", StageName.DATA),
        ("all_sequences_done", StageName.UNKNOWN),
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


@pytest.mark.parametrize(
    ("file", "stage"),
    [("train_ckpt.py", StageName.UNKNOWN), ("ckpt_writer.py", StageName.CHECKPOINT)],
    ids=["script", "module"],
)
def test_the_name_of_the_script_tells_no_stage(file: str, stage: StageName) -> None:
    frames = path(f"loop@/srv/job/{file}", "fit@/srv/job/train_ckpt.py", "<module>@/srv/job/train_ckpt.py")
    assert activity(frames).stage is stage


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
        ("locks_lock_inode_wait", WaitKind.FILE_LOCK),
        ("flock_lock_inode_wait", WaitKind.FILE_LOCK),
        ("fcntl_setlk", WaitKind.FILE_LOCK),
        ("nfs4_proc_setlk", WaitKind.FILE_LOCK),
        ("nlmclnt_block", WaitKind.FILE_LOCK),
        ("ldlm_flock_completion_ast", WaitKind.FILE_LOCK),
        ("ldlm_completion_ast", WaitKind.UNKNOWN),
        ("nfs4_delay_interruptible", WaitKind.IO),
        ("folio_lock", WaitKind.UNKNOWN),
        ("wait_woken", WaitKind.IO),
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


BACKWARD = (
    f"_engine_run_backward@{SITE}torch/autograd/graph.py",
    f"backward@{SITE}torch/autograd/__init__.py",
    f"Tensor.backward@{SITE}torch/_tensor.py",
)
GATHER = (f"all_gather_object@{SITE}torch/distributed/distributed_c10d.py", "collect@/srv/job/train.py", *TRAIN)


def test_the_futex_of_the_autograd_engine_is_no_lock() -> None:
    found = activity(path(*BACKWARD, *TRAIN), "futex_do_wait")
    assert (found.wait, found.waits_for_others) == (WaitKind.UNKNOWN, True)


def test_a_lock_that_a_hook_below_the_engine_waits_for_is_a_lock() -> None:
    found = activity(path("clip_hook@/srv/job/hooks.py", *BACKWARD, *TRAIN), "futex_do_wait")
    assert (found.wait, found.waits_for_others) == (WaitKind.LOCK, False)


@pytest.mark.parametrize(
    ("native", "wait"),
    [
        ("c10d::ProcessGroupGloo::RecvWork::wait", WaitKind.POINT_TO_POINT),
        ("c10d::ProcessGroupGloo::SendWork::wait", WaitKind.POINT_TO_POINT),
        ("_ZN4c10d16ProcessGroupGloo8RecvWork4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE", WaitKind.POINT_TO_POINT),
        ("c10d::Work::wait", WaitKind.COLLECTIVE),
        ("c10d::ProcessGroupNCCL::WorkNCCL::synchronizeInternal", WaitKind.COLLECTIVE),
        ("ncclGroupEnd", WaitKind.COLLECTIVE),
        ("c10d::TCPStore::doWait", WaitKind.STORE),
        ("lock_PyThread_acquire_lock", WaitKind.LOCK),
        ("fcntl_flock_impl", WaitKind.FILE_LOCK),
        ("tokenizers::encode", WaitKind.LOCK),
    ],
)
def test_native_frames_tell_what_a_handle_waits_for(native: str, wait: WaitKind) -> None:
    frames = path("pthread_cond_timedwait@libc.so.6", f"{native}@libtorch_cpu.so", *TRAIN)
    assert activity(tuple(replace(entry, origin="native") for entry in frames[:2]) + frames[2:], "futex_do_wait").wait is wait


def compiled(*functions: str) -> CallPath:
    """A stack of a program in C++, innermost first."""
    return tuple(replace(entry, origin="native") for entry in path(*(f"{name}@trainer" for name in functions)))


@pytest.mark.parametrize(
    ("functions", "wait"),
    [
        (("clock_gettime", "cuStreamSynchronize", "ft::ftNcclAllReduceSum<__half>", "main"), WaitKind.COLLECTIVE),
        (("cudaEventSynchronize", "Comm::nccl_all_gather", "main"), WaitKind.COLLECTIVE),
        (("cudaStreamSynchronize", "Engine::forward", "main"), WaitKind.DEVICE),
        (("cudaStreamSynchronize", "Engine::loadNcclConfig", "main"), WaitKind.DEVICE),
        (("poll", "opal_progress", "PMPI_Allreduce", "main"), WaitKind.COLLECTIVE),
        (("poll", "MPI_Barrier", "main"), WaitKind.COLLECTIVE),
        (("opal_progress", "PMPI_Sendrecv", "main"), WaitKind.POINT_TO_POINT),
        (("poll", "MPI_Init_thread", "main"), WaitKind.UNKNOWN),
        (("read", "std::istream::read", "loadTable", "main"), WaitKind.UNKNOWN),
    ],
)
def test_what_a_program_in_another_language_waits_for(functions: tuple[str, ...], wait: WaitKind) -> None:
    assert activity(compiled(*functions)).wait is wait


def test_native_frames_of_an_outer_call_tell_nothing_of_the_inner_one() -> None:
    outer = replace(path("c10d::Reducer::finalize_backward@libtorch_cpu.so")[0], origin="native")
    found = activity((*path("hook@/srv/job/hooks.py"), outer, *path(*TRAIN)))
    assert (found.wait, found.unframed) == (WaitKind.UNKNOWN, True)


def test_a_wait_below_the_jobs_own_code_has_no_frame() -> None:
    assert activity(path(*TRAIN), "futex_do_wait").unframed
    assert activity(path(*TRAIN)).unframed
    assert not activity(path(*TRAIN), "hrtimer_nanosleep").unframed
    assert not activity(path(f"Condition.wait@{LIB}threading.py", *TRAIN), "futex_do_wait").unframed


def test_a_futex_with_a_date_below_the_jobs_own_code_is_the_wait_of_a_work_handle() -> None:
    assert activity(path(*TRAIN), "futex_do_wait", deadline=True).wait is WaitKind.POINT_TO_POINT
    assert activity(path(*TRAIN), "futex_do_wait").wait is WaitKind.LOCK
    assert activity(path(f"Condition.wait@{LIB}threading.py", *TRAIN), "futex_do_wait", deadline=True).wait is WaitKind.LOCK


@pytest.mark.parametrize(
    "inner",
    [
        (f"_object_to_tensor@{SITE}torch/distributed/distributed_c10d.py",),
        (f"_tensor_to_object@{SITE}torch/distributed/distributed_c10d.py",),
        ("Plan.__getstate__@/srv/job/plan.py", f"_object_to_tensor@{SITE}torch/distributed/distributed_c10d.py"),
        (f"Tensor.__reduce_ex__@{SITE}torch/_tensor.py", f"_object_to_tensor@{SITE}torch/distributed/distributed_c10d.py"),
    ],
)
def test_turning_an_object_into_bytes_is_work_of_the_host(inner: tuple[str, ...]) -> None:
    found = activity(path(*inner, *GATHER))
    assert (found.wait, found.communicating, found.component) == (WaitKind.UNKNOWN, False, Component.HOST)


def test_the_lock_that_pickling_waits_for_is_a_lock() -> None:
    frames = (f"Condition.wait@{LIB}threading.py", "Plan.__reduce__@/srv/job/plan.py")
    found = activity(path(*frames, f"_object_to_tensor@{SITE}torch/distributed/distributed_c10d.py", *GATHER))
    assert found.wait is WaitKind.LOCK


def test_the_exchange_of_objects_is_communication() -> None:
    assert activity(path(f"all_gather@{SITE}torch/distributed/distributed_c10d.py", *GATHER)).wait is WaitKind.COLLECTIVE
    assert activity(path(*GATHER)).wait is WaitKind.COLLECTIVE


@pytest.mark.parametrize(
    ("inner", "wchan", "wait"),
    [
        ("_wait_batch_p2p", "futex_do_wait", WaitKind.POINT_TO_POINT),
        ("Schedule1F1B._step_microbatches", "futex_do_wait", WaitKind.POINT_TO_POINT),
        ("Schedule1F1B._step_microbatches", None, WaitKind.UNKNOWN),
    ],
    ids=["function for it", "loop of its own", "work"],
)
def test_a_schedule_that_sleeps_waits_for_a_message(inner: str, wchan: str | None, wait: WaitKind) -> None:
    """Not for a lock, and not while it works: a schedule holds no lock, and what it sleeps in are the works of its messages."""
    frames = (f"{inner}@{SITE}torch/distributed/pipelining/schedules.py", *TRAIN)
    assert activity(path(*frames), wchan).wait is wait


def test_a_lock_of_the_model_is_one_below_a_schedule_too() -> None:
    below = (
        "Block.forward@/srv/job/blocks.py",
        f"ScheduleGPipe._step_microbatches@{SITE}torch/distributed/pipelining/schedules.py",
    )
    assert activity(path(*below, *TRAIN), "futex_do_wait").wait is WaitKind.LOCK
