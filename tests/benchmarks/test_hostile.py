"""What hostile files of 1 MB take of a processor and of memory, natively and in Python; the slowest and largest are printed."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics.bundle.artefact import Artefact
from forensics.ingest import discover
from forensics.ingest.flight_recorder import native as recorder_native
from forensics.ingest.kineto import native as trace_native
from tests.property import hostile, hostile_formats, hostile_lines

INGESTERS = {ingester.name: ingester for ingester in discover()}
SHOWN = 5


def files(kind: str) -> Iterator[tuple[str, str, str, bytes]]:
    """(name, ingester, file name, content)."""
    if kind == "dumps":
        yield from (
            (name, "flight_recorder", "dump", content) for name, content in (*hostile.pickles(), *hostile.recorder_json())
        )
    elif kind == "traces":
        yield from ((name, "kineto", "rank0.json", content) for name, content in hostile.traces())
    elif kind == "formats":
        yield from hostile_formats.formats()
    elif kind == "logs":
        for path, (ingester, head) in hostile_lines.HEADS.items():
            for word in hostile_lines.WORDS[:: int(os.environ.get("FORENSICS_BENCH_WORDS", "6"))]:
                yield (
                    f"long lines of {word!r}",
                    ingester,
                    path,
                    head + hostile.filled(hostile.filled(word.encode(), 4000) + b"\n", 1_000_000),
                )
                yield f"{word!r} on a line", ingester, path, head + hostile.filled(word.encode() + b"\n", 1_000_000)


@pytest.mark.parametrize("is_native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("kind", ["dumps", "traces", "logs", "formats"])
def test_hostile_files(kind: str, is_native: bool) -> None:
    if kind in ("logs", "formats") and not is_native:
        pytest.skip("there is one reader only")
    found = [(*_measured(ingester, path, content, is_native), name, ingester) for name, ingester, path, content in files(kind)]
    print(f"\n{kind}, {'native' if is_native else 'python'}: {len(found)} files of 1 MB")
    for place, unit in ((0, "slowest"), (1, "largest")):
        for seconds, megabytes, name, ingester in sorted(found, key=lambda row: row[place], reverse=True)[:SHOWN]:
            print(f"  {unit}: {seconds:5.2f} s {megabytes:5.0f} MB  {ingester}: {name}")


def _measured(ingester: str, path: str, content: bytes, is_native: bool) -> tuple[float, float]:
    """Processor time and memory beyond what the process had, in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if not is_native:
            recorder_native._library = lambda: None  # type: ignore[assignment]
            trace_native._library = lambda: None  # type: ignore[assignment]
        Path("/proc/self/clear_refs").write_text("5")
        before, start = _memory("VmRSS"), time.process_time()
        for item in INGESTERS[ingester].rows(
            Artefact(path, len(content), lambda: io.BytesIO(content), rank=0, rank_method="path")
        ):
            del item
        os.write(writing, f"{time.process_time() - start} {_memory('VmHWM') - before}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        seconds, megabytes = answer.read().split()
    return float(seconds), float(megabytes)


def _memory(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024
