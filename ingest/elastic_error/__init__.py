"""error.json: the error by which a process of torchrun ended, as `@record` writes it (docs/formats/elastic-error.md).

Upstream: torch/distributed/elastic/multiprocessing/errors/error_handler.py, torch 1.9 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import from_first_character, read_object
from forensics.ingest._shared.values import integer, text
from forensics.ingest.interface import Batch, Ingester, Item, Problem

_MARKS = (b'"py_callstack"', b'"extraInfo"', b'"timestamp"', b'"errorCode"')
_TYPE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?=: |\n|$)")
_FRAME = re.compile(r'  (File "[^"\n]{1,4096}", line \d{1,7}, in \S{1,256})')
_MAX_FRAMES = 64
_MAX_TEXT = 4096


def sniff(head: bytes, path: str) -> int:
    """A JSON object that begins with a message, and holds what torch puts beside it or is called as torch calls it."""
    begins = re.match(rb'\{\s*"message"\s*:', from_first_character(head)) is not None
    return 80 if begins and (path.endswith("error.json") or any(mark in head for mark in _MARKS)) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """The error and its frames, one event each; by writing it the process ended."""
    document = yield from read_object(artefact)
    if document is None:
        return
    stated = document.get("message")
    said = stated if isinstance(stated, dict) else document
    message = text(said.get("message"))
    if not message:
        yield Problem("no message", fatal=True)
        return
    extra = said.get("extraInfo")
    beside = extra if isinstance(extra, dict) else said
    yield _batch(message, _frames(beside.get("py_callstack")), integer(beside.get("timestamp")))


def _batch(message: str, frames: list[str], seconds: int | None) -> Batch:
    kind = _TYPE.match(message)
    found = [("fatal_error", message[:_MAX_TEXT])]
    found = ([("traceback", "\n".join(frames))] if frames else []) + found
    same: dict[str, Any] = {"locator": 1, "time_ns": seconds and seconds * 1_000_000_000, "subject": kind[0] if kind else None}
    columns: dict[str, list[Any]] = {name: [value] * len(found) for name, value in same.items()}
    return Batch("log_events", {**columns, "kind": [kind for kind, _ in found], "text": [said for _, said in found]})


def _frames(stack: object) -> list[str]:
    """Frames of a stack that torch wrote as one text, or of its first releases as a list of texts."""
    lines = "".join(map(str, stack)) if isinstance(stack, list) else stack if isinstance(stack, str) else ""
    return _FRAME.findall(lines[: 1 << 20])[-_MAX_FRAMES:]


INGESTER = Ingester("elastic_error", "elastic_error", sniff, rows, most=80)
