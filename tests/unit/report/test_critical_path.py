"""The critical path as a chart of characters, as SVG, and in the reports."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from forensics.model import CriticalPathRow, Outcome, PassRow, PathRank
from forensics.report import drawing, gantt, json, markdown, path_svg, text
from tests.unit.report.test_json import SCHEMA, errors
from tests.unit.report.verdicts import HANG

MS = 1_000_000


def row(stage: int, direction: str, begin: int, took: int, expected: int = 10, slack: int = 0, late: bool = False) -> PassRow:
    return PassRow(
        (2 * stage, 2 * stage + 1),
        *(stage, None, 0, direction, begin * MS, took * MS, expected * MS, slack * MS, late),
        "kernel",
    )


FIRST, LATE, LAST = row(0, "forward", 0, 10), row(1, "forward", 10, 60, late=True), row(1, "backward", 70, 20)
BACK, ABSORBED = row(0, "backward", 90, 10), row(0, "forward", 15, 20, slack=30)
PATH = CriticalPathRow(
    nodes=(FIRST, LATE, LAST, BACK),
    absorbed=(replace(ABSORBED, microbatch=1),),
    makespan_ns=100 * MS,
    expected_makespan_ns=50 * MS,
    recoverable_ns=50 * MS,
    step=3,
    steps=2,
    pipelines=4,
    late_in=(PathRank((2, 3), 2),),
    passes=(FIRST, replace(ABSORBED, microbatch=1), BACK, LATE, LAST),
)
SLOW = replace(HANG, outcome=Outcome.SLOWDOWN, critical_path=PATH)


def test_each_column_shows_the_pass_of_its_time() -> None:
    drawings = [drawing for _, _, drawing in gantt.chart(PATH, 50, None) if drawing]
    assert drawings == ["FFFFF" + ".." + "f" * 10 + "." * 28 + "BBBBB", "." * 5 + "#" * 30 + "B" * 10 + "." * 5]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_of_the_report_is_wider_than_the_terminal(width: int) -> None:
    shown = text.render(SLOW, width=width, verbose=True).split("CRITICAL PATH\n")[1].split("\n\n")[0]
    assert max(map(len, shown.splitlines())) <= width
    assert "#" in shown and shown.isascii()


def test_passes_that_cost_nothing_are_listed_apart_from_late_ones() -> None:
    shown = [(marker, words) for marker, words, _ in gantt.lines(PATH, 60)]
    assert [words for marker, words in shown if marker == "late"] == [
        "forward of microbatch 0 on stage 1 (ranks 2-3): 60 ms, expected 10 ms, slack 0 ns"
    ]
    (absorbed,) = [words for marker, words in shown if marker == "absorbed"]
    assert absorbed.startswith("forward of microbatch 1 on stage 0") and absorbed.endswith("cost nothing")
    assert ("often", "ranks 2-3 late on the path in 2 of 2 slow steps") in shown


def test_the_screen_keeps_the_stage_that_is_late() -> None:
    many = tuple(replace(FIRST, stage=stage, ranks=(stage,)) for stage in range(2, 64))
    stages = [marker for marker, _, _ in gantt.brief_lines(replace(PATH, passes=(*PATH.passes, *many)), 60)]
    assert "stage 1" in stages and len(stages) == 5


def test_the_drawing_is_xml_with_a_box_for_each_pass_and_its_words() -> None:
    tree = ElementTree.fromstring(drawing.alone(path_svg.drawn(PATH)))
    boxes = [each for each in tree.iter("{http://www.w3.org/2000/svg}rect") if len(each)]
    assert len(boxes) == len(PATH.passes)
    assert sum("marked" in (each.get("class") or "") for each in boxes) == len(PATH.nodes)
    assert any("forward of microbatch 0 on stage 1" in (each[0].text or "") for each in boxes)


def test_a_path_without_passes_to_show_is_still_written() -> None:
    empty = replace(PATH, passes=(), nodes=(), absorbed=(), makespan_ns=0)
    assert ElementTree.fromstring(drawing.alone(path_svg.drawn(empty))) is not None
    assert list(gantt.chart(empty, 60, None)) == []


def test_the_document_follows_the_schema_and_the_ticket_has_the_chart() -> None:
    import json as stdlib_json

    document = stdlib_json.loads(json.render(SLOW))
    assert errors(document, SCHEMA) == []
    assert document["critical_path"]["late_in"] == [{"ranks": [2, 3], "steps": 2}]
    assert "##" in markdown.render(SLOW).split("CRITICAL PATH")[1]
