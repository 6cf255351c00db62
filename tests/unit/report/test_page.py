"""The page: safe whatever the evidence says, whole by itself, small for large jobs."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.model import AttributionRow, Evidence, FrontierRow, GroupRow, LossRow, Outcome, TreeLine, Verdict, Victims
from forensics.report import frontier_svg
from forensics.report.markup import Markup, tag, text
from forensics.report.page.document import MOST_BYTES, render
from forensics.report.plain import plain
from forensics.report.rates import RateCurve, RateCurves
from tests.unit.report.test_critical_path import PATH
from tests.unit.report.test_screen import crowded
from tests.unit.report.verdicts import DATALOADER, HANG, HEALTHY, STALL_NS

MS = 1_000_000
EMPTY = {"meta", "br"}
HOSTILE = [
    "<script>alert(1)</script>",
    "</title></style></section><img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1)' x=\"",
    "javascript:alert(1)",
    "\x1b[31mred\x07\r\nforged line",
    "\u202egnp.exe\u2066",
    "&lt;b&gt; &#60;i&#62;",
    "]]><!-- --><![CDATA[",
    "\ud800 half of a pair",
    "@import url(http://example.org/x.css)",
]


class Page(HTMLParser):
    """Elements, attributes and text of a page; every element that begins ends in the right order."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.titles: list[str] = []
        self.parts: list[str] = []
        self.open: list[str] = []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(name)
        self.attributes += [(key, value or "") for key, value in attributes]
        if name not in EMPTY:
            self.open.append(name)

    def handle_startendtag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(name)
        self.attributes += [(key, value or "") for key, value in attributes]

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.parts.append(data)
        if self.open and self.open[-1] == "h2":
            self.titles.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.parts)


def window(ranks: int, culprit: int) -> FrontierRow:
    """Ranks that all lose a millisecond at data, one of them forty."""
    excess = tuple((40 * MS if rank == culprit else MS, 0) for rank in range(ranks))
    loss = LossRow("data", None, (culprit,), 390 * MS, 0.3, 10, 2 * MS, "peers", "steady")
    found = AttributionRow("backward", "collectives", "backward", 10, 120 * MS, None, (loss,), None)
    return FrontierRow(
        group="world",
        role=None,
        source="stage_vectors",
        first_step=0,
        last_step=9,
        steps=10,
        ranks=tuple(range(ranks)),
        stages=("data", "backward"),
        advances_ns=(400 * MS, 800 * MS),
        exposed_ns=1200 * MS,
        shares=(0.33, 0.67),
        gains=(0.3, 0.0),
        gains_by_baseline=(),
        routing_set=("data",),
        ambiguity_set=("data",),
        labels=(),
        leader=None,
        closure=1.0,
        overlap=0.0,
        missing_ranks=(),
        event_ready=None,
        excess_ns=excess,
        attribution=found,
    )


def curve(rank: int, begin: int | None = STALL_NS - 150 * MS) -> RateCurve:
    sent = np.full(300, 1e9)
    sent[100:110] = np.nan
    return RateCurve(rank, f"gpu-{rank}", "mlx5_0", begin, MS, sent, np.zeros(300))


def hostile(name: str) -> Verdict:
    suspect = replace(DATALOADER, hosts=(name,), evidence=(Evidence(name, name),), next_steps=(name,))
    return replace(
        HANG,
        suspects=(suspect,),
        tree=(TreeLine(0, (0, 1), (name,), None),),
        groups=(GroupRow(name, (0, 1, 2), "reported", 6, name, name, (0, 1), (2,), ()),),
        would_change=(name,),
        bundle_sha256=name,
        critical_path=PATH,
        frontier=(replace(window(4, 2), group=name, stages=(name, "backward")),),
    )


ALL = replace(HANG, critical_path=PATH, frontier=(window(4, 2),))


