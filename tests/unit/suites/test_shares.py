"""Cases by kind and by source, and faults below the gate apart from the rest."""

from __future__ import annotations

import pytest

from forensics.fixtures.suites import breakdown, shares
from forensics.fixtures.suites.shares import Tally
from tests.unit.suites.documents import fault, suspect, truth, verdict
from tests.unit.suites.rows import row

HANG, BELOW = truth("hang", fault(5)), truth("healthy", fault(5))
USUAL = ("recorder", "stacks")
ROWS = [
    row(0, verdict("hang", suspect(5)), HANG, sources=USUAL),
    row(1, verdict("hang", suspect(5, stage="data")), HANG, sources=(*USUAL, "shim")),
    row(2, verdict("hang", suspect(6)), HANG, "backward"),
    row(3, None, HANG, "backward", sources=USUAL),
    row(4, verdict("healthy"), BELOW, "absorbed", sources=USUAL),
    row(5, verdict("slowdown", suspect(5)), BELOW, "absorbed", sources=USUAL),
    row(6, verdict("slowdown", suspect(6)), BELOW, "absorbed", sources=USUAL),
    row(7, verdict("inconclusive"), BELOW, "absorbed", sources=USUAL),
    row(8, None, BELOW, "absorbed", sources=USUAL),
]


def test_faults_below_the_gate_are_in_no_score() -> None:
    assert shares.scores(ROWS) == {"exact": 1, "partial": 1, "wrong": 1, "error": 1, "below": 5}
    assert shares.tally(ROWS) == Tally(cases=9, below=5, right=5, exact=1, partial=1, wrong=1, errors=1, accused=2)


def test_what_becomes_of_them_is_counted_apart() -> None:
    found = shares.below(ROWS)
    assert found == {"absorbed": dict.fromkeys(shares.BELOW, 1)}
    assert breakdown.below_gate(ROWS)[1][:3] == ("absorbed", "5", "1 of 5 (4-62 %)")
    assert breakdown.below_gate(ROWS[:3]) == []


def test_a_stage_without_ranks_names_nobody_below_the_gate() -> None:
    assert shares.below([row(0, verdict("slowdown", suspect()), BELOW)]) == {"forward": {"nobody named": 1}}


def test_kinds_come_in_their_order_with_intervals() -> None:
    head, *lines = breakdown.kinds(ROWS)
    assert head[0] == "kind"
    assert [line[:3] for line in lines] == [
        ("forward", "2", "2 of 2 (34-100 %)"), ("backward", "2", "0 of 2 (0-66 %)"), ("absorbed", "5", "3 of 5 (23-88 %)"),
    ]  # fmt: skip
    assert lines[1][5] == "1 and 1 errors"
    assert lines[2][3:] == ("-", "0", "0", "5", "1 of 5 (4-62 %)")


def test_a_case_counts_for_each_of_its_sources() -> None:
    found = {source: one for names, one in shares.by_source(ROWS).items() for source in names}
    assert {source: one.cases for source, one in found.items()} == {"not known": 1, "recorder": 8, "shim": 1, "stacks": 8}
    assert found["shim"].partial == 1


def test_sources_of_the_same_cases_share_a_line() -> None:
    assert [line[0] for line in breakdown.sources(ROWS)[1:]] == ["not known", "recorder, stacks", "shim"]


@pytest.mark.parametrize("table", [breakdown.kinds, breakdown.sources])
def test_of_no_rows_there_is_only_a_head(table: object) -> None:
    assert callable(table) and len(table([])) == 1
    assert shares.tally([]) == Tally(0, 0, 0, 0, 0, 0, 0, 0)


def test_a_document_has_each_share_with_its_interval() -> None:
    found = shares.documents(shares.by_kind(ROWS))["absorbed"]
    assert (found["cases"], found["below"]) == (5, 5)
    assert found["exact"]["share"] is None
    assert found["accused"]["count"] == 1 and len(found["accused"]["interval"]) == 2
