"""No file takes a reader's time or memory, whoever made it: small ones in the default run, of a megabyte in the slow one.

The bounds are those of a blow-up, not of speed: each file is read in a process of its own that the system ends after some
seconds of processor time. tests/benchmarks/test_hostile.py prints what each file takes.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import resource
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from forensics.bundle.artefact import Artefact
from forensics.bundle.streams import content_opener
from forensics.ingest import discover
from forensics.ingest.flight_recorder import native as recorder_native
from forensics.ingest.interface import Batch, Identity, Problem
from forensics.ingest.kineto import native as trace_native
from tests.property import hostile, hostile_formats, hostile_lines

SMALL = 20_000
SECONDS = 10
MEMORY = 192 << 20
STATM = Path("/proc/self/statm")
INGESTERS = {ingester.name: ingester for ingester in discover()}
File = tuple[str, str, bytes]


def recorder_files(size: int) -> Iterator[File]:
    for _, content in (*hostile.pickles(size), *hostile.recorder_json(size)):
        yield "flight_recorder", "dump", content


def trace_files(size: int) -> Iterator[File]:
    for _, content in hostile.traces(size):
        yield "kineto", "rank0.pt.trace.json", content


def log_files(size: int) -> Iterator[File]:
    """All words in one file: long lines of each, and each on lines of its own."""
    lines = [hostile.filled(word.encode(), size // 250) + b"\n" for word in hostile_lines.WORDS]
    own = [hostile.filled(word.encode() + b"\n", size // 500) for word in hostile_lines.WORDS]
    for path, (name, head) in hostile_lines.HEADS.items():
        yield name, path, head + b"".join(lines)
        yield name, path, head + b"".join(own)
        yield name, path, head + b"a\n" * (size // 10)


def packed_files(size: int) -> Iterator[File]:
    for _, path, content in hostile.packed(size):
        if not path.endswith(".tar"):
            yield "kineto", path, content


def grown_samples(size: int) -> Iterator[File]:
    for name, path, content in islice(hostile.grown(size), 0, None, 5):
        yield name.split("/")[0], path, content


def widened_samples(size: int) -> Iterator[File]:
    for name, path, content in islice(hostile.documents(size), 0, None, 9):
        yield name.split("/")[0], path, content


def other_files(size: int) -> Iterator[File]:
    for _, name, path, content in hostile_formats.formats(size):
        yield name, path, content


FILES: dict[str, Callable[[int], Iterable[File]]] = {
    "dumps": recorder_files,
    "traces": trace_files,
    "logs": log_files,
    "packed": packed_files,
    "formats": other_files,
    "samples grown": grown_samples,
    "samples widened": widened_samples,
}


# Several formats, and every sample of the repository: the slowest by far.
_MANY = ("formats", "samples grown")


def read(file: File) -> None:
    name, path, content = file
    opener = content_opener(lambda: io.BytesIO(content), len(content))
    for item in INGESTERS[name].rows(Artefact(path, len(content), opener, rank=0, rank_method="path")):
        assert isinstance(item, (Batch, Identity, Problem))


@pytest.fixture
def shared_heap() -> Iterator[None]:
    """A child that collects garbage copies no page of what was there before it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def survives(file: File, is_native: bool) -> bool:
    """Whether a process that is given so much time and memory comes to the end of the file."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            used = int(STATM.read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            if not is_native:
                recorder_native._library = lambda: None  # type: ignore[assignment]
                trace_native._library = lambda: None  # type: ignore[assignment]
            read(file)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.usefixtures("shared_heap")
@pytest.mark.skipif(not STATM.exists(), reason="memory is bounded on Linux only")
@pytest.mark.parametrize("is_native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in _MANY else kind for kind in FILES])
@pytest.mark.parametrize("size", [SMALL, pytest.param(hostile.SIZE, marks=pytest.mark.slow)])
def test_no_file_takes_a_readers_time_or_memory(size: int, kind: str, is_native: bool) -> None:
    if not is_native and kind not in ("dumps", "traces"):
        pytest.skip("there is one reader only")
    failed = [
        (name, path, content[:60])
        for name, path, content in FILES[kind](size)
        if not survives((name, path, content), is_native)
    ]
    assert failed == []


@pytest.mark.parametrize("seed", ["1", "2"])
def test_numbers_do_not_depend_on_the_key_of_a_hash(seed: str) -> None:
    """Keys are drawn anew for every file that is read: what comes out is the same."""
    rows = [{"profiling_name": "nccl:all_reduce", "state": f"{seed}{number % 37}"} for number in range(500)]
    content = pickle.dumps({"version": "2.10", "entries": rows}, 2)
    found = []
    for _ in range(2):
        with recorder_native.open_dump(content) as native:
            if native is None:
                pytest.skip("no native library")
            found.append(native.entries.columns["state"].values.tolist())
    assert found[0] == found[1] and sorted(set(found[0]), key=found[0].index) == sorted(set(found[0]))
