"""Records of a store of logs that somebody pasted into a ticket, as a block of Markdown: the lines that were logged.

They are a log of their own below the name of the text; what stands around them stays, with its lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO

from forensics.bundle.artefact import Artefact
from forensics.case.exported_logs import is_chat, lines_of_export, may_be_exported
from forensics.case.fired_alerts import MARKS as ALERTS

RECORDS = "records.log"
_FENCE = re.compile(rb" {0,3}(?P<mark>`{3,}|~{3,})(?:json|jsonl|ndjson)?\s*")
_RECORD = b'{"'


def recorded_blocks(artefact: Artefact, content: bytes) -> tuple[Artefact, ...]:
    """The text without such blocks, and the lines of all of them; nothing where it holds none."""
    if _RECORD not in content or (b"```" not in content and b"~~~" not in content):
        return ()
    lines = content.splitlines(keepends=True)
    found = [(begin, end, said) for begin, end in _blocks(lines) if (said := _logged(b"".join(lines[begin:end]))) is not None]
    if not found:
        return ()
    inside = {number for begin, end, _ in found for number in range(begin, end)}
    rest = b"".join(b"\n" if number in inside else line for number, line in enumerate(lines))
    logged = b"".join(said for *_, said in found)
    around = (_part(artefact, artefact.path, rest),) if rest.strip(b"`~ \t\r\n") else ()
    return (*around, _part(artefact, f"{artefact.path}/{RECORDS}", logged))


def _blocks(lines: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """First line and the one behind the last of each block."""
    mark, begin = b"", 0
    for number, line in enumerate(lines):
        if mark and line.strip().startswith(mark):
            yield begin, number
            mark = b""
        elif not mark and (fence := _FENCE.fullmatch(line)):
            mark, begin = fence["mark"], number + 1


def _logged(block: bytes) -> bytes | None:
    """The lines of an export; what alerts fired is read elsewhere, and people talk in a chat."""
    if not may_be_exported(block) or is_chat(block) or any(mark in block for mark in ALERTS):
        return None
    return lines_of_export(block)


def _part(artefact: Artefact, path: str, content: bytes) -> Artefact:
    return replace(artefact, path=path, open=partial(BytesIO, content), stored_bytes=len(content))
