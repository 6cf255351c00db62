"""Find the rules, read their thresholds, run them over a reduced job."""

from __future__ import annotations

import importlib
import math
import pkgutil
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import forensics.rules
from forensics.errors import ExitCode, ForensicsError
from forensics.model import Confidence, Evidence, Finding, RuleOutcome
from forensics.rules.interface import Maturity, Rule
from forensics.rules.reductions.job import Job

Overrides = Mapping[str, Mapping[str, float]]


@cache
def discover() -> tuple[Rule, ...]:
    """Return every rule of every family folder, in code order."""
    rules = [
        module.RULE
        for found in pkgutil.walk_packages(forensics.rules.__path__, "forensics.rules.")
        if found.name.count(".") == 3 and ".reductions." not in found.name
        for module in [importlib.import_module(found.name)]
        if hasattr(module, "RULE")
    ]
    return tuple(sorted(rules, key=lambda rule: rule.code))


def find(code: str) -> Rule | None:
    """Return a rule by its code (`FX110`) or name (`dataloader-stalled`), case ignored."""
    wanted = code.strip().lower()
    return next((rule for rule in discover() if wanted in (rule.code.lower(), rule.name)), None)


def page_path(rule: Rule) -> Path:
    """Return where the page of a rule lies: beside its module."""
    module = importlib.import_module(rule.evaluate.__module__)
    return Path(str(module.__file__)).resolve().with_suffix(".md")


def page(rule: Rule) -> str:
    """Return the Markdown page of a rule."""
    return page_path(rule).read_text(encoding="utf-8")


def read_thresholds(path: Path) -> Overrides:
    """Read overrides from a TOML file (`[rules.FX190]`, `silence_factor = 3`); unknown rules or names are a usage error."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ForensicsError(f"{path}: {error}", ExitCode.USAGE) from error
    tables = document.get("rules", {})
    if set(document) - {"rules"} or not isinstance(tables, dict):
        raise ForensicsError(f"{path}: only tables [rules.CODE] are understood", ExitCode.USAGE)
    overrides: dict[str, dict[str, float]] = {}
    for code, values in tables.items():
        rule = find(code)
        if rule is None or not isinstance(values, dict):
            raise ForensicsError(f"{path}: [rules.{code}] is no rule (see `forensics rules`)", ExitCode.USAGE)
        overrides[rule.code] = {name: _number(path, rule, name, value) for name, value in values.items()}
    return overrides


def _number(path: Path, rule: Rule, name: str, value: object) -> float:
    known = {threshold.name for threshold in rule.thresholds}
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if name not in known or not is_number:
        expected = ", ".join(sorted(known)) or "none"
        raise ForensicsError(f"{path}: {rule.code} has no numeric threshold {name!r} (it has: {expected})", ExitCode.USAGE)
    return float(str(value))


def thresholds(rule: Rule, overrides: Overrides) -> Mapping[str, float]:
    """Return a rule's thresholds with the overrides applied."""
    defaults = {threshold.name: threshold.default for threshold in rule.thresholds}
    return defaults | dict(overrides.get(rule.code, {}))


def run(job: Job, rules: Iterable[Rule], overrides: Overrides) -> tuple[tuple[Finding, ...], tuple[RuleOutcome, ...]]:
    """Evaluate the rules; return their findings and what became of each rule."""
    findings: list[Finding] = []
    outcomes: list[RuleOutcome] = []
    for rule in rules:
        missing = rule.missing_evidence(job)
        found = () if missing else tuple(_capped(rule, each) for each in rule.evaluate(job, thresholds(rule, overrides)))
        findings.extend(found)
        outcomes.append(_outcome(rule, job, missing, found))
    return tuple(findings), tuple(outcomes)


def _capped(rule: Rule, finding: Finding) -> Finding:
    """A finding as its rule's maturity allows it: what an incubating rule says is never confirmed."""
    if rule.maturity is Maturity.STABLE or finding.confidence is not Confidence.CONFIRMED:
        return finding
    note = Evidence(f"{rule.code} is incubating: it has not yet been right in enough exams to confirm", None, supports=False)
    return replace(finding, confidence=Confidence.LIKELY, evidence=(*finding.evidence, note))


def _outcome(rule: Rule, job: Job, missing: str | None, found: tuple[Finding, ...]) -> RuleOutcome:
    if missing:
        return RuleOutcome(rule.code, rule.name, "not_applicable", missing)
    if found:
        return RuleOutcome(rule.code, rule.name, "fired", f"{len(found)} findings")
    cleared = rule.clears(job)
    status = "ruled_out" if cleared else "silent"
    return RuleOutcome(rule.code, rule.name, status, cleared or "did not fire, and the evidence does not rule it out")
