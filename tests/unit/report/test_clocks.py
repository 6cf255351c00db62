"""Offsets between the clocks of hosts, from the case to every report."""

from __future__ import annotations

import json
from dataclasses import replace

from forensics.case.clock_offsets import clock_offsets
from forensics.case.database import new_case
from forensics.model import ClockOffsetRow
from forensics.report import clocks, markdown, text
from forensics.report import json as json_report
from forensics.report.page import document
from tests.unit.report.verdicts import HANG

APART = ClockOffsetRow("gpu-018", "gpu-017", -5_000_000, 1_000_000, "asked and answered")
SAME = ClockOffsetRow("gpu-019", "gpu-017", 300_000, 2_000_000, None)
OPEN = ClockOffsetRow("gpu-020", "gpu-017", 7_000_000_000, None, None)


def test_a_host_has_its_narrowest_offset_from_the_reference_of_most() -> None:
    connection = new_case()
    rows = [("b", "a", 9, 50), ("b", "a", 5, 10), ("c", "a", 1, None), ("b", "x", 2, 1), ("a", None, None, None)]
    insert = "INSERT INTO clocks (host, reference, offset_ns, bound_ns) VALUES (?, ?, ?, ?)"
    assert clock_offsets(connection) == ()
    connection.executemany(insert, rows)
    assert [(row.host, row.reference, row.offset_ns, row.bound_ns) for row in clock_offsets(connection)] == [
        ("b", "a", 5, 10),
        ("c", "a", 1, None),
    ]


def test_hosts_that_are_certainly_apart_come_first() -> None:
    found = [(item.marker, item.text) for item in clocks.items((APART, SAME, OPEN))]
    assert found == [
        ("gpu-020", "+7 s against gpu-017, bound unknown"),
        ("gpu-018", "5 ms +-1 ms behind gpu-017"),
        ("gpu-019", "no difference from gpu-017 known (+300 us +-2 ms)"),
    ]


def test_many_hosts_are_counted() -> None:
    many = tuple(replace(SAME, host=f"n{number:03}") for number in range(500))
    *shown, rest = clocks.items((*many, APART))
    assert shown[0].marker == "gpu-018" and len(shown) == 16
    assert rest.text == "485 more hosts: 0 certainly apart, the others the same to within 2 ms"
    assert len(list(clocks.items(many, all_hosts=True))) == 500


def test_every_long_report_shows_them() -> None:
    verdict, words = replace(HANG, clocks=(APART, SAME)), "5 ms +-1 ms behind gpu-017"
    assert words in text.render(verdict, verbose=True) and "CLOCKS OF HOSTS" in text.render(verdict, verbose=True)
    assert words in markdown.render(verdict) and words in document.render(verdict)
    assert json.loads(json_report.render(verdict))["clocks"][0] == {
        "host": "gpu-018",
        "reference": "gpu-017",
        "offset_ns": -5_000_000,
        "bound_ns": 1_000_000,
        "method": "asked and answered",
    }
    assert "CLOCKS OF HOSTS" not in text.render(HANG, verbose=True)
