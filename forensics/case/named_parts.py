"""Files that somebody pasted into one text, each below its name: `==> train.log <==`, or a block of Markdown below `train.log`.

So are lines that grep found in several files: `logs/rank_3.log:812:ValueError: ...`.

Each is read as the file that it was; what stands around them stays a text of its own, with its lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import NamedTuple

from forensics.bundle.artefact import Artefact
from forensics.bundle.origin import origin
from forensics.bundle.proven_ranks import with_proven_ranks
from forensics.ingest import SNIFF_BYTES, choose
from forensics.ingest._shared.stack_headings import labelled_rank

MARKS = (b"==> ", b"```", b"~~~", b".log:", b".out:", b".err:", b".txt:")
_LEAST, _MOST = 2, 1024
# What `head` and `tail` print above each of several files.
_HEAD = re.compile(rb"==> (?P<name>[^\s<>][^<>\n]{0,250}?) <==\s*")
_FENCE = re.compile(rb" {0,3}(?P<mark>`{3,}|~{3,})[^`\n]*")
_TAG = re.compile(rb"</?[A-Za-z][^<>\n]{0,80}>")
_NAME = re.compile(
    rb"[#*_`\s>-]{0,12}(?P<name>[\w./@+-]{1,200}\.[A-Za-z]\w{0,7}|[\w./@+-]{0,160}/\w[\w.@+-]{0,80})[*_`:\s]{0,8}"
)
# Above a log, beside the rank; in front of what somebody writes in a chat.
_OF_LOGS = re.compile(
    r"\b(?:logs?|stderr|stdout|says|protokoll|registro|journal)\b|的?(?:日志|输出|报错)|のログ|ログ|лог|журнал", re.IGNORECASE
)
_OF_CHAT = re.compile(r"\[?\d{1,2}:\d\d(?::\d\d)?(?: [AP]M)?\]? {1,3}[\w .-]{1,40}: +")
_LOG = "training_log"
_NEAR = 3
_FOUND = re.compile(
    rb"(?P<name>[\w./@+=-]{0,200}[\w)]\.(?:log|out|err|txt)(?:\.\d{1,3})?)[:-](?:(?P<line>\d{1,9})[:-])?(?P<text>.*)", re.DOTALL
)
_MOST_OTHERS = 4


class _Span(NamedTuple):
    """A file in the text: its lines from `begin` on, to those before `end`; `title` is the line of its name."""

    name: str
    title: int
    begin: int
    end: int


def named_parts(artefact: Artefact, content: bytes) -> tuple[Artefact, ...]:
    """The files of a text, and what stands around them; nothing where it does not hold two files of different names."""
    if b"\0" in content:
        return ()
    lines = content.splitlines(keepends=True)
    if found := _searched(artefact, lines):
        return found
    spans = list(_below_heads(lines)) or list(_in_fences(lines, _named)) or _of_ranks(artefact, lines)
    if not _LEAST <= len({span.name for span in spans}) == len(spans) <= _MOST:
        return ()
    parts = with_proven_ranks([_part(artefact, span, b"".join(lines[span.begin : span.end])) for span in spans])
    inside = {number for span in spans for number in (span.title, *range(span.begin, span.end))}
    rest = b"".join(b"\n" if number in inside else line for number, line in enumerate(lines))
    around = (replace(artefact, open=partial(BytesIO, rest)),) if rest.strip(b"`~ \t\r\n") else ()
    return (*around, *parts)


def _below_heads(lines: Sequence[bytes]) -> Iterator[_Span]:
    heads = [(number, said) for number, line in enumerate(lines) if (said := _HEAD.fullmatch(line))]
    ends = [*(number for number, _ in heads), len(lines)][1:]
    for (number, said), end in zip(heads, ends, strict=True):
        yield _Span(_text(said["name"]), number, number + 1, end)


def _of_ranks(artefact: Artefact, lines: Sequence[bytes]) -> list[_Span]:
    """Logs below lines that name their ranks; what is of another form has headings of its own."""
    spans = list(_in_fences(lines, _ranked))
    known = [choose(b"".join(lines[span.begin : span.end])[:SNIFF_BYTES], artefact.path) for span in spans]
    return spans if all(found is not None and found.name == _LOG for found in known) else []


def _in_fences(lines: Sequence[bytes], title_of: Callable[[bytes], str | None]) -> Iterator[_Span]:
    mark, begin, title = b"", 0, None
    for number, line in enumerate(lines):
        fence = _FENCE.fullmatch(line.rstrip()) if line.lstrip()[:3] in (b"```", b"~~~") else None
        if fence and not mark:
            mark, begin, title = fence["mark"], number + 1, _title(lines, number, title_of)
        elif fence and mark and line.strip().startswith(mark):
            if title is not None:
                yield _Span(title[1], title[0], begin, number)
            mark = b""


def _title(lines: Sequence[bytes], fence: int, title_of: Callable[[bytes], str | None]) -> tuple[int, str] | None:
    """The name that stands alone in the line above a block."""
    for number in range(fence - 1, max(-1, fence - 1 - _NEAR), -1):
        line = _TAG.sub(b"", lines[number]).strip()
        if line:
            said = title_of(line)
            return (number, said) if said else None
    return None


def _named(line: bytes) -> str | None:
    said = _NAME.fullmatch(line)
    return _text(said["name"]) if said else None


def _ranked(line: bytes) -> str | None:
    text = line.decode("utf-8", "replace")
    rank = labelled_rank(_OF_LOGS.sub(" ", _OF_CHAT.sub("", text, count=1)).strip()) if "ank" in text else None
    return None if rank is None else f"rank_{rank}.log"


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace").strip("/")


def _part(artefact: Artefact, span: _Span, content: bytes) -> Artefact:
    stated = origin(span.name)
    return Artefact(
        path=f"{artefact.path}/{span.name}",
        stored_bytes=len(content),
        open=partial(BytesIO, content),
        host=stated.host,
        rank=stated.rank,
        rank_method=stated.rank_method,
        pid=stated.pid,
        is_child=stated.is_child,
        sample=stated.sample,
        modified_ns=artefact.modified_ns,
    )


def _searched(artefact: Artefact, lines: Sequence[bytes]) -> tuple[Artefact, ...]:
    """What grep found in each of several files, where the text is little else; what else it holds is lost."""
    found: dict[str, list[bytes]] = {}
    others = 0
    for line in lines:
        said = _FOUND.fullmatch(line)
        others += said is None and line.strip(b"- \t\r\n") != b""
        if said is not None:
            found.setdefault(_text(said["name"]), []).append(said["text"])
        if others > _MOST_OTHERS:
            return ()
    if not _LEAST <= len(found) <= _MOST or sum(map(len, found.values())) <= others:
        return ()
    return tuple(with_proven_ranks([_part(artefact, _Span(name, 0, 0, 0), b"".join(each)) for name, each in found.items()]))
