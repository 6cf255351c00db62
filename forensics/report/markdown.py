"""The report for a ticket: a summary block, then everything else folded away.

Nothing that came out of evidence may format, link or notify anybody. In the summary every word that Markdown, HTML or a tracker
(@names, #numbers, addresses) takes for more than text is code, as are sources and folded sections, fenced by more backticks
than they contain. So there is no backslash that the evidence has not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby

from forensics.errors import ExitCode, ForensicsError
from forensics.model import Verdict
from forensics.report import head, outline, text
from forensics.report.plain import brief, plain
from forensics.report.section import Item, Section

SMALLEST = 2000
"""Smallest `max_bytes`: room for the notice and a few lines of the verdict."""

_WIDTH = 100
# What Markdown, HTML or a tracker takes for more than text: marks, entities, mentions, references, addresses, short names of
# pictures.
_LIVE = re.compile(r"[\\`*_{}\[\]|~!&<>$@#%]|:(?=//|\w*:|[A-Za-z_+-])|www\.", re.IGNORECASE)
_LIST = re.compile(r"[-+=]|\d+[.)]")
_SPAN = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")


def render(verdict: Verdict, max_bytes: int | None = None, all_ranks: bool = False, hypotheses: bool = False) -> str:
    """The whole report; with `max_bytes`, parts that do not fit are left out and named in a notice."""
    if max_bytes is not None and max_bytes < SMALLEST:
        raise ForensicsError(f"a ticket needs at least {SMALLEST} bytes, not {max_bytes}", ExitCode.USAGE)
    footer = "  \n".join(code(line) for line in text.footer(verdict))
    parts = [("the verdict", _summary(verdict)), *_parts(verdict, all_ranks, hypotheses), ("the footer", footer)]
    return "\n\n".join(_fitting(parts, max_bytes)) + "\n"


def escape(raw: str) -> str:
    """The string as Markdown text that shows exactly its characters, on one line: words that are more than text as code."""
    shown: list[str] = []
    for is_live, words in groupby(plain(raw).strip().split(" "), key=lambda word: bool(_LIVE.search(word))):
        text_ = " ".join(words)
        starts = not shown and not is_live and _LIST.match(text_)
        shown.append(code(text_) if is_live or starts else text_)
    return " ".join(shown)


def code(raw: str) -> str:
    """The string as a code span."""
    shown = plain(raw)
    fence = "`" * (_longest_run(shown) + 1)
    pad = " " if "`" in shown or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _longest_run(shown: str) -> int:
    return max((len(run) for run in re.findall("`+", shown)), default=0)


def _summary(verdict: Verdict) -> str:
    first, *rest = head.lines(verdict)
    return "\n\n".join((f"### {head.word(verdict)}: {escape(first)}", *(escape(line) for line in rest)))


def _parts(verdict: Verdict, all_ranks: bool, hypotheses: bool) -> list[tuple[str, str]]:
    """(title, Markdown) of each section: first those of the summary, then the folded ones."""
    sections = outline.sections(verdict, all_ranks, hypotheses)
    vital = [(section.title, _list(section)) for section in sections if section.vital]
    return vital + [(section.title, _folded(section)) for section in sections if not section.vital]


def _list(section: Section) -> str:
    items = "\n".join(_entry(item) for item in section.items)
    return f"**{escape(section.title)}**\n\n{items}"


def _entry(item: Item) -> str:
    marker = "" if item.marker.isdigit() or not item.marker else f"{escape(item.marker.strip())} "
    return f"- {marker}{escape(brief(item.text, text.LONGEST))}" + (f" {code(item.source)}" if item.source else "")


def _folded(section: Section) -> str:
    lines = list(chain.from_iterable(text.body(section, _WIDTH)))
    fence = "`" * max(3, *(_longest_run(line) + 1 for line in lines))
    block = "\n".join((f"{fence}text", *lines, fence))
    return f"<details><summary>{section.title}</summary>\n\n{block}\n\n</details>"


def _fitting(parts: Sequence[tuple[str, str]], max_bytes: int | None) -> Iterator[str]:
    """The parts that fit, in order, and a notice that names the others; the first part is cut rather than left out."""
    if max_bytes is None or sum(_size(part) for _, part in parts) <= max_bytes:
        yield from (part for _, part in parts)
        return
    room = max_bytes - _size(_notice([title for title, _ in parts], max_bytes))
    left_out: list[str] = []
    for place, (title, part) in enumerate(parts):
        fits = _size(part) <= room
        if not fits:
            left_out.append(title)
        if fits or place == 0:
            shown = part if fits else _cut(part, room)
            room -= _size(shown)
            yield shown
    yield _notice(left_out, max_bytes)


def _size(part: str) -> int:
    return len(part.encode()) + len("\n\n")


def _cut(part: str, room: int) -> str:
    """The part's first bytes, ending before a code span that the cut would leave open."""
    kept = part.encode()[: max(room - len("...\n\n"), 0)].decode(errors="ignore")
    closed = max((span.end() for span in _SPAN.finditer(kept)), default=0)
    opened = kept.find("`", closed)
    return (kept if opened < 0 else kept[:opened]) + "..."


def _notice(titles: Sequence[str], max_bytes: int) -> str:
    return f"*Left out or cut to stay below {max_bytes} bytes: {', '.join(escape(title) for title in titles)}.*"
