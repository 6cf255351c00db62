"""Telling the process of a rank from its children by what its main thread runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from forensics.ingest._shared.frames import Frame

# (function, end of its file): what surely is a worker, and how a rank itself is started by torch.multiprocessing.
_WORKERS = frozenset(
    {
        ("_worker_loop", "data/_utils/worker.py"),
        ("main", "_inductor/compile_worker/__main__.py"),
        # Processes that Python itself starts beside those of a job: they always sleep, whatever the job does.
        ("main", "multiprocessing/resource_tracker.py"),
        ("_run_server", "multiprocessing/managers.py"),
    }
)
# Its children keep its frames below their own `_bootstrap`.
_FORK_SERVER = frozenset({("main", "multiprocessing/forkserver.py")})
_LAUNCHED = frozenset({("_wrap", "torch/multiprocessing/spawn.py")})
_CHILDREN = frozenset({("_bootstrap", "multiprocessing/process.py")})


def is_child_by_stack(main: Iterable[Frame | None]) -> bool | None:
    """True for a worker or a process of Python's own, None for one of `multiprocessing`, which may be the rank; else False.

    A forked child still has its parent's frames below `_bootstrap`, so any place in the stack counts.
    """
    frames = [frame for frame in main if frame is not None]
    if any(_is(frame, _WORKERS) for frame in frames):
        return True
    if any(_is(frame, _LAUNCHED) for frame in frames):
        return False
    if any(_is(frame, _CHILDREN) for frame in frames):
        return None
    return any(_is(frame, _FORK_SERVER) for frame in frames)


def _is(frame: Frame, known: frozenset[tuple[str, str]]) -> bool:
    """Whether a frame is one of the known functions; names may be qualified (3.11 and later)."""
    name, filename, _ = frame
    if filename is None:
        return False
    parts = PurePosixPath(filename).parts
    return any(
        name.rpartition(".")[2] == function and parts[-end.count("/") - 1 :] == tuple(end.split("/")) for function, end in known
    )
