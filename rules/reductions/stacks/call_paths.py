"""Call paths as tuples of frames, distinguished by origin: application, third-party library, standard library, interpreter."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.frame_form import PlainFrame, function_name, is_native, plain_frame

_SITE = re.compile(r"(?:^|.*/)(?:site-packages|dist-packages)/")
_STDLIB = re.compile(r"(?:^|.*/)lib(?:64)?/python3(?:\.\d+)?t?/(?!site-packages|dist-packages)|^<frozen ")
# Trainers are often run from a checkout: known by package and sub-package, wherever the tree lies.
_SOURCE_TREE = re.compile(
    r"(?:^|.*/)(?=(?:torch/(?:distributed|nn|optim|utils|autograd|cuda|_dynamo|_inductor)|torch/(?:serialization|_tensor)\.py"
    r"|megatron/(?:core|training|legacy|energon)|deepspeed/(?:runtime|comm|checkpoint)|transformers/trainer"
    r"|(?:lightning/pytorch|pytorch_lightning|lightning/fabric)/|accelerate/(?:accelerator|data_loader|checkpointing|utils)))"
)
# What is left of an installed package where a sampler cut its path at `sys.path`: packages that the patterns of stages know.
_SHORTENED = re.compile(
    r"(?:torch|torchvision|triton|numpy|megatron|deepspeed|transformers|lightning|pytorch_lightning|accelerate|datasets|safetensors"
    r"|filelock|urllib3|requests|botocore|boto3|s3fs|fsspec|aiohttp|gcsfs|wandb|mlflow|apex|bitsandbytes|webdataset|torchdata|ray|trl|vllm|jax|flax|optax|orbax|grain)/"
)
# A sampler that shortened the path leaves only the module's tail; these are the stdlib modules that stacks end in.
_STDLIB_MODULES = frozenset(
    {
        *(f"{name}.py" for name in sys.stdlib_module_names),
        *(f"{package}/{name}.py" for package, name in (
            ("multiprocessing", "connection"), ("multiprocessing", "popen_fork"), ("multiprocessing", "popen_spawn_posix"),
            ("multiprocessing", "popen_forkserver"), ("multiprocessing", "process"), ("multiprocessing", "queues"),
            ("multiprocessing", "spawn"), ("multiprocessing", "forkserver"), ("multiprocessing", "synchronize"),
            ("multiprocessing", "util"), ("multiprocessing", "pool"), ("concurrent/futures", "thread"),
            ("concurrent/futures", "process"), ("concurrent/futures", "_base"), ("importlib", "_bootstrap"),
            ("logging", "__init__"), ("asyncio", "base_events"), ("asyncio", "runners"), ("json", "decoder"),
        )),
    }
)  # fmt: skip

_COLLECTIVES_OF_TORCH = re.compile(r"/(?:distributed_c10d|c10d_logger)\.py$")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: function, module path below its root (`torch/serialization.py`), line, and origin.

    `origin` is `app` for code of the job, `library` for installed packages, `stdlib` for Python's own and `native` for
    what is not Python at all.
    """

    name: str
    module: str
    line: int | None
    origin: str

    @property
    def function(self) -> str:
        """Last component of a qualified name: `Condition.wait` and `wait` are the same function."""
        return function_name(self.name)

    @property
    def plain(self) -> PlainFrame:
        """The frame as frames of different samplers are compared."""
        return plain_frame(self.name, self.module, self.line)

    def __str__(self) -> str:
        tail = self.module.rsplit("/", 1)[-1]
        where = f"{tail}:{self.line}" if self.line else tail
        return f"{self.name} ({where})" if where else self.name


CallPath = tuple[Frame, ...]
CallPaths = NewType("CallPaths", Mapping[int, CallPath])
"""Call paths of operations that somebody waits in or that are mismatched, by id."""


def call_paths(connection: DuckDBPyConnection, wanted: Iterable[int]) -> Mapping[int, CallPath]:
    """Read call paths (innermost frame first) by id."""
    import numpy as np

    ids = np.array(sorted(set(wanted)), dtype=np.int64)
    if not len(ids):
        return {}
    connection.register("wanted_paths", {"call_path": ids})
    rows = connection.execute(
        """
        SELECT call_path, name, filename, line
        FROM (SELECT DISTINCT call_path, depth, frame FROM call_paths JOIN wanted_paths USING (call_path))
        JOIN (SELECT DISTINCT frame, name, filename, line FROM frames) USING (frame)
        ORDER BY call_path, depth
        """
    ).fetchall()
    connection.unregister("wanted_paths")
    paths: dict[int, list[Frame]] = defaultdict(list)
    for call_path, name, filename, line in rows:
        paths[call_path].append(frame(name, filename or "", line))
    return {call_path: tuple(frames) for call_path, frames in paths.items()}


def frame(name: str, filename: str, line: int | None) -> Frame:
    """Normalise one frame as a sampler or the recorder wrote it."""
    if is_native(name, filename, line):
        return Frame(name, filename.lstrip("/"), line, "native")
    installed = _SITE.match(filename)
    if installed:
        return Frame(name, filename[installed.end() :], line, "library")
    standard = _STDLIB.match(filename)
    if standard:
        return Frame(name, filename[standard.end() :].rstrip(">"), line, "stdlib")
    known = _SOURCE_TREE.match(filename)
    if known:
        return Frame(name, filename[known.end() :], line, "library")
    if not filename.startswith("/") and filename in _STDLIB_MODULES:
        return Frame(name, filename, line, "stdlib")
    if _SHORTENED.match(filename):
        return Frame(name, filename, line, "library")
    return Frame(name, filename.lstrip("/"), line, "app")


def own_frames(path: CallPath) -> CallPath:
    """Cut the frames that a forked child inherited from its parent: everything outside the child's `_bootstrap`."""
    for index, entry in enumerate(path):
        if entry.function == "_bootstrap" and entry.module.endswith("multiprocessing/process.py"):
            return path[: index + 1]
    return path


def application_frame(path: CallPath) -> Frame | None:
    """Return the innermost frame of the job's own code."""
    return next((entry for entry in path if entry.origin == "app"), None)


def called_by(path: CallPath, other: CallPath) -> bool:
    """Whether the job's own code makes the call of `path` itself, by the very lines that `other` leads through."""
    own = [place for place, entry in enumerate(path) if entry.origin == "app"]
    is_direct = bool(own) and all(_COLLECTIVES_OF_TORCH.search(entry.module) for entry in path[: own[0]])
    return is_direct and [path[place] for place in own] == [entry for entry in other if entry.origin == "app"]
