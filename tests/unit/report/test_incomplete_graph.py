"""The incomplete graph of a pipeline that stopped as a chart of characters, as SVG, and in the reports."""

from __future__ import annotations

import json as stdlib_json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from forensics.model import GraphPassRow, IncompleteGraphRow
from forensics.report import drawing, halt_chart, halt_svg, json, markdown, text
from forensics.report.page.document import render
from tests.unit.report.test_json import SCHEMA, errors
from tests.unit.report.verdicts import HANG


def row(stage: int, direction: str, turn: int, state: str = "complete", waits_for: tuple[int, ...] = ()) -> GraphPassRow:
    return GraphPassRow((2 * stage, 2 * stage + 1), stage, None, 0, direction, turn, state, waits_for)


STUCK = row(1, "forward", 1, "halted")
PASSES = (row(0, "forward", 0), row(0, "backward", 3, "waits", (3,)), STUCK, row(1, "backward", 2, "waits", (2,)))
GRAPH = IncompleteGraphRow(1, 4, (STUCK,), PASSES)
STOPPED = replace(HANG, incomplete_graph=GRAPH)


def chart(graph: IncompleteGraphRow, width: int, all_stages: bool = False) -> list[str]:
    return [drawing for _, _, drawing in halt_chart.lines(graph, width, all_stages) if drawing]


def test_each_column_is_a_turn_and_each_letter_a_pass() -> None:
    assert chart(GRAPH, 60) == ["f..-", ".X-."]
    assert ("halted", "forward of microbatch 0 on stage 1 (ranks 2-3)") in halt_chart.words(GRAPH)


def test_of_a_long_step_the_turns_around_the_halt_are_shown() -> None:
    done = tuple(row(0, "forward", turn) for turn in range(500))
    stuck = row(0, "backward", 500, "halted")
    late = tuple(row(0, "backward", turn, "waits") for turn in range(501, 900))
    (line,) = chart(IncompleteGraphRow(500, 900, (stuck,), (*done, stuck, *late)), 50)
    assert line == "f" * 35 + "X" + "-" * 14
    legend = [words for _, words, _ in halt_chart.lines(IncompleteGraphRow(500, 900, (stuck,), (*done, stuck, *late)), 50)][-1]
    assert legend.startswith("turns 465 to 514 of 900; ")


def test_of_many_stages_those_nearest_to_the_halt_are_shown() -> None:
    stuck = row(40, "forward", 40, "halted")
    passes = tuple(row(stage, "forward", stage) for stage in range(64) if stage != 40)
    graph = IncompleteGraphRow(63, 64, (stuck,), (*passes, stuck))
    markers = [marker for marker, _, drawing in halt_chart.lines(graph, 80) if drawing]
    assert len(markers) == 16 and "stage 40" in markers
    assert len(chart(graph, 80, all_stages=True)) == 64


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_of_the_report_is_wider_than_the_terminal(width: int) -> None:
    shown = text.render(STOPPED, width=width, verbose=True).split("INCOMPLETE GRAPH\n")[1].split("\n\n")[0]
    assert max(map(len, shown.splitlines())) <= width and "X" in shown


def test_the_drawing_has_a_box_for_each_pass_and_a_line_to_what_it_waits_for() -> None:
    name = "{http://www.w3.org/2000/svg}"
    tree = ElementTree.fromstring(drawing.alone(halt_svg.drawn(GRAPH)))
    boxes = [each for each in tree.iter(f"{name}rect") if len(each)]
    assert [each.get("class") for each in boxes] == ["forward", "unknown", "late marked", "unknown"]
    # One line below each stage, and one from the only pass that waits for another stage.
    assert len(list(tree.iter(f"{name}line"))) == 3


def test_a_graph_of_too_many_passes_is_stated_in_words() -> None:
    large = replace(GRAPH, passes=())
    assert chart(large, 60) == []
    said = ElementTree.fromstring(drawing.alone(halt_svg.drawn(large)))[2].text
    assert said is not None
    assert "1 of 4 passes" in said


def test_the_document_follows_the_schema_and_reports_have_the_chart() -> None:
    document = stdlib_json.loads(json.render(STOPPED))
    assert errors(document, SCHEMA) == []
    assert document["incomplete_graph"]["passes"][1]["waits_for"] == [3]
    assert ".X-." in markdown.render(STOPPED)
    assert "INCOMPLETE GRAPH" in render(STOPPED) and "late marked" in render(STOPPED)
