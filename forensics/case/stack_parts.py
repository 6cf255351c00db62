"""Stacks that somebody pasted into a ticket beside a log or a table, below lines that say whose they are.

The reader of a job's log takes the dumps that the job itself wrote, of ranks that its own lines or its processes name. What a
person writes above a stack ("rank 3:", `py-spy dump --pid 88` below it) it does not know: those stacks, and the lines that say
whose they are, make an artefact of their own. Where that reader knows any of them, all are left to it: none counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO

from forensics.bundle.artefact import Artefact
from forensics.ingest import SNIFF_BYTES, choose, discover
from forensics.ingest._shared.dump_times import time_in
from forensics.ingest._shared.stack_frames import frame
from forensics.ingest._shared.stack_headings import heading_of
from forensics.ingest._shared.stack_text import PROCESS, begins_alone, header
from forensics.ingest.interface import Batch

_MARKS = (b"Process ", b"hread ")
# Between what says whose a stack is and its first line: a fence, the command, its date.
_MOST_BETWEEN = 8
_LONGEST_DATE = 40
_DAYS = ("Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun ")


def stack_part(artefact: Artefact, lines: Sequence[bytes]) -> Iterator[Artefact]:
    """The stacks of a text below the first line that names a rank, without what stands around them; none without such lines."""
    if not any(mark in line for line in lines for mark in _MARKS):
        return
    texts = [line.decode("utf-8", "replace").rstrip() for line in lines]
    begin = _first_named(texts)
    if begin is None:
        return
    kept = b"".join(line if _is_of_stacks(text) else b"\n" for line, text in zip(lines[begin:], texts[begin:], strict=True))
    part = replace(artefact, open=partial(BytesIO, kept), stored_bytes=len(kept), sha256=None, lines_before=begin)
    found = choose(kept[:SNIFF_BYTES], artefact.path)
    if found is not None and found.name == "python_stacks_text" and not _knows_stacks(part, b"".join(lines[begin:])):
        yield part


def _first_named(texts: Sequence[str]) -> int | None:
    """The first line that names the rank of a stack which begins just below it."""
    named: int | None = None
    for number, text in enumerate(texts):
        if PROCESS.match(text) or begins_alone(text):
            if named is not None and number - named <= _MOST_BETWEEN:
                return named
        elif (heading := heading_of(text)) is not None:
            named = number if heading.rank is not None else None if heading.is_others else named
    return None


def _is_of_stacks(text: str) -> bool:
    if not text:
        return True
    is_date = text.startswith(_DAYS) and len(text) <= _LONGEST_DATE and time_in(text) is not None
    known = PROCESS.match(text) or begins_alone(text) or header(text, 0, None) or frame(text) or heading_of(text)
    return is_date or bool(known) or text.startswith("Python v")


def _knows_stacks(part: Artefact, content: bytes) -> bool:
    """Whether the reader of logs takes any of these stacks."""
    (log,) = (each for each in discover() if each.name == "training_log")
    whole = replace(part, open=partial(BytesIO, content), stored_bytes=len(content))
    return any(isinstance(item, Batch) and item.table == "stacks" for item in log.rows(whole))
