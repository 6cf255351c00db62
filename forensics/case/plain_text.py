"""Texts as they stood before somebody saved or quoted them: in UTF-16, behind `> `, an indent or one container's name.

Of pages in Markdown also what they only mention: a line in a code span between words has not happened where the page stands.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from forensics.ingest._shared.manuals import blocks_of_page, is_manual, is_page

BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""Of UTF-16, in which the shell of Windows writes the output of commands into files."""
MOST_UTF16_BYTES = 1 << 27
_LEAST_LINES = 3
# Of the lines of a mail that quotes another one as a whole, below its own head and a word above it.
_MOSTLY = 0.8
_OF_A_MAIL = re.compile(rb"(?:From|To|Cc|Date|Sent|Subject|Reply-To|Message-I[Dd]|On .{4,200} wrote):")
# A mail quotes each line, editors of tickets indent it, Docker Compose puts the container in front.
_QUOTE = re.compile(rb"> ?")
_INDENT = re.compile(rb"[ \t]{2,40}")
# Two or three spaces between words, and what columns of tables have.
_GAP, _FAR = re.compile(rb"(?<=\S) {2,3}(?=\S)"), re.compile(rb"\S {4,}\S")
_LEAST_GAPS, _LEAST_GAPS_A_LINE, _LEAST_WORDS = 4, 1.5, 5
_TITLE = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,64}#{1,2} \S")
_FENCES = (b"```", b"~~~")
_SPAN = re.compile(rb"(?<!`)(`{1,2})(?!`)[^`\n]{0,1000}\s[^\n]{0,1000}?(?<!`)\1(?!`)")
_LEAST_JOINED = 3
_RECORD = re.compile(rb"(?<!\S)\[rank\d{1,7}\]:\[[EWIF]\d{3,4} \d\d:\d\d:\d\d\.")
_ENTITY = re.compile(rb"&(?:lt|gt|quot|amp|#39|#x27|#34|nbsp);")
# Of a block of code alone: a page with headings and sentences is no log.
_OF_A_BLOCK = re.compile(rb"</?(?:pre|code|span|font|b|i)(?:\s[^<>\n]{0,200})?>|<br\s?/?>")
_TAG = re.compile(rb"</?[A-Za-z][\w-]{0,30}(?:\s[^<>\n]{0,200})?/?>")
_ANY_TAG, _BREAK = re.compile(rb"</?[A-Za-z][^<>\n]{0,500}>"), re.compile(rb"<br\s?/?>", re.IGNORECASE)
_CONTAINER = re.compile(rb"[A-Za-z][\w.-]{0,62}-\d{1,5} {1,40}\| ?")
# The journal of the unit in which srun labels the lines of its tasks.
_OF_UNIT = re.compile(
    rb"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,16}) "
    rb"(?P<unit>[\w.-]{1,253} [\w@.-]{1,80}\[\d{1,9}\]): ?(?P<task>\d{1,5}: )?"
)
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}(?:Z|[+-]\d\d:\d\d)(?: |(?=\r?\n|$))")
_STAMPED = re.compile(_STAMP.pattern + rb"|\s*$")
_LEAST_STAMPED = 3


def decoded(content: bytes) -> bytes | None:
    """UTF-16 with a byte order mark as UTF-8; None for anything else."""
    if content[:2] not in BYTE_ORDER_MARKS:
        return None
    try:
        text = content[: len(content) & ~1].decode("utf-16")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.encode("utf-8", "replace")


def unwrapped(content: bytes) -> bytes:
    """The text without what stands alike in front of all of its lines, or quotes nearly all; lines keep their numbers."""
    lines = content.splitlines(keepends=True)
    written = [line for line in lines if line.strip()]
    if len(written) < _LEAST_LINES:
        return content
    said = [line for line in written if not _OF_A_MAIL.match(line)] or written
    own = sum(line[:1] != b">" for line in said)
    if own <= (1 - _MOSTLY) * len(written) and b">" in (said[0][:1], said[-1][:1]):
        return b"".join(_QUOTE.sub(b"", line, count=1) if line[:1] == b">" else line for line in lines)
    if units := _of_tasks(written):
        return b"".join(line[units.get(line, 0) :] for line in lines)
    front = _common(written)
    return b"".join(line.removeprefix(front) for line in lines) if front else content


def _of_tasks(lines: Sequence[bytes]) -> Mapping[bytes, int]:
    """How long the front of the journal is in each line, where one unit wrote all, most of them behind labels of tasks."""
    found = {line: _OF_UNIT.match(line) for line in lines}
    fronts = {line: said for line, said in found.items() if said is not None}
    tasks = [said["task"] for said in fronts.values() if said["task"]]
    is_one = len(fronts) == len(found) and len({said["unit"] for said in fronts.values()}) == 1
    labelled = len({*tasks}) > 1 and 2 * len(tasks) >= len(found)
    return {line: said.end("unit") + 2 for line, said in fronts.items()} if is_one and labelled else {}