def test_all_parts_are_there_and_what_one_acts_on_comes_first() -> None:
    page = Page(render(ALL, RateCurves((curve(0), curve(2)))))
    wanted = ["EVIDENCE", "NEXT STEPS", "CAVEATS", "WHAT WOULD CHANGE THIS VERDICT", "WHO WAITS FOR WHOM"]
    wanted += ["WHERE EVERYONE IS", "GROUPS", "CRITICAL PATH", "STAGES", "NIC RATES", "TIMELINE", "COVERAGE", "RULED OUT"]
    assert [title for title in page.titles if title in wanted] == wanted
    for said in (
        "HANG",
        "rank 2 (host gpu-017)",
        "ranks/2/fr/0.json#entry=5",
        "not_configured: no worker server",
        "stall begins",
    ):
        assert said in page.text
    assert page.elements.count("svg") == 4


def test_the_page_needs_nothing_else_and_runs_nothing() -> None:
    content = render(ALL, RateCurves((curve(0),)))
    page = Page(content)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(page.elements)
    assert {value for key, value in page.attributes if key in ("href", "src", "action")} <= {f"#part-{n}" for n in range(40)}
    assert not [key for key, _ in page.attributes if key.startswith("on")]
    assert any(value.startswith("default-src 'none';") for key, value in page.attributes if key == "content")
    assert "url(" not in content and "@import" not in content


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_add_no_structure_and_are_shown(name: str) -> None:
    page, innocent = Page(render(hostile(name))), Page(render(hostile("innocent")))
    assert page.elements == innocent.elements
    assert [key for key, _ in page.attributes] == [key for key, _ in innocent.attributes]
    assert plain(name) in page.text
    assert page.text.replace("\n", "").isprintable()
    render(hostile(name)).encode()


@given(st.text(st.characters(), min_size=1, max_size=200))
def test_any_text_is_shown_as_it_is_and_any_attribute_keeps_its_value(raw: str) -> None:
    page = Page(tag("p", raw, data_x=raw))
    assert page.elements == ["p"] and page.attributes == [("data-x", plain(raw))]
    assert "".join(page.parts) == plain(raw)
    assert text(Markup("<b>")) == "<b>"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_page(outcome: Outcome) -> None:
    page = Page(render(replace(HEALTHY, outcome=outcome)))
    assert outcome.name in page.text and "COVERAGE" in page.titles


def test_a_large_job_is_folded() -> None:
    world = 10_000
    victims = (Victims(tuple(rank for rank in range(world) if rank != 2), (2,)),)
    verdict = replace(crowded(world), victims=victims, frontier=(window(world, 4_321),))
    content = render(verdict, RateCurves(tuple(curve(rank) for rank in range(12)), left_out=world - 12))
    page = Page(content)
    assert len(content.encode()) < 1_000_000
    assert "rank 4321" in page.text and "(+9988 more captures)" in page.text
    assert "(+100 more branches, --all-ranks)" in page.text


def test_folded_heat_hides_no_rank_that_is_hot() -> None:
    row = window(10_000, 4_321)
    lines = frontier_svg.heat_lines(row)
    assert sorted(rank for line in lines for rank in line.ranks) == list(range(10_000))
    assert [line.excess_ns[0] for line in lines if line.ranks == (4_321,)] == [40 * MS]
    assert all(max(row.excess_ns[rank][0] for rank in line.ranks) == line.excess_ns[0] for line in lines)
    assert len(lines) < 100


def test_a_page_has_an_end_and_says_what_was_left_out() -> None:
    huge = tuple(TreeLine(1, (number % 4,), ("&" * 900,), None) for number in range(5_000))
    content = render(replace(ALL, tree=huge), all_ranks=True)
    assert len(content.encode()) <= MOST_BYTES
    assert "left out: " in content and "EVIDENCE" in Page(content).titles


def test_a_rate_that_was_lost_is_a_gap_and_no_zero() -> None:
    page = Page(render(HANG, RateCurves((curve(0),))))
    lines = [value for key, value in page.attributes if key == "points"]
    assert len(lines) == 3  # what was sent on both sides of the gap, and what was received
    assert len(lines[0].split()) + len(lines[1].split()) == 2 * 290


def test_the_begin_of_the_stall_is_not_drawn_on_another_clock() -> None:
    assert (
        "stall begins"
        in render(replace(HANG, timeline=()), RateCurves((curve(0),))).split("NIC RATES</h2>")[1].split("</svg>")[0]
    )
    other = render(replace(HANG, timeline=()), RateCurves((curve(0, None),))).split("NIC RATES</h2>")[1]
    assert "stall begins" not in other.split("</svg>")[0]
