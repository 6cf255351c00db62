"""The report for a ticket: a summary block, then everything else folded away.

Nothing that came out of evidence may format, link or notify anybody. In the summary every word that Markdown, HTML or a tracker
(@names, #numbers, addresses) takes for more than text is code, as are sources and folded sections, fenced by more backticks
than they contain. So there is no backslash that the evidence has not.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from forensics.errors import ExitCode, ForensicsError
from forensics.model import Verdict
from forensics.report import head, outline, text
from forensics.report.importance import importance
from forensics.report.plain import brief, plain
from forensics.report.section import Item

SMALLEST = 2000
"""Smallest `max_bytes`: room for the notice and a few lines of the verdict."""

_WIDTH = 100
# A folded part takes at most this part of the limit, so that one long list does not push out all others.
_SHARE = 4
_LEAST = 100
# What Markdown, HTML or a tracker takes for more than text: marks, entities, mentions, references, addresses, short names of
# pictures.
_LIVE = re.compile(r"[\\`*_{}\[\]|~!&<>$@#%]|:(?=//|\w*:|[A-Za-z_+-])|www\.", re.IGNORECASE)
_LIST = re.compile(r"[-+=]|\d+[.)]")
_SPAN = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")


def render(verdict: Verdict, max_bytes: int | None = None, all_ranks: bool = False, hypotheses: bool = False) -> str:
    """The whole report; with `max_bytes`, the least important parts are left out or shortened first, and named in a notice.

    What is cut off is whole items: nothing ends inside a character, a line or a code span, except a single item of the
    summary that is too long by itself; that one ends in `...`.
    """
    if max_bytes is not None and max_bytes < SMALLEST:
        raise ForensicsError(f"a ticket needs at least {SMALLEST} bytes, not {max_bytes}", ExitCode.USAGE)
    summary, footer = _summary(verdict), "  \n".join(code(line) for line in text.footer(verdict))
    parts = _parts(verdict, all_ranks, hypotheses)
    whole = [summary, *(_shown(part, part.rows) for part in parts), footer]
    if max_bytes is not None and sum(map(_size, whole)) > max_bytes:
        whole = list(_fitting(summary, parts, footer, max_bytes))
    return "\n\n".join(whole) + "\n"


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


@dataclass(frozen=True, slots=True)
class _Part:
    """A section: Markdown or, where `folded`, plain lines of each of its items."""

    title: str
    rows: tuple[str, ...]
    folded: bool


def _parts(verdict: Verdict, all_ranks: bool, hypotheses: bool) -> list[_Part]:
    """First the sections of the summary, then the folded ones."""
    sections = outline.sections(verdict, all_ranks, hypotheses)
    vital = [_Part(section.title, tuple(map(_entry, section.items)), False) for section in sections if section.vital]
    rest = (section for section in sections if not section.vital)
    return vital + [_Part(section.title, tuple(map("\n".join, text.body(section, _WIDTH))), True) for section in rest]


def _shown(part: _Part, rows: Sequence[str]) -> str:
    is_cut = len(rows) < len(part.rows)
    if not part.folded:
        return "\n".join((f"**{escape(part.title)}**", "", *rows, *(["- (the rest is cut)"] if is_cut else [])))
    fence = "`" * max(3, *(_longest_run(row) + 1 for row in rows))
    block = "\n".join((f"{fence}text", *rows, *(["  (the rest is cut)"] if is_cut else []), fence))
    return f"<details><summary>{part.title}</summary>\n\n{block}\n\n</details>"


def _entry(item: Item) -> str:
    marker = "" if item.marker.isdigit() or not item.marker else f"{escape(item.marker.strip())} "
    return f"- {marker}{escape(brief(item.text, text.LONGEST))}" + (f" {code(item.source)}" if item.source else "")


def _fitting(summary: str, parts: Sequence[_Part], footer: str, max_bytes: int) -> Iterator[str]:
    """Summary and footer, and of the parts what fits: the most important ones first, in the order of the report."""
    room = max_bytes - _size(_notice([part.title for part in parts], max_bytes)) - _size(footer)
    head_ = summary if _size(summary) <= room else _cut(summary, room)
    room -= _size(head_)
    kept: dict[int, str] = {}
    for place in sorted(range(len(parts)), key=lambda place: (parts[place].folded, importance(parts[place].title))):
        part = parts[place]
        shown = _shortened(part, min(room, max_bytes // _SHARE) if part.folded else room)
        if shown is not None:
            kept[place] = shown
            room -= _size(shown)
    cut = [part.title for place, part in enumerate(parts) if kept.get(place) != _shown(part, part.rows)]
    cut += ["the verdict"] if head_ != summary else []
    yield from (head_, *(kept[place] for place in sorted(kept)), _notice(cut, max_bytes), footer)


def _shortened(part: _Part, room: int) -> str | None:
    """The part with as many of its first rows as fit, None when none does; a row of the summary is cut rather than lost."""
    whole = _shown(part, part.rows)
    if _size(whole) <= room:
        return whole
    fits = bisect_right(range(1, len(part.rows)), room, key=lambda count: _size(_shown(part, part.rows[:count])))
    if fits:
        return _shown(part, part.rows[:fits])
    left = room - _size(_shown(part, ("",)))
    return None if part.folded or left < _LEAST else _shown(part, (_cut(part.rows[0], left),))


def _size(part: str) -> int:
    return len(part.encode()) + len("\n\n")


def _cut(part: str, room: int) -> str:
    """The part's first bytes, ending before a code span that the cut would leave open."""
    kept = part.encode()[: max(room - len("...\n\n"), 0)].decode(errors="ignore")
    closed = max((span.end() for span in _SPAN.finditer(kept)), default=0)
    opened = kept.find("`", closed)
    return (kept if opened < 0 else kept[:opened]) + "..."


def _notice(titles: Sequence[str], max_bytes: int) -> str:
    """Which parts are not whole; of a fault its number."""
    names = ", ".join(escape(title.partition("  ")[0]) for title in dict.fromkeys(titles))
    return f"*Left out or cut to stay below {max_bytes} bytes: {names}.*"
