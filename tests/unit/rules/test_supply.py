"""Reductions and rules are supplied by type: found where they lie, computed late and once, mistakes said at discovery."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NewType

import pytest
from duckdb import DuckDBPyConnection, TransactionException

from forensics.case.build import open_case
from forensics.case.database import read_only, schema_columns
from forensics.model import Belief, Cause, Confidence, Finding, Outcome, StageRef
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import discover, run, supply_of
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.soundness import SlownessSigns
from forensics.rules.supply import Supply, WiringError, check, needed, providers, providers_in
from tests.recordings.collection import loose, write
from tests.recordings.job import Job, as_json

Temperatures = NewType("Temperatures", dict[int, float])
Hottest = NewType("Hottest", tuple[int, ...])
Limit = NewType("Limit", float)
made: list[str] = []


@reduction
def temperatures(connection: DuckDBPyConnection, roster: Roster) -> Temperatures:
    made.append("temperatures")
    ((count,),) = connection.execute("SELECT count(*) FROM sources").fetchall()
    return Temperatures({rank: 60.0 + 10 * rank for rank in roster.ranks} if count else {})


@reduction
def hottest(known: Temperatures, limit: Limit) -> Hottest:
    made.append("hottest")
    return Hottest(tuple(rank for rank, degrees in known.items() if degrees >= limit))


def _evaluate(found: Hottest, roster: Roster, thresholds: Thresholds) -> Iterator[Finding]:
    if found and len(roster.ranks) >= thresholds["least_ranks"]:
        yield Finding(found, Cause.OTHER, StageRef(), Belief.DIRECT_RECORD, Confidence.SUSPECT, evidence=())


def _clears(known: Temperatures) -> str:
    return f"{len(known)} ranks are cool"


RULE = Rule(
    code="FX999",
    name="too-hot",
    seed="this test",
    needs=(Need(Temperatures, "temperatures", "a sensor tells it"),),
    thresholds=(Threshold("limit", 85.0, "of this test", Limit), Threshold("least_ranks", 2, "of this test")),
    concludes="The ranks that are hot.",
    evaluate=_evaluate,
    clears=_clears,
)


@pytest.fixture
def case(tmp_path: Path) -> DuckDBPyConnection:
    job = Job(4)
    job.steps(3)
    made.clear()
    return open_case([loose(job, tmp_path)])


def supply(case: DuckDBPyConnection, limit: float = 85.0) -> Supply:
    """What the product supplies, with the reductions of this module beside it: no list is edited."""
    return Supply({DuckDBPyConnection: case, Limit: Limit(limit)}, {**providers(), **providers_in([sys.modules[__name__]])})


def test_a_rule_gets_what_its_parameters_ask_for(case: DuckDBPyConnection) -> None:
    (found,), (outcome,) = run(supply(case), [RULE], {})
    assert (found.ranks, outcome.status) == ((3,), "fired")


def test_thresholds_are_those_of_the_rule(case: DuckDBPyConnection) -> None:
    found, (outcome,) = run(supply(case), [RULE], {"FX999": {"least_ranks": 5.0}})
    assert (found, outcome.status, outcome.reason) == ((), "ruled_out", "4 ranks are cool")


def test_a_reduction_is_made_once_and_only_when_asked_for(case: DuckDBPyConnection) -> None:
    known = supply(case)
    assert made == []
    assert known.get(Temperatures)[3] == 90.0
    assert made == ["temperatures"]
    run(known, [RULE, RULE], {})
    assert made == ["temperatures", "hottest"]


def test_a_given_value_takes_the_place_of_a_reduction(case: DuckDBPyConnection) -> None:
    known = Supply({Temperatures: {7: 99.0}, Limit: Limit(85.0)}, providers_in([sys.modules[__name__]]))
    assert known.get(Hottest) == (7,)
    assert made == ["hottest"]


def test_a_rule_whose_evidence_is_empty_is_not_evaluated(case: DuckDBPyConnection) -> None:
    known = Supply({DuckDBPyConnection: case, Temperatures: {}}, {})
    found, (outcome,) = run(known, [RULE], {})
    assert (found, outcome.status) == ((), "not_applicable")
    assert outcome.reason == "no temperatures in this case (a sensor tells it)"


def test_rules_and_reductions_cannot_write_to_the_case(case: DuckDBPyConnection) -> None:
    with read_only(case), pytest.raises(TransactionException, match="read-only"):
        case.execute("DELETE FROM operations")
    tables = [f"SELECT * FROM {name} ORDER BY ALL" for name in schema_columns()]
    before = [case.execute(each).fetchall() for each in tables]
    assert diagnose(case).assessments
    assert [case.execute(each).fetchall() for each in tables] == before
    assert not case.execute("SELECT * FROM duckdb_tables() WHERE temporary").fetchall()


def module_with(*functions: Callable[..., Any]) -> ModuleType:
    """A module that defines these reductions."""
    module = ModuleType("made_up")
    for function in functions:
        function.__module__ = module.__name__
        setattr(module, function.__name__, reduction(function))
    return module


def test_two_reductions_of_one_type_are_a_mistake() -> None:
    def other() -> Temperatures:
        return Temperatures({})

    def another() -> Temperatures:
        return Temperatures({})

    with pytest.raises(WiringError, match=r"another and .*other both make Temperatures"):
        providers_in([module_with(other, another)])


def test_a_type_that_nobody_makes_is_a_mistake() -> None:
    def lonely(known: Temperatures) -> Hottest:
        return Hottest(tuple(known))

    with pytest.raises(WiringError, match=r"lonely asks for Temperatures, and no reduction makes it"):
        check(providers_in([module_with(lonely)]), ())
    with pytest.raises(WiringError, match="FX999 asks for Hottest"):
        check({}, {Temperatures}, [("FX999", Hottest)])


def test_reductions_in_a_circle_are_a_mistake() -> None:
    def cold(hot: Hottest) -> Temperatures:
        return Temperatures(dict.fromkeys(hot, 0.0))

    def hot(known: Temperatures) -> Hottest:
        return Hottest(tuple(known))

    with pytest.raises(WiringError, match="in a circle"):
        check(providers_in([module_with(cold, hot)]), ())


def test_a_parameter_or_a_result_without_a_type_is_a_mistake() -> None:
    def untyped(known) -> Hottest:  # type: ignore[no-untyped-def]
        return Hottest(())

    def nothing(known: Temperatures) -> None:
        return None

    with pytest.raises(WiringError, match="without a type: known"):
        needed(untyped)
    with pytest.raises(WiringError, match="has no result"):
        providers_in([module_with(nothing)])


def test_everything_the_product_asks_for_is_made(case: DuckDBPyConnection) -> None:
    """Discovery has checked it; here every reduction is made of one case."""
    assert discover()
    known = supply_of(case)
    for wanted in providers():
        known.get(wanted)  # type: ignore[arg-type]


def _fails_in_python(roster: Roster) -> Iterator[Finding]:
    yield from [[][len(roster.ranks)]]


def _fails_in_sql(connection: DuckDBPyConnection) -> Iterator[Finding]:
    connection.execute("SELECT CAST('many' AS INTEGER)").fetchall()
    yield from ()


@pytest.mark.parametrize(("broken", "error"), [(_fails_in_python, "IndexError"), (_fails_in_sql, "ConversionException")])
def test_a_rule_that_fails_takes_nothing_from_the_others(
    broken: Callable[..., Iterator[Finding]], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(4, "nccl")
    job.steps(8)
    job.hang({2})
    rules = tuple(replace(rule, evaluate=broken) if rule.code == "FX113" else rule for rule in discover())
    monkeypatch.setattr("forensics.rules.diagnosis.discover", lambda: rules)
    with open_case([loose(job, tmp_path)]) as case:
        case.execute(
            "INSERT INTO stacks (source_id, rank, pid, thread, sample) SELECT source_id, 2, 1, 1, 0 FROM sources LIMIT 1"
        )
        verdict = diagnose(case)
    assert verdict.suspects[0].ranks == (2,)
    (label,) = [label for label in verdict.labels if label.label == "rule_failed"]
    assert (label.axis, error in label.reason, "test_supply.py:" in label.reason) == ("FX113", True, True)


def _cannot_read(roster: Roster) -> SlownessSigns:
    raise IndexError(f"of {len(roster.ranks)} ranks")


def test_signs_that_cannot_be_read_take_no_verdict_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job moves; it is not called healthy, and says why."""
    monkeypatch.setattr("forensics.rules.soundness.slowness_signs", _cannot_read)
    first = Job(4, "nccl")
    first.steps(12)
    files = {f"rank{rank}.fr.0.json": as_json(first.dump(rank)) for rank in range(4)}
    first.steps(12)
    files |= {f"rank{rank}.fr.1.json": as_json(first.dump(rank)) for rank in range(4)}
    with open_case([write(tmp_path, files)]) as case:
        verdict = diagnose(case)
    assert (verdict.outcome, verdict.suspects) == (Outcome.INCONCLUSIVE, ())
    assert "failed, please report it: IndexError of 4 ranks" in verdict.summary
