"""The report for a terminal: the verdict in the first three lines, then what to act on; `-v` shows everything it rests on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import chain

import forensics
from forensics.model import Outcome, Verdict
from forensics.report import head, outline, screen
from forensics.report.plain import brief, plain
from forensics.report.rates import NO_CURVES, RateCurves
from forensics.report.section import Item, Section

NARROWEST = 40
"""Columns below which lines are no longer wrapped more tightly."""

LONGEST = 20_000
"""Characters of one item; a name made to fill a screen may have millions."""

_COLUMN = 40
_BOLD = "1"
_COLOURS = {
    Outcome.HANG: "1;31",
    Outcome.FAILSTOP: "1;31",
    Outcome.SLOWDOWN: "1;33",
    Outcome.INCONCLUSIVE: "1;33",
    Outcome.HEALTHY: "1;32",
}


def render(
    verdict: Verdict,
    width: int = 100,
    color: bool = False,
    all_ranks: bool = False,
    hypotheses: bool = False,
    verbose: bool = False,
    curves: RateCurves = NO_CURVES,
) -> str:
    """The report, ending in a newline; colour only repeats what the words say.

    It has at most `screen.most_lines` lines, unless everything is asked for: all ranks, all hypotheses, or `verbose`.
    Lines are wrapped to `width`, except the head, so that its three lines stay three (`head -3` is the verdict), and
    sources, so that they can be copied.
    """
    width = max(width, NARROWEST)
    whole = all_ranks or hypotheses or verbose
    lines = list(_head(verdict, color))
    end = ["", *footer(verdict, whole)]
    if whole:
        sections = outline.sections(verdict, all_ranks, hypotheses, width, curves)
    else:
        sections = screen.sections(verdict, width, curves)
    blocks = [list(body(section, width)) for section in sections]
    if not whole:
        room = screen.most_lines(verdict) - len(lines) - len(end) - 2 * len(sections)
        given = screen.shares([sum(map(len, block)) for block in blocks], room)
        blocks = [[screen.fitted(block, most)] for block, most in zip(blocks, given, strict=True)]
    for section, block in zip(sections, blocks, strict=True):
        lines += ["", _paint(plain(section.title), _BOLD, color), *chain.from_iterable(block)]
    return "\n".join([*lines, *end]) + "\n"


def body(section: Section, width: int) -> Iterator[list[str]]:
    """The lines of each item of a section."""
    widths = [len(plain(item.marker)) for item in section.items]
    column = max((each for each in widths if each <= _COLUMN), default=0)
    for item in section.items:
        yield list(_item(item, column, width))


def footer(verdict: Verdict, whole: bool = True) -> tuple[str, str]:
    """Where to read on with which version, and what exactly was looked at."""
    rule = next((code for suspect in verdict.suspects for code in suspect.rules), None)
    explain = f"forensics explain {plain(rule)} | " if rule else ""
    more = "" if whole else "-v: timeline, ruled out, not evaluated, coverage | "
    return f"{more}{explain}forensics {forensics.__version__}", f"bundle sha256 {plain(verdict.bundle_sha256 or 'not known')}"


def _head(verdict: Verdict, color: bool) -> Iterator[str]:
    first, *rest = head.lines(verdict)
    yield _paint(head.word(verdict), _COLOURS[verdict.outcome], color) + "  " + plain(first)
    for line in rest:
        yield "  " + plain(line)


def _item(item: Item, column: int, width: int) -> Iterator[str]:
    """The marker in its column, or above the text where it is too long for one."""
    marker = plain(item.marker)
    if len(marker) > _COLUMN:
        yield from _wrap(marker, "  ", width)
        marker = ""
    prefix = "  " + (marker.ljust(column) + "  " if column else "")
    lines = _wrap(item.text, prefix + item.drawing, width)
    yield from lines[:-1]
    yield from _with_source(lines[-1], plain(item.source or ""), len(prefix), width)


def _with_source(line: str, source: str, indent: int, width: int) -> Iterator[str]:
    """The source at the right edge when the line has room, else on a line of its own, whole, so that it can be copied."""
    if not source:
        yield line
    elif len(line) + 3 + len(source) <= width:
        yield line + source.rjust(width - len(line))
    else:
        yield from (line, " " * indent + source)


def _wrap(text: str, prefix: str, width: int) -> Sequence[str]:
    room = max(width, len(prefix) + NARROWEST // 2)
    indent = " " * len(prefix)
    shown = textwrap.wrap(brief(text, LONGEST), room, initial_indent=prefix, subsequent_indent=indent, break_on_hyphens=False)
    return shown or [prefix.rstrip()]


def _paint(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color else text
