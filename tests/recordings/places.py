"""Where a thread can be: call paths as py-spy and the recorder write them, innermost frame first."""

from __future__ import annotations

from tests.recordings.job import Frame

SITE = "/opt/venv/lib/python3.11/site-packages/"
LIB = "/usr/lib/python3.11/"
JOB = "/srv/job/pretrain.py"

Place = tuple[Frame, ...]

_MAIN: Place = (("main", JOB, 88), ("<module>", JOB, 97))
_LOGGED: Frame = ("_exception_logger.<locals>.wrapper", f"{SITE}torch/distributed/c10d_logger.py", 83)
_C10D = f"{SITE}torch/distributed/distributed_c10d.py"


def collective(name: str, line: int = 51) -> Place:
    """Inside a collective that the training step calls."""
    return ((name, _C10D, 2900), _LOGGED, ("train_step", JOB, line), *_MAIN)


ALL_REDUCE = collective("all_reduce")
BROADCAST = collective("broadcast", 63)
BARRIER = collective("barrier", 70)
RECV: Place = (("recv", _C10D, 2500), _LOGGED, ("run_stage", JOB, 40), *_MAIN)
SEND: Place = (("send", _C10D, 2440), _LOGGED, ("run_stage", JOB, 42), *_MAIN)
GRADIENT_HOOK: Place = (
    ("_engine_run_backward", f"{SITE}torch/autograd/graph.py", 979),
    ("backward", f"{SITE}torch/autograd/__init__.py", 395),
    ("Tensor.backward", f"{SITE}torch/_tensor.py", 623),
    ("train_step", JOB, 47),
    *_MAIN,
)
LOADER_QUEUE: Place = (
    ("_PollLikeSelector.select", f"{LIB}selectors.py", 415),
    ("wait", f"{LIB}multiprocessing/connection.py", 947),
    ("Queue.get", f"{LIB}multiprocessing/queues.py", 113),
    ("_MultiProcessingDataLoaderIter._try_get_data", f"{SITE}torch/utils/data/dataloader.py", 1291),
    ("_MultiProcessingDataLoaderIter._next_data", f"{SITE}torch/utils/data/dataloader.py", 1505),
    ("_BaseDataLoaderIter.__next__", f"{SITE}torch/utils/data/dataloader.py", 725),
    *_MAIN,
)
LOADER_WORKER: Place = (
    ("Shards.__getitem__", "/srv/job/shards.py", 27),
    ("_MapDatasetFetcher.fetch", f"{SITE}torch/utils/data/_utils/fetch.py", 52),
    ("_worker_loop", f"{SITE}torch/utils/data/_utils/worker.py", 349),
    ("BaseProcess.run", f"{LIB}multiprocessing/process.py", 108),
    ("BaseProcess._bootstrap", f"{LIB}multiprocessing/process.py", 314),
    *_MAIN,
)
CHECKPOINT: Place = (
    ("_open_zipfile_writer_file.__init__", f"{SITE}torch/serialization.py", 828),
    ("save", f"{SITE}torch/serialization.py", 1002),
    ("Trainer.snapshot", JOB, 60),
    *_MAIN,
)
FORWARD: Place = (
    ("Linear.forward", f"{SITE}torch/nn/modules/linear.py", 125),
    ("Module._call_impl", f"{SITE}torch/nn/modules/module.py", 1789),
    ("train_step", JOB, 44),
    *_MAIN,
)
HOST_CODE: Place = (("wait_for_license", "/srv/job/license.py", 12), *_MAIN)
OTHER_CODE: Place = (("shuffle_table", "/srv/job/table.py", 30), *_MAIN)
RENDEZVOUS: Place = (("init_process_group", _C10D, 1710), _LOGGED, *_MAIN)
TEARDOWN: Place = (("_shutdown", f"{LIB}threading.py", 1590),)