def parted(content: bytes) -> bytes | None:
    """The records of torch on lines of their own, where a comment or a chat put most of them on one; None for other texts."""
    lines = content.splitlines(keepends=True)
    counts = [sum(1 for _ in _RECORD.finditer(line)) for line in lines]
    joined = sum(count for count in counts if count > 1)
    if joined < _LEAST_JOINED or joined <= counts.count(1):
        return None
    return b"".join(map(_parted, lines))


def _parted(line: bytes) -> bytes:
    """What stands in front of the first record may say who wrote it, and stays there."""
    begins = [0, *[record.start() for record in _RECORD.finditer(line)][1:], len(line)]
    return b"\n".join(line[begin:end].rstrip(b" ") for begin, end in pairwise(begins))


def unescaped(content: bytes) -> bytes:
    """The text of a block of code that was copied out of a page's source, `&lt;stderr&gt;`; lines keep their numbers.

    A text with other tags, or a raw `<word>`, is no such block and stays.
    """
    if not _ENTITY.search(content):
        return content
    bare = _OF_A_BLOCK.sub(b"", content)
    if _TAG.search(bare):
        return content
    return html.unescape(bare.decode("utf-8", "replace")).encode("utf-8", "replace")


def printed(content: bytes) -> bytes:
    """What the blocks of a page in HTML show, below blank lines in place of all else; any other text as it is."""
    if not is_page(content) or is_manual(content, "") or not (blocks := blocks_of_page(content)):
        return content
    kept: list[bytes] = []
    for before, block in blocks:
        kept += [b""] * (before - len(kept))
        kept += _ANY_TAG.sub(b"", _BREAK.sub(b"\n", block)).split(b"\n")
    return html.unescape(b"\n".join(kept).decode("utf-8", "replace")).encode("utf-8", "replace") + b"\n"


def without_mentions(content: bytes) -> bytes:
    """A page below a title in Markdown, without the code spans of its sentences and tables; lines keep their numbers.

    What stands in a block of code, and a span that is a whole line, may be pasted evidence and stays.
    """
    if b"`" not in content or not _TITLE.match(content):
        return content
    kept, is_inside = [], False
    for line in content.splitlines(keepends=True):
        if line.lstrip().startswith(_FENCES):
            is_inside = not is_inside
        elif b"`" in line and not is_inside and not line.startswith((b"    ", b"\t")) and not _SPAN.fullmatch(line.strip()):
            line = _SPAN.sub(b"", line)
        kept.append(line)
    return b"".join(kept)


def evened(content: bytes) -> bytes:
    """The text with one space between words, where a picture of it was read by a program, which saw two at odd places.

    Columns of a table stand below each other, or far apart: such a text stays.
    """
    if content.count(b"  ") < _LEAST_GAPS:
        return content
    lines = content.splitlines(keepends=True)
    long = [line for line in lines if line.count(b" ") >= _LEAST_WORDS]
    gaps = [[gap.start() for gap in _GAP.finditer(line)] for line in long]
    columns = Counter(column for row in gaps for column in row)
    uneven = sum(bool(row) for row in gaps)
    tabled = sum(_FAR.search(line) is not None for line in long)
    few = sum(map(len, gaps)) < _LEAST_GAPS_A_LINE * uneven
    if few or uneven < max(_LEAST_GAPS, len(long) / 2) or 10 * tabled > len(long) or 3 * max(columns.values()) > len(long):
        return content
    return b"".join(_GAP.sub(b" ", line) for line in lines)


def _common(lines: Sequence[bytes]) -> bytes:
    """An indent, or the name of a container, that all lines have."""
    indents = [found[0] if (found := _INDENT.match(line)) else b"" for line in lines]
    shortest = min(indents, key=len)
    if shortest and all(indent.startswith(shortest) for indent in indents):
        return shortest
    first = _CONTAINER.match(lines[0])
    name = first[0].rstrip() if first else b""
    if not name or not all(line.startswith(name) for line in lines):
        return b""
    return name + b" " if all(line.startswith(name + b" ") or line.strip() == name for line in lines) else name


def unstamped(content: bytes) -> bytes:
    """Lines without the time that a runtime of containers puts in front of every one; unchanged where one has none."""
    lines = content.splitlines(keepends=True)
    if len(lines) < _LEAST_STAMPED or _STAMP.match(lines[0]) is None or not all(map(_STAMPED.match, lines)):
        return content
    return b"".join(_STAMP.sub(b"", line, count=1) for line in lines)
