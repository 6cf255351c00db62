from __future__ import annotations

import json as stdlib_json
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from forensics import model
from forensics.model import Evidence, Impact, Mechanism, Outcome, Resource, TreeLine, Verdict, WaitKind
from forensics.report import json
from tests.unit.report.verdicts import DATALOADER, HANG, HEALTHY, SINCE

SCHEMA: dict[str, Any] = stdlib_json.loads((Path(__file__).parents[3] / "docs/verdict.schema.json").read_text())
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}

FULL = replace(
    HANG,
    suspects=(
        replace(
            DATALOADER,
            resource=Resource(gpu="1", nic="mlx5_0", peer_ranks=(3,)),
            mechanism=Mechanism("not_transmitted", "local"),
            impact=Impact(1_200_000_000, 0.25, 50, "critical_path"),
            since=SINCE,
        ),
    ),
)


@pytest.mark.parametrize("char", ["\x1b", "\x7f", "\x85", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "\U000e0001"])
def test_what_a_terminal_would_obey_is_escaped_and_kept(char: str) -> None:
    text = f"a{char}b \u00fc \u6f22 \U0001f600"
    content = json.render(replace(HANG, summary=text))
    assert content.decode().replace("\n", "").isprintable()
    assert stdlib_json.loads(content)["summary"] == text
    assert "\u00fc \u6f22 \U0001f600" in content.decode()


def errors(value: Any, rule: dict[str, Any], path: str = "$") -> list[str]:
    """What JSON Schema says against `value`, for the keywords the schema uses; also keys that it does not list."""
    unknown = set(rule) - {"$schema", "$defs", "$ref", "title", "description", "type", "required", "properties"}
    assert not unknown - {"items", "enum", "const", "anyOf"}, f"keyword not checked: {unknown}"
    if "$ref" in rule:
        return errors(value, SCHEMA["$defs"][rule["$ref"].removeprefix("#/$defs/")], path)
    if "anyOf" in rule:
        return min((errors(value, each, path) for each in rule["anyOf"]), key=len)
    if "const" in rule or "enum" in rule:
        return [] if value in rule.get("enum", [rule.get("const")]) else [f"{path}: {value!r} is not in the list"]
    return [*_type_errors(value, rule, path), *_member_errors(value, rule, path)]


def _type_errors(value: Any, rule: dict[str, Any], path: str) -> list[str]:
    names = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
    allowed = tuple(each for name in names for each in TYPES[name])
    good = isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))
    return [] if good else [f"{path}: {value!r} is not {names}"]


def _member_errors(value: Any, rule: dict[str, Any], path: str) -> list[str]:
    found: list[str] = []
    if isinstance(value, list):
        found += [e for i, each in enumerate(value) for e in errors(each, rule["items"], f"{path}[{i}]")]
    if isinstance(value, dict) and "properties" in rule:
        found += [f"{path}: {key} is missing" for key in rule.get("required", []) if key not in value]
        found += [f"{path}: {key} is not in the schema" for key in value if key not in rule["properties"]]
        known = {key: each for key, each in rule["properties"].items() if key in value}
        found += [e for key, each in known.items() for e in errors(value[key], each, f"{path}.{key}")]
    return found


@pytest.mark.parametrize("verdict", [HANG, HEALTHY, FULL], ids=["hang", "healthy", "full"])
def test_documents_follow_the_published_schema(verdict: Verdict) -> None:
    assert errors(stdlib_json.loads(json.render(verdict)), SCHEMA) == []


def test_the_schema_rejects_a_wrong_document() -> None:
    document = stdlib_json.loads(json.render(HANG))
    document["suspects"][0]["cause"] = "bad_luck"
    document["suspects"][0]["ranks"] = "2"
    del document["since"]
    assert len(errors(document, SCHEMA)) == 3


def test_contract_keys_come_first_and_in_order() -> None:
    keys = list(stdlib_json.loads(json.render(HANG)))
    assert keys[:11] == SCHEMA["required"]


@pytest.mark.parametrize(
    ("enum", "rule"),
    [
        (model.Outcome, SCHEMA["properties"]["outcome"]),
        (model.StageName, SCHEMA["$defs"]["stage_name"]),
        (model.Component, SCHEMA["$defs"]["stage"]["properties"]["component"]),
        (model.Cause, SCHEMA["$defs"]["suspect"]["properties"]["cause"]),
        (model.Anomaly, SCHEMA["$defs"]["suspect"]["properties"]["anomaly"]),
        (model.Granularity, SCHEMA["$defs"]["suspect"]["properties"]["granularity"]),
        (model.Members, SCHEMA["$defs"]["suspect"]["properties"]["members"]),
        (model.Confidence, SCHEMA["$defs"]["suspect"]["properties"]["confidence"]),
    ],
)
def test_closed_lists_are_those_of_the_vocabulary(enum: type[StrEnum], rule: dict[str, Any]) -> None:
    assert rule["enum"] == [str(member) for member in enum]


def test_wait_kinds_of_the_schema_are_those_of_the_vocabulary() -> None:
    allowed = SCHEMA["properties"]["tree"]["items"]["properties"]["wait"]["enum"]
    assert allowed == [None, *(str(kind) for kind in WaitKind)]


def test_every_field_of_the_verdict_is_in_the_document() -> None:
    document = stdlib_json.loads(json.render(HANG))
    assert {field.name for field in fields(Verdict)} <= set(document)


def test_evidence_key_is_for() -> None:
    document = stdlib_json.loads(json.render(HANG))
    assert [item["for"] for item in document["suspects"][0]["evidence"]] == [True, True, False]


def test_same_verdict_same_bytes_and_final_newline() -> None:
    first, second = json.render(HANG), json.render(replace(HANG))
    assert first == second
    assert first.endswith(b"}\n")


def test_names_that_were_no_text_do_not_stop_the_report() -> None:
    hostile = replace(HANG, tree=(TreeLine(0, (0,), ("read\udc80 \x1b[31m",), None),), outcome=Outcome.HANG)
    frames = stdlib_json.loads(json.render(hostile))["tree"][0]["frames"]
    assert frames == ["read\\udc80 \x1b[31m"]


def test_a_statement_without_a_source_has_a_null_source() -> None:
    verdict = replace(HANG, warnings=(Evidence("cut"),))
    assert stdlib_json.loads(json.render(verdict))["warnings"] == [{"statement": "cut", "for": True, "source": None}]
