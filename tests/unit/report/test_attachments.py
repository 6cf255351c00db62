"""JSON lines, SARIF, the trace for Perfetto, and tickets that are cut."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from forensics.model import Anomaly, Evidence, RuleOutcome, Verdict
from forensics.report import jsonl, markdown, sarif, trace, trace_window
from forensics.rules.diagnosis import diagnose
from tests.unit.report.verdicts import DATALOADER, HANG, HEALTHY

RECORDED = Path(__file__).parents[3] / "fixtures/recorded/recommender-hang.tar.zst"
SECOND = 1_000_000_000


def run_of(verdict: Verdict) -> dict[str, Any]:
    log = json.loads(sarif.render(verdict))
    assert log["version"] == "2.1.0" and len(log["runs"]) == 1
    run: dict[str, Any] = log["runs"][0]
    return run


def accused(name: str) -> Verdict:
    return replace(HANG, suspects=(replace(DATALOADER, evidence=(Evidence(name, name),)),))


def test_every_entry_is_a_line_of_its_own() -> None:
    lines = [json.loads(line) for line in jsonl.render(HANG).splitlines()]
    assert [line["record"] for line in lines[:3]] == ["verdict", "suspect", "suspect"]
    assert {line["bundle_sha256"] for line in lines} == {HANG.bundle_sha256}
    assert [line["text"] for line in lines if line["record"] == "not_checked"] == list(HANG.not_checked)
    assert sum(line["record"] == "coverage" for line in lines) == len(HANG.coverage)


def test_a_hostile_name_makes_no_line() -> None:
    for name in ("a\nb", "\u2028", "\ud800", "\x1b[31m"):
        assert len(jsonl.render(accused(name)).split(b"\n")) == len(jsonl.render(accused("x")).split(b"\n"))


def test_a_suspect_is_a_result_with_what_the_standard_requires() -> None:
    run = run_of(HANG)
    assert run["tool"]["driver"]["name"] == "forensics"
    assert [result["level"] for result in run["results"]] == ["warning", "note"]
    for result in run["results"]:
        assert result["message"]["text"] and run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    (notice,) = run["invocations"][0]["toolExecutionNotifications"]
    place = notice["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "ranks/1/logs/a" and place["region"] == {"startLine": 912}
    assert run["invocations"][0]["executionSuccessful"] is True


def test_a_verdict_without_suspects_has_no_results() -> None:
    assert run_of(HEALTHY)["results"] == [] and run_of(HEALTHY)["properties"]["outcome"] == "healthy"


@pytest.mark.parametrize(
    ("name", "uri"),
    [("javascript:x", "javascript%3Ax"), ("//host/a b", "host/a%20b"), ("a#line=0", "a"), ("<x>\n", "%3Cx%3E%0A")],
)
def test_a_hostile_path_is_a_relative_reference_and_no_line_zero(name: str, uri: str) -> None:
    (place,) = run_of(accused(name))["results"][0]["locations"]
    assert place["physicalLocation"] == {"artifactLocation": {"uri": uri, "uriBaseId": "BUNDLE"}}


def test_a_message_holds_no_link_and_no_place_for_an_argument() -> None:
    text = run_of(accused("see [here](https://example.org) {0}"))["results"][0]["message"]["text"]
    assert "\\[here](" in text and "{{0}}" in text


def test_a_ticket_loses_what_matters_least_first() -> None:
    rules = tuple(RuleOutcome(f"FX{number}", "a rule", "ruled_out", "evidence " * 9) for number in range(40))
    verdict = replace(HANG, ruled_out=rules)
    whole, cut = markdown.render(verdict), markdown.render(verdict, max_bytes=3_500)
    for item in (*DATALOADER.evidence, Evidence(DATALOADER.next_steps[0])):
        assert markdown.escape(item.statement) in cut
    assert "RULED OUT" in cut.splitlines()[-4] and "EVIDENCE" not in cut.splitlines()[-4]
    assert set(cut.splitlines()) - set(whole.splitlines()) <= {
        "  (the rest is cut)",
        "- (the rest is cut)",
        cut.splitlines()[-4],
    }


def traced(verdict: Verdict | None = None, offset_ns: int | None = None) -> dict[str, Any]:
    with open_case([RECORDED]) as connection:
        if offset_ns is not None:
            row = ["vm", "other", offset_ns, 1_000_000]
            connection.execute("INSERT INTO clocks (host, reference, offset_ns, bound_ns) VALUES (?, ?, ?, ?)", row)
        found = verdict or diagnose(connection)
        clocks = trace_window.alignment(connection)
        span = trace_window.window(connection, found, clocks, 10 * SECOND, 30 * SECOND)
        assert span is not None
        shown = trace_window.ranks_shown(connection, found, None)
        document: dict[str, Any] = json.loads(trace.render(connection, found, shown, span, clocks))
    return document


def test_arrows_lead_from_the_root_to_its_victims_between_bars_that_are_there() -> None:
    events = traced()["traceEvents"]
    begins = {event["id"]: event["pid"] for event in events if event["ph"] == "s"}
    ends = {event["id"]: event["pid"] for event in events if event["ph"] == "f"}
    assert sorted((begins[number], ends[number]) for number in begins) == [(1, 0), (1, 2), (1, 3)]
    bars = {(event["pid"], event["tid"], event["ts"]) for event in events if event["ph"] == "X"}
    assert {(event["pid"], event["tid"], event["ts"]) for event in events if event["ph"] in "sf"} <= bars
    pending = [event for event in events if event["ph"] == "X" and event.get("args", {}).get("state") == "pending"]
    assert sorted(event["pid"] for event in pending) == [0, 2, 3]
    assert min(event["ts"] for event in events if "ts" in event) >= 0


def test_beside_a_rank_that_is_only_slow_nobody_waits_since_then() -> None:
    with open_case([RECORDED]) as connection:
        found = diagnose(connection)
    slow = tuple(replace(suspect, anomaly=Anomaly.FAIL_SLOW) for suspect in found.suspects)
    assert not [event for event in traced(replace(found, suspects=slow))["traceEvents"] if event["ph"] in "sf"]


@pytest.mark.slow
def test_clocks_are_moved_by_what_is_known_and_each_process_says_so() -> None:
    plain, moved = traced(), traced(offset_ns=5 * SECOND)
    assert moved["otherData"]["begin_ns"] == plain["otherData"]["begin_ns"] - 5 * SECOND
    said = {event["args"]["labels"] for event in moved["traceEvents"] if event["name"] == "process_labels"}
    assert said == {"aligned to other +-1 ms"}
    assert {e["args"]["labels"] for e in plain["traceEvents"] if e["name"] == "process_labels"} == {
        "not aligned: no offset of its clock is known"
    }
