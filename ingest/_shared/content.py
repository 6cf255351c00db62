"""Reading an artefact: whole, within a limit, or line by line with bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import orjson

from forensics.bundle.artefact import Artefact
from forensics.bundle.redaction import redact
from forensics.bundle.streams import OversizedMember, chunks
from forensics.ingest._shared.values import text
from forensics.ingest.interface import Problem

MAX_DOCUMENT_BYTES = 1 << 30
MAX_LINE_BYTES = 1 << 16
TAIL_BYTES = 1 << 13
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f]")


def from_first_character(head: bytes) -> bytes:
    """The content without a byte order mark and white space in front."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")


def read_document(artefact: Artefact) -> bytes | Problem:
    """The whole content, or why it cannot be had; compressed content that is cut is given as far as it goes.

    Content that expands beyond the limits is refused as a whole: what it would have said cannot be known.
    """
    parts: list[bytes] = []
    size = 0
    too_large = Problem(f"larger than {MAX_DOCUMENT_BYTES} bytes; not read", f"byte={MAX_DOCUMENT_BYTES}", fatal=True)
    if artefact.stored_bytes > MAX_DOCUMENT_BYTES:
        return too_large
    try:
        with artefact.open() as stream:
            for chunk in chunks(stream):
                parts.append(chunk)
                size += len(chunk)
                if size > MAX_DOCUMENT_BYTES:
                    return too_large
    except OSError as error:
        if not parts or isinstance(error, OversizedMember):
            return Problem(f"cannot be read: {error}", "byte=0", fatal=True)
    return b"".join(parts)


def read_json(artefact: Artefact) -> Any | Problem:
    """The parsed JSON document, or a fatal Problem with the byte where it stops being JSON."""
    content = read_document(artefact)
    return content if isinstance(content, Problem) else parse_json(content)


def read_object(artefact: Artefact, schema: str | None = None) -> Generator[Problem, None, dict[str, Any] | None]:
    """A JSON document that must be an object, else None; what is wrong is yielded, another schema than the known one too."""
    value = read_json(artefact)
    if not isinstance(value, dict):
        yield value if isinstance(value, Problem) else Problem("not a JSON object", "byte=0", fatal=True)
        return None
    if schema is not None and value.get("schema") != schema:
        yield Problem(f"schema {text(value.get('schema'))} is not {schema}; read as far as its keys are known")
    return value


def parse_json(content: bytes) -> Any | Problem:
    """JSON text (a byte-order mark is skipped) as a value, or a fatal Problem with its position."""
    try:
        return orjson.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        if not content.strip():
            return Problem("empty", "byte=0", fatal=True)
        return Problem(f"not valid JSON: {error.msg}", f"byte={len(error.doc[: error.pos].encode())}", fatal=True)


def last_lines(artefact: Artefact, count: int) -> list[str]:
    """The last lines that are not blank, without terminal escapes and private keys; empty where not all can be read."""
    tail = b""
    try:
        with artefact.open() as stream:
            if stream.seekable():
                stream.seek(max(0, artefact.stored_bytes - TAIL_BYTES))
            for chunk in chunks(stream):
                tail = (tail + chunk)[-TAIL_BYTES:]
    except OSError:
        return []
    if b"PRIVATE KEY" in tail:  # known by its first and last line, which may not be among those that are kept
        tail = redact(tail.decode("latin-1"), Counter()).encode("latin-1")
    pieces = (_ESCAPES.sub(b"", piece).decode("utf-8", "replace").rstrip() for piece in re.split(rb"[\r\n]+", tail))
    return [piece for piece in pieces if piece][-count:]


class Lines:
    """Lines from 1 without terminal escapes; a longer one is cut at `MAX_LINE_BYTES`, a carriage return starts a new part.

    When the content cannot be read to its end the iteration stops there, and `problem` says so.
    """

    def __init__(self, artefact: Artefact) -> None:
        self._artefact = artefact
        self.problem: Problem | None = None

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """(number, line) of each line; the parts of one line share its number."""
        number = 0
        try:
            with self._artefact.open() as stream:
                while line := stream.readline(MAX_LINE_BYTES):
                    number += 1
                    rest = line
                    while len(rest) == MAX_LINE_BYTES and not rest.endswith(b"\n"):
                        rest = stream.readline(MAX_LINE_BYTES)
                    text = line.rstrip(b"\r\n").decode("utf-8", "replace")
                    if text.isprintable():
                        yield number, text
                        continue
                    for part in line.rstrip(b"\r\n").split(b"\r"):
                        yield number, _ESCAPES.sub(b"", part).decode("utf-8", "replace")
        except OSError as error:
            self.problem = Problem(f"cannot be read any further: {error}", f"line={number + 1}", fatal=True)
