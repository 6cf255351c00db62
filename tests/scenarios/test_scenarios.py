"""The whole pipeline on real recordings: bundle in, verdict out.

A scenario is a folder `fixtures/scenarios/<name>/` with `bundle.tar.zst` and `expected.json`; there is one for every rule,
under its name.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from forensics.case.build import open_case
from forensics.model import Verdict
from forensics.report import json as json_report
from forensics.report import markdown, screen, text
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import discover, find

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted(path.parent for path in (ROOT / "fixtures/scenarios").glob("*/expected.json"))


# A few of which the second diagnosis is in every run.
AGAIN = SCENARIOS[::25]


def read(bundle: Path) -> tuple[Verdict, frozenset[str]]:
    """The verdict on a bundle, and the paths that its case read."""
    with open_case([bundle]) as connection:
        paths = connection.execute("SELECT path FROM sources").fetchall()
        return diagnose(connection), frozenset(path for (path,) in paths)


@cache
def known(bundle: Path) -> tuple[Verdict, frozenset[str]]:
    """The same, once for all tests that look at it."""
    return read(bundle)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_verdict(scenario: Path) -> None:
    """A report is short, and points at artefacts that the case read; the page of a rule quotes that of its scenario."""
    expected = json.loads((scenario / "expected.json").read_text())
    verdict, paths = known(scenario / "bundle.tar.zst")
    found = json.loads(json_report.render(verdict))
    assert found["outcome"] == expected["outcome"], found["summary"]
    first = [
        {
            "ranks": s["ranks"],
            "stage": s["stage"]["name"],
            "cause": s["cause"],
            "confidence": s["confidence"],
            "rules": s["rules"],
        }
        for s in found["suspects"]
        if s is found["suspects"][0] or s["fault"] != found["suspects"][0]["fault"]
    ]
    assert first == expected["suspects"]
    assert found["victims"] == expected["victims"]
    for suspect in found["suspects"]:
        assert suspect["evidence"]
        for line in suspect["evidence"]:
            assert line["source"] is None or line["source"].rpartition("#")[0] in paths or line["source"] in paths
    assert len(text.render(verdict, 100).splitlines()) <= screen.FEW_LINES
    if (rule := find(scenario.name)) is not None:
        module = regenerate()
        assert "```console\n$ forensics diagnose" in module.page(rule)
        assert module.example(rule) == module.page(rule), "run `make docs`"


@pytest.mark.parametrize(
    "scenario", [pytest.param(path, marks=() if path in AGAIN else pytest.mark.slow, id=path.name) for path in SCENARIOS]
)
def test_same_bundle_same_bytes(scenario: Path) -> None:
    (once, _), (again, _) = (of(scenario / "bundle.tar.zst") for of in (known, read))
    assert json_report.render(once) == json_report.render(again)
    assert text.render(once, 100) == text.render(again, 100)
    assert markdown.render(once) == markdown.render(again)


def test_every_rule_has_a_page_and_a_scenario() -> None:
    names = {scenario.name for scenario in SCENARIOS}
    assert {rule.name for rule in discover()} <= names


@cache
def regenerate() -> ModuleType:
    """The module that writes the pages, with the verdicts that are known."""
    spec = importlib.util.spec_from_file_location("regenerate", ROOT / "docs/regenerate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["regenerate"] = module
    spec.loader.exec_module(module)
    vars(module)["_verdict"] = lambda path: known(ROOT / path)[0]
    return module


def test_the_rule_index_is_current() -> None:
    module = regenerate()
    assert module.INDEX.read_text(encoding="utf-8") == module.rules_index(), "run `make docs`"


def test_the_page_of_known_defects_is_current() -> None:
    module = regenerate()
    assert module.DEFECTS.read_text(encoding="utf-8") == module.defects_page(), "run `make docs`"


def test_quoted_reports_are_what_the_program_prints() -> None:
    for page, content in regenerate().quoted_reports().items():
        assert page.read_text(encoding="utf-8") == content, "run `make docs`"
