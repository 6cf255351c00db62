"""The page: verdict first, then what it rests on, drawings where there is something to draw, long lists folded.

One file: no network, no script, and a policy in its head that forbids both, whatever a name in the evidence says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import forensics
from forensics.model import Verdict
from forensics.report import (
    drawing,
    frontier,
    frontier_svg,
    gantt,
    halt_chart,
    halt_svg,
    head,
    outline,
    path_svg,
    rates_svg,
    wait_graph,
)
from forensics.report.drawing import Drawing
from forensics.report.importance import REASSURING, importance
from forensics.report.markup import Markup, join, tag, text
from forensics.report.page import tables
from forensics.report.page.style import sheet
from forensics.report.rates import NO_CURVES, RateCurves
from forensics.report.section import Item, Section

MOST_BYTES = 4_500_000
"""Size of a page; a part that does not fit any more is left out and named."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_TITLE = 120

Part = tuple[str, Markup]


def render(verdict: Verdict, curves: RateCurves = NO_CURVES, all_ranks: bool = False) -> str:
    """The whole page in UTF-8, at most `MOST_BYTES` long; `curves` are the rates of NICs where there are captures."""
    found = _parts(verdict, curves, all_ranks)
    parts = _fitting(sorted(found, key=lambda part: importance(part[0])), verdict)
    sections = [_section(number, title, body) for number, (title, body) in enumerate(parts)]
    body = tag("body", _header(verdict, [title for title, _ in parts]), tag("main", *sections))
    return f'<!DOCTYPE html>\n<html lang="en">{_head(verdict)}{body}</html>\n'


def _head(verdict: Verdict) -> Markup:
    title = text(f"{head.word(verdict)}: {head.lines(verdict)[0]}", _TITLE)
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(sheet(verdict.outcome))),
    )


def _header(verdict: Verdict, titles: list[str]) -> Markup:
    first, *rest = head.lines(verdict)
    heading = tag("h1", tag("span", head.word(verdict), class_="outcome"), "  ", first)
    links = (join((tag("a", title, href=f"#part-{number}"), " ")) for number, title in enumerate(titles))
    digest = f"forensics {forensics.__version__}, bundle sha256 {verdict.bundle_sha256 or 'not known'}"
    lines = [tag("p", line) for line in rest]
    return tag("header", heading, *lines, tag("p", digest, class_="meta"), tag("nav", *links), class_="head")


def _section(number: int, title: str, body: Markup) -> Markup:
    heading = tag("h2", title)
    if title in REASSURING:
        body = tag("details", tag("summary", "show"), body)
    return tag("section", heading, body, id=f"part-{number}")


def _fitting(parts: list[Part], verdict: Verdict) -> list[Part]:
    """The parts that fit, the first ones first; what is left out is named where it would stand."""
    room = MOST_BYTES - len(sheet(verdict.outcome)) - sum(len(title) + 200 for title, _ in parts)
    kept: list[Part] = []
    for title, body in parts:
        size = len(body.encode())
        if size > room:
            note = f"left out: {size / 1e6:.1f} MB more than a page has room for; forensics diagnose --format json has it"
            body = tag("p", note, class_="note")
        room -= len(body.encode())
        kept.append((title, body))
    return kept


def _parts(verdict: Verdict, curves: RateCurves, all_ranks: bool) -> Iterator[Part]:
    """(title, content) of each part in no order; drawings stand with what they show."""
    for section in outline.sections(replace(verdict, frontier=()), all_ranks, hypotheses=True):
        yield section.title, _content(section, verdict, all_ranks)
    if verdict.frontier:
        yield "STAGES", _stages(verdict)
    drawings = ("WHO WAITS FOR WHOM", wait_graph.drawn(verdict)), ("NIC RATES", rates_svg.drawn(curves, verdict))
    yield from ((title, _figure(drawn)) for title, drawn in drawings if drawn is not None)


def _content(section: Section, verdict: Verdict, all_ranks: bool) -> Markup:
    if section.title == "COVERAGE":
        return tables.covered(verdict, all_ranks)
    if section.title == "WHERE EVERYONE IS":
        return tables.tree(verdict, all_ranks)
    if section.title == "CRITICAL PATH" and verdict.critical_path:
        words = tables.items(Item(said, marker) for marker, said in gantt.words(verdict.critical_path))
        return join((_figure(path_svg.drawn(verdict.critical_path)), words))
    if section.title == "INCOMPLETE GRAPH" and verdict.incomplete_graph:
        words = tables.items(Item(said, marker) for marker, said in halt_chart.words(verdict.incomplete_graph))
        return join((_figure(halt_svg.drawn(verdict.incomplete_graph)), words))
    return tables.items(section.items, is_grid=section.title == "STACK GRID")


def _figure(drawn: Drawing) -> Markup:
    return tag("figure", drawing.inline(drawn))


def _stages(verdict: Verdict) -> Markup:
    """The heat of all windows, then their accounts."""
    rows = [Item(words, marker) for row in verdict.frontier for marker, words in frontier.account(row)]
    return join((_figure(frontier_svg.drawn(verdict.frontier)), tables.items(rows)))
