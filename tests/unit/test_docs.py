"""The documentation against what it documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forensics.case import describe
from forensics.case.database import VIEWS, new_case
from forensics.ingest import discover

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "rules").rglob("*.md")),
]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Names a link can point at, made from the headings as forges make them."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def modules_with(constant: str, folder: str) -> list[Path]:
    definition = re.compile(rf"^{constant}\b.*=", re.MULTILINE)
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if definition.search(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        if not aim.exists() or (anchor and anchor not in anchors(aim)):
            broken.append(target)
    assert broken == []


def test_case_page_is_current() -> None:
    assert (ROOT / "docs/case.md").read_text(encoding="utf-8") == describe.page(), "run `make docs`"


def test_every_view_is_described_with_the_columns_it_has() -> None:
    case = new_case()
    described = {view.name: {column.name for column in view.columns} for view in describe.views()}
    assert set(described) == set(VIEWS) == {path.stem for path in (ROOT / "forensics/case/views").glob("*.sql")}
    for name, columns in described.items():
        assert columns <= {column for column, *_ in case.execute(f"DESCRIBE {name}").fetchall()}


def test_every_table_and_column_of_the_schema_is_described() -> None:
    schema = (ROOT / "forensics/case/schema.sql").read_text(encoding="utf-8")
    documented = describe.tables(schema)
    assert [table.name for table in documented] == re.findall(r"^CREATE TABLE (\w+)", schema, re.MULTILINE)
    assert sum(len(table.columns) for table in documented) == len(re.findall(r"^    \w+ [A-Z]", schema, re.MULTILINE))


def test_a_column_without_a_comment_is_refused() -> None:
    with pytest.raises(ValueError, match="rank INTEGER"):
        describe.tables("-- table: One.\nCREATE TABLE one (\n    rank INTEGER\n);\n")


FOREIGN = [ingester for ingester in discover() if ingester.kind != "collection"]
"""Ingesters of formats that others define; what a collection says of itself is described in docs/bundle.md."""


@pytest.mark.parametrize("name", [ingester.name for ingester in FOREIGN])
def test_every_ingester_has_a_page_and_a_sample(name: str) -> None:
    assert (ROOT / "ingest" / name / "__init__.py").is_file()
    assert (ROOT / "docs/formats" / f"{name.replace('_', '-')}.md").is_file()
    assert any((ROOT / "fixtures/samples" / name).glob("*"))


@pytest.mark.parametrize("module", modules_with("RULE", "rules"), ids=named)
def test_every_rule_has_a_page_and_a_scenario(module: Path) -> None:
    assert module.with_suffix(".md").is_file()
    assert any((ROOT / "fixtures/scenarios" / module.stem.replace("_", "-")).glob("*"))


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=named)
def test_every_page_can_be_reached_from_the_index(page: Path) -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))}
    assert page == index or page in linked or page.parent in linked
