"""What people pasted together into one text: outputs of commands, which the reader of the text as a whole passes over.

A ticket holds lines of a job's log, then `$ nvidia-smi` with its table, then a report of RAS. The whole text stays what it is;
each part of another known form, in front of the first command or below one, or in a block of a page in Markdown, is an artefact
of its own, under the name of the file and with its lines.
Files below their names are read one by one (`named_parts`), and what was quoted as a whole as it stood (`plain_text`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import pairwise

from forensics.bundle.artefact import Artefact
from forensics.case.bug_reports import parts_of_report
from forensics.case.exported_logs import MOST_BYTES as MOST_EXPORTED_BYTES
from forensics.case.exported_logs import is_chat, lines_of_export, may_be_exported
from forensics.case.fired_alerts import lines_of_quoted
from forensics.case.host_tables import host_tables
from forensics.case.kernel_parts import kernel_part
from forensics.case.named_parts import MARKS, named_parts
from forensics.case.plain_text import (
    BYTE_ORDER_MARKS,
    MOST_UTF16_BYTES,
    decoded,
    evened,
    parted,
    printed,
    unescaped,
    unstamped,
    unwrapped,
    without_mentions,
)
from forensics.case.printed_dumps import printed_dumps
from forensics.case.recorded_blocks import RECORDS, recorded_blocks
from forensics.case.saved_documents import MOST_BYTES as MOST_SAVED_BYTES
from forensics.case.saved_documents import document_text, may_be_saved, without_settled
from forensics.case.stack_parts import stack_part
from forensics.ingest import SNIFF_BYTES, choose, without_colours
from forensics.ingest._shared.prompts import is_command
from forensics.ingest.gpu_table.device_monitor import is_heading
from forensics.ingest.interface import LAST_RESORT

MOST_BYTES = 1 << 20
"""What people paste is short."""
_MOST_SECTIONS = 256
_LIKE_A_COMMAND = re.compile(
    rb"(?m)^(?:[$#] |(?:\([\w.-]{1,64}\) )?\[?[\w.-]{1,64}@[\w.-]{1,253}[ :]|\[[\w.-]{1,253}\] ?[#$] "
    rb"|[\w.-]{1,253}:[~/]\S{0,120} [#$] |(?:\[[\d: T.-]{8,30}\] )?[\w.]{1,63}-[\w.-]{1,61} [#$] )"
)
_OF_PROMPTS = (b"$ ", b"# ", b"@")
# What the reader of a log knows by itself is left to it: stacks that the job wrote, and the lines of a kernel.
_PARTS = frozenset(
    {
        *("nccl_ras_text", "nvidia_smi", "rocm_smi", "process_facts", "process_environ", "memory_use", "ib_counters"),
        *("gpu_table", "imex_status", "system_event_log"),
    }
)
_FENCE = b"```"
_LONGEST_FRONT, _LONGEST_HEAD = 128, 4096
_QUOTED = re.compile(rb"(?m)^>")
_LOG, _KERNEL, _STACKS, _SCHEDULER = "training_log", "kernel_log", "python_stacks_text", "scheduler_log"
_PICKLED = b"\x80"
_BOXED = "nvidia_smi"
_RAS = "nccl_ras_text"
_SUMMARY = b"Job summary\n===========\n"
# Headings of a report of RAS; all other lines of it are indented, ruled or about a communicator.
_OF_RAS = re.compile(
    rb"NCCL version \S+ compiled|CUDA runtime version|Job summary$|Communicators\.\.\.|Group |\(total\)|Errors$|Warnings$"
    rb"|=+$|[ #]|$|DEAD$|INCOMPLETE$|TIMEOUT$|OK$"
)
# Two records of torch on one line.
_MANYRECORDS = re.compile(rb"\[rank\d{1,7}\]:\[[EWIF]\d[^\n]{1,4000} \[rank\d{1,7}\]:\[[EWIF]\d")
_IN_A_BOX = re.compile(rb"(?m)^\s{0,8}(?:[|+].*[|+]|[|+])\s*$")


def with_sections(artefacts: Iterable[Artefact]) -> Iterator[Artefact]:
    """All artefacts, each text followed by its parts."""
    for each in artefacts:
        if each.summary is not None:  # a section of a summary is no text
            yield each
            continue
        for artefact in parts_of_report(each) or (each,):
            for whole, content in _texts(*_plain(artefact)):
                rest, tables = host_tables(whole, content)
                yield rest
                yield from tables
                yield from _sections(rest, _content(rest) if tables else content)
                if fired := lines_of_quoted(unstamped(content)):
                    yield _part(replace(whole, path=f"{whole.path}/{RECORDS}"), fired, 0)


def _texts(artefact: Artefact, content: bytes) -> Iterator[tuple[Artefact, bytes]]:
    """The files that a text is made of, with their content."""
    is_text = b"\0" not in content[:SNIFF_BYTES]
    named = named_parts(artefact, content) if is_text and any(mark in content for mark in MARKS) else ()
    named = named or (printed_dumps(artefact, content) or recorded_blocks(artefact, content) if is_text else ())
    yield from ((each, _content(each)) for each in named) if named else ((artefact, content),)


def _plain(artefact: Artefact) -> tuple[Artefact, bytes]:
    """The text as it stood before it was saved and quoted, with its content."""
    content = _content(artefact)
    head = content[:SNIFF_BYTES] or artefact.begin(SNIFF_BYTES)
    if (inside := _inside(artefact, head)) is not None:
        name, lines = inside
        stated = replace(artefact, path=f"{artefact.path}/{name}", open=partial(BytesIO, lines), stored_bytes=len(lines))
        return stated, lines if len(lines) <= MOST_BYTES else b""
    plain = _from_utf16(artefact, head)
    if plain is None:
        is_wrapped = (
            content[:1] in (b" ", b"\t")
            or any(mark in content[:_LONGEST_FRONT] for mark in (b"|", b"]: "))
            or _QUOTED.search(content, 0, _LONGEST_HEAD)
        )
        plain = unwrapped(without_settled(content)) if is_wrapped else content
    elif len(plain) <= MOST_BYTES:
        plain = unwrapped(plain)
    plain = evened(without_settled(without_mentions(unescaped(printed(plain))))) if len(plain) <= MOST_BYTES else plain
    if plain == content:
        return artefact, content
    stated = replace(artefact, open=partial(BytesIO, plain), stored_bytes=len(plain))
    return stated, plain if len(plain) <= MOST_BYTES else b""


def _inside(artefact: Artefact, head: bytes) -> tuple[str, bytes] | None:
    """Name and content of the text that a document or an export holds; None for anything else."""
    if (lines := _from_export(artefact, head)) is not None:
        return RECORDS, lines
    if _MANYRECORDS.search(head) and (records := parted(_content(artefact))) is not None:
        return RECORDS, records
    if artefact.stored_bytes > MOST_SAVED_BYTES or not may_be_saved(head):
        return None
    content = artefact.begin(MOST_SAVED_BYTES + 1)
    found = document_text(content) if len(content) <= MOST_SAVED_BYTES else None
    return (found[0], evened(without_settled(unescaped(printed(found[1]))))) if found else None


def _from_export(artefact: Artefact, head: bytes) -> bytes | None:
    """The lines of a log that a store of logs exported; None for anything else, and what is of a form of its own."""
    if artefact.stored_bytes > MOST_EXPORTED_BYTES or not may_be_exported(head):
        return None
    known = choose(head, artefact.path)
    if known is not None and known.name != _LOG and not is_chat(head):
        return None
    content = artefact.begin(MOST_EXPORTED_BYTES + 1)
    return lines_of_export(content) if len(content) <= MOST_EXPORTED_BYTES else None


def _from_utf16(artefact: Artefact, head: bytes) -> bytes | None:
    """UTF-8 of a text in UTF-16; None for anything else, and what cannot be read."""
    if head[:2] not in BYTE_ORDER_MARKS or artefact.stored_bytes > MOST_UTF16_BYTES:
        return None
    content = artefact.begin(MOST_UTF16_BYTES + 3)
    return decoded(content) if len(content) <= MOST_UTF16_BYTES + 2 else None


def _content(artefact: Artefact) -> bytes:
    """What somebody may have pasted; empty where it is larger, or begins as a pickle and no text does."""
    if artefact.stored_bytes > MOST_BYTES or artefact.begin(1) == _PICKLED:
        return b""
    content = artefact.begin(MOST_BYTES + 1)
    return content if len(content) <= MOST_BYTES else b""


def _sections(artefact: Artefact, content: bytes) -> Iterator[Artefact]:
    stamped = without_colours(content).replace(b"\r\n", b"\n")
    plain = unstamped(stamped)
    if b"\0" in content or not _may_have_parts(plain):
        return
    whole, content = choose(stamped[:SNIFF_BYTES], artefact.path), plain
    own = whole.name if whole else None
    if own not in (None, _LOG, _STACKS, _SCHEDULER, *_PARTS):
        return
    lines = content.splitlines(keepends=True)
    wanted = {_SCHEDULER, *_PARTS} if own in (None, _LOG) else {_LOG, _SCHEDULER, *_PARTS}
    wanted |= {_KERNEL, _STACKS} if own == _SCHEDULER else set()
    is_log = own == _LOG
    if own == _BOXED:
        # What stands around a table need not have a prompt above it.
        around = b"".join(b"\n" if _IN_A_BOX.match(line) else line for line in lines)
        if (known := _known(artefact, around)) in (_LOG, _KERNEL):
            wanted, is_log = {*_PARTS}, known == _LOG
            yield _part(artefact, around, 0)
    if own in (None, _RAS) and _SUMMARY in content and _known(artefact, around := _around_ras(lines)) == _LOG:
        # What the report has no line of is the log that it was pasted into.
        wanted = {*_PARTS}
        yield _part(artefact, around, 0)
    commands = [number for number, line in enumerate(lines) if _begins(line)]
    begins = [0, *(number for number in commands[:_MOST_SECTIONS] if number)]
    each = [(begin, end, _known(artefact, b"".join(lines[begin:end]))) for begin, end in pairwise([*begins, len(lines)])]
    if own in _PARTS - {_BOXED, _RAS} and (log := _log_beside(artefact, lines, [one[:2] for one in each if one[2] == own])):
        wanted -= {_LOG}
        is_log = not log.lines_before
        yield log
    if own in (None, _LOG, *_PARTS):
        yield from stack_part(artefact, lines)
    for begin, end, name in each:
        # The log of a job is read as a whole where the text is one.
        if name != own and name in wanted:
            yield _part(artefact, b"".join(lines[begin:end]), begin)
        elif is_log:
            yield from kernel_part(_part(artefact, b"".join(lines[begin:end]), begin), lines[begin:end])


def _known(artefact: Artefact, content: bytes) -> str | None:
    """The form of a part of a text."""
    found = choose(content.lstrip()[:SNIFF_BYTES], artefact.path)
    return found.name if found else None


def _log_beside(artefact: Artefact, lines: list[bytes], tables: Iterable[tuple[int, int]]) -> Artefact | None:
    """The log of a job around tables (first line and the one behind the last), or below one that nothing sets off from it."""
    of_tables = {number for begin, end in tables for number in range(begin, end)}
    around = b"".join(b"\n" if number in of_tables else line for number, line in enumerate(lines))
    if _known(artefact, around) == _LOG:
        return _part(artefact, around, 0)
    begin = _log_below(artefact, lines)
    return _part(artefact, b"".join(lines[begin:]), begin) if begin else None


def _log_below(artefact: Artefact, lines: list[bytes]) -> int | None:
    """Where the log of a job begins that was pasted below a table without a command or a fence between them."""
    begins = [number + 1 for number, line in enumerate(lines[:-1]) if not line.strip() and lines[number + 1].strip()]
    for begin in begins[:_MOST_SECTIONS]:
        head = b"".join(lines[begin:])[:SNIFF_BYTES]
        found = choose(head, artefact.path)
        if found is not None and found.name == _LOG and found.sniff(head, artefact.path) != LAST_RESORT:
            return begin
    return None


def _around_ras(lines: list[bytes]) -> bytes:
    """The text with the lines of its report of RAS blank, from its first heading to the last line of its form."""
    begin = lines.index(b"Job summary\n") if b"Job summary\n" in lines else len(lines)
    first = next((n for n in range(begin, -1, -1) if n == 0 or not _OF_RAS.match(lines[n - 1].rstrip())), 0) if lines else 0
    last = next((n for n in range(begin, len(lines)) if not _OF_RAS.match(lines[n].rstrip())), len(lines))
    return b"".join(b"\n" if first <= number < last else line for number, line in enumerate(lines))


def _may_have_parts(content: bytes) -> bool:
    # Bytes are found a hundred times faster than patterns, and most logs have none of these.
    return (
        b"+--" in content
        or _SUMMARY in content
        or b"\n" + _FENCE in content
        or (any(mark in content for mark in _OF_PROMPTS) and _LIKE_A_COMMAND.search(content) is not None)
    )


def _begins(line: bytes) -> bool:
    """Whether something else begins with this line: below a command, or in another block of a page."""
    return line.startswith(_FENCE) or (_LIKE_A_COMMAND.match(line) is not None and _is_command(line))


def _is_command(line: bytes) -> bool:
    text = line.decode("utf-8", "replace").rstrip()
    return is_command(text) and not is_heading(text)


def _part(artefact: Artefact, content: bytes, begin: int) -> Artefact:
    return replace(artefact, stored_bytes=len(content), open=partial(BytesIO, content), sha256=None, lines_before=begin)
