"""Find the rules, read their thresholds, run them over a case."""

from __future__ import annotations

import importlib
import math
import pkgutil
import tomllib
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

from duckdb import DuckDBPyConnection

import forensics.rules
from forensics.errors import ExitCode, ForensicsError
from forensics.model import Confidence, Evidence, Finding, RuleOutcome
from forensics.rules.interface import Maturity, Rule, Thresholds, Undecided
from forensics.rules.supply import Supply, check, needed, providers

Overrides = Mapping[str, Mapping[str, float]]
_DEPTH = "forensics.rules.family.rule".count(".")


@cache
def discover() -> tuple[Rule, ...]:
    """Return every rule of every family folder, in code order."""
    rules = [
        module.RULE
        for found in pkgutil.walk_packages(forensics.rules.__path__, "forensics.rules.")
        if found.name.count(".") == _DEPTH and ".reductions." not in found.name
        for module in [importlib.import_module(found.name)]
        if hasattr(module, "RULE")
    ]
    asked = ((rule.code, kind) for rule in rules for kind in _asked(rule))
    check(providers(), {DuckDBPyConnection, Thresholds, *_supplied(rules, {})}, asked)
    return tuple(sorted(rules, key=lambda rule: rule.code))


def _asked(rule: Rule) -> Iterable[object]:
    """Types that a rule asks for."""
    return (*needed(rule.evaluate).values(), *needed(rule.clears).values(), *(need.evidence for need in rule.needs))


def find(code: str) -> Rule | None:
    """Return a rule by its code (`FX110` or `110`) or name (`dataloader-stalled`), case ignored."""
    wanted = code.strip().lower()
    wanted = f"fx{wanted}" if wanted.isdecimal() else wanted
    return next((rule for rule in discover() if wanted in (rule.code.lower(), rule.name)), None)


def page_path(rule: Rule) -> Path:
    """Return where the page of a rule lies: beside its module."""
    module = importlib.import_module(rule.evaluate.__module__)
    return Path(str(module.__file__)).resolve().with_suffix(".md")


def page(rule: Rule) -> str:
    """Return the Markdown page of a rule."""
    return page_path(rule).read_text(encoding="utf-8")


SILENT = "not triggered; cannot be excluded"
FAILED = "failed"
"""Status of a rule that raised an error: it says nothing, and the verdict has a label that says so."""


def read_thresholds(path: Path) -> Overrides:
    """Read overrides from a TOML file (`[rules.FX190]`, `silence_factor = 3`); unknown rules or names are a usage error."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ForensicsError(f"{path}: {error.strerror or error}", ExitCode.USAGE) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
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


def thresholds(rule: Rule, overrides: Overrides) -> Thresholds:
    """Return a rule's thresholds with the overrides applied."""
    defaults = {threshold.name: threshold.default for threshold in rule.thresholds}
    return Thresholds(defaults | dict(overrides.get(rule.code, {})))


def supply_of(
    connection: DuckDBPyConnection, overrides: Overrides | None = None, instead: Mapping[object, object] | None = None
) -> Supply:
    """Return the supply of an aligned case, with the thresholds that reductions ask for, and some reductions replaced."""
    return Supply({DuckDBPyConnection: connection, **_supplied(discover(), overrides or {}), **(instead or {})})


def _supplied(rules: Iterable[Rule], overrides: Overrides) -> dict[object, object]:
    return {
        threshold.supplies: threshold.supplies(thresholds(rule, overrides)[threshold.name])
        for rule in rules
        for threshold in rule.thresholds
        if threshold.supplies is not None
    }


def run(
    supply: Supply,
    rules: Iterable[Rule],
    overrides: Overrides,
    within: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[tuple[Finding, ...], tuple[RuleOutcome, ...]]:
    """Evaluate each rule `within` a context of its own; return their findings and what became of each rule."""
    judged = [_guarded(rule, supply, thresholds(rule, overrides), within) for rule in rules]
    return tuple(finding for found, _ in judged for finding in found), tuple(outcome for _, outcome in judged)


def _guarded(
    rule: Rule, supply: Supply, own: Thresholds, within: Callable[[], AbstractContextManager[None]]
) -> tuple[tuple[Finding, ...], RuleOutcome]:
    """Judge by one rule; what one cannot cope with must not take away what all the others say."""
    try:
        with within():
            return _judge(rule, supply, own)
    except Exception as error:  # a mistake of the rule: said in the verdict, with the place
        *_, last = traceback.extract_tb(error.__traceback__)
        place = f"{Path(last.filename).name}:{last.lineno}"
        why = f"the rule failed on this evidence, please report it: {type(error).__name__} {error} at {place}"
        return (), RuleOutcome(rule.code, rule.name, FAILED, why)


def _judge(rule: Rule, supply: Supply, own: Thresholds) -> tuple[tuple[Finding, ...], RuleOutcome]:
    """What a rule finds, and what became of it."""
    lacking = next((need for need in rule.needs if not supply.get(need.evidence)), None)
    if lacking:
        why = f"no {lacking.kind} in this case ({lacking.why})"
        return (), RuleOutcome(rule.code, rule.name, "not_applicable", why)
    found = tuple(_of_rule(rule, finding) for finding in supply.call(rule.evaluate, {Thresholds: own}))
    if found:
        return found, RuleOutcome(rule.code, rule.name, "fired", f"{len(found)} findings")
    cleared = supply.call(rule.clears, {Thresholds: own})
    if cleared and not isinstance(cleared, Undecided):
        return (), RuleOutcome(rule.code, rule.name, "ruled_out", cleared)
    return (), RuleOutcome(rule.code, rule.name, "silent", ": ".join(filter(None, (SILENT, cleared))))


def _of_rule(rule: Rule, finding: Finding) -> Finding:
    """A finding with its rule's code, as the rule's maturity allows it: what an incubating rule says is never confirmed."""
    if rule.maturity is Maturity.STABLE or finding.confidence is not Confidence.CONFIRMED:
        return replace(finding, rule=rule.code)
    note = Evidence(f"{rule.code} is incubating: it has not yet been right in enough exams to confirm", None, supports=False)
    return replace(finding, rule=rule.code, confidence=Confidence.LIKELY, evidence=(*finding.evidence, note))
