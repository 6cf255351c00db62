"""Which thread of a process runs the job, where the main one only serves the framework that started it.

Ray Train 2 calls the training function in a thread of its own, while the main thread stays in the loop of a worker
(`ray/train/v2/_internal/execution/worker_group/thread_runner.py`, ray 2.60). An asynchronous checkpoint of torch runs its
collectives in an executor (`torch/distributed/checkpoint/_async_thread_executor.py`), and the main thread waits for the future.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forensics.model import StageName, WaitKind
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.call_paths import Frame, application_frame


def working_thread(main: Sequence[Activity], threads: Mapping[int, Sequence[Activity]]) -> int | None:
    """The only thread with the job's own code in every sample, where the main one runs a single library in all of them.

    So where no sample shows a main one at all: somebody left it out. `threads` are the samples of each other thread of the
    process, by number. Of several with code of their own the one that communicates is taken; None where no one or more than
    one is left, or the main thread may run the job.
    """
    if main and all(map(_waits_for_future, main)) and (item := _communicating_item(threads, len(main))) is not None:
        return item
    if not all(map(_serves, main)):
        return None
    count = len(main) or max(map(len, threads.values()), default=0)
    own = {
        thread: samples
        for thread, samples in threads.items()
        if thread and len(samples) == count and all(application_frame(sample.path) for sample in samples)
    }
    communicating = [thread for thread, samples in own.items() if any(sample.waits_for_others for sample in samples)]
    left = communicating if len(own) > 1 else list(own)
    return left[0] if len(left) == 1 else None


def _waits_for_future(activity: Activity) -> bool:
    return any(_is_of(entry, "concurrent/futures/_base.py", "result") for entry in activity.python_path[:2])


def _communicating_item(threads: Mapping[int, Sequence[Activity]], count: int) -> int | None:
    """The only thread with an item of an executor, if it communicates in all `count` samples: the future is that item's.

    A thread that works is not taken: the wait for it is a stall of this process, and it need not be what is waited for.
    """
    items = {thread: samples for thread, samples in threads.items() if any(map(_runs_item, samples))}
    if len(items) != 1:
        return None
    ((thread, samples),) = items.items()
    communicates = all(_runs_item(sample) and sample.communicating for sample in samples)
    return thread if communicates and len(samples) == count else None


def _runs_item(activity: Activity) -> bool:
    return any(_is_of(entry, "concurrent/futures/thread.py", "run") for entry in activity.python_path)


def _is_of(entry: Frame, module: str, function: str) -> bool:
    return (entry.module, entry.function) == (module, function)


def _serves(activity: Activity) -> bool:
    """Whether a thread is in one library and in Python's own code alone, and in no stage of training."""
    if activity.stage is not StageName.UNKNOWN or activity.waits_for_others or activity.wait is WaitKind.EXITING:
        return False
    packages = {entry.module.partition("/")[0] for entry in activity.python_path if entry.origin == "library"}
    return len(packages) == 1 and "torch" not in packages and application_frame(activity.path) is None
