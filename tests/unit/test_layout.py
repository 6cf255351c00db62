"""The shape of the tree that the packaging and the reading of it rely on."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("forensics", "ingest", "rules", "fixtures", "native")
LINKS = ("ingest", "rules", "fixtures")
TOP = {"forensics", "ingest", "native", "rules", "fixtures", "tests", "docs"}
PAGES = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "pyproject.toml"}
IGNORED = {"build", "dist"}
MEANINGLESS = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}
LONGEST_FILE = 300
LONGEST_FUNCTION = 60
MEDIAN_FUNCTION = 12


def product(*suffixes: str) -> Iterator[Path]:
    """Files of the product, each under its real path: the links are not followed."""
    for top in PRODUCT:
        for path in sorted((ROOT / top).rglob("*")):
            linked = top == "forensics" and path.relative_to(ROOT / top).parts[0] in LINKS
            if path.suffix in suffixes and not linked:
                yield path


def function_lengths(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("name", LINKS)
def test_plug_in_folders_are_relative_links(name: str) -> None:
    link = ROOT / "forensics" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name
    assert link.resolve() == ROOT / name


def test_top_level_holds_nothing_else() -> None:
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")} - IGNORED
    folders = {name for name in found if (ROOT / name).is_dir()}
    sources = {name for name in found - folders if Path(name).suffix in (".py", ".md", ".toml", ".cfg", ".c", ".sh", "")}
    assert folders == TOP
    assert sources == PAGES


def test_names_say_what_is_inside() -> None:
    assert [path for path in product(".py", ".c", ".h") if path.stem.strip("_") in MEANINGLESS] == []


def test_files_fit_a_mind() -> None:
    lengths = {
        path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in product(".py", ".c", ".h")
    }
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_functions_are_small() -> None:
    lengths = dict(pair for path in product(".py") for pair in function_lengths(path))
    assert statistics.median(lengths.values()) <= MEDIAN_FUNCTION
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def plugins(folder: str, constant: str) -> dict[str, Path]:
    """Modules of a plug-in folder that define its constant, by import name."""
    modules = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        targets = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]
        targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
        if any(isinstance(target, ast.Name) and target.id == constant for target in targets):
            modules[".".join(("forensics", *path.relative_to(ROOT).with_suffix("").parts))] = path
    return modules


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize(("folder", "constant"), [("ingest", "INGESTER"), ("rules", "RULE")])
def test_plug_ins_do_not_know_each_other(folder: str, constant: str) -> None:
    found = plugins(folder, constant)
    assert {name: known for name, path in found.items() if (known := imported(path) & found.keys() - {name})} == {}


def compared_numbers(path: Path) -> Iterator[str]:
    """Numbers that stand bare in comparisons; places in a row and the numbers with no choice in them are not meant."""
    for compare in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        parts: list[ast.AST] = [compare] if isinstance(compare, ast.Compare) else []
        while parts:
            node = parts.pop()
            if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in (0, 1, 2, 100):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.value!r}"
            parts += [node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node)


def test_numbers_that_judge_have_a_name() -> None:
    """A threshold with its reason, or a constant that says what it is."""
    assert sorted({number for path in (ROOT / "rules").rglob("*.py") for number in compared_numbers(path)}) == []


def test_results_of_queries_are_fetched_whole() -> None:
    """A result that is left open makes DuckDB 2 refuse the next table of arrays: of one row too, all is fetched."""
    sources = (path for path in product(".py") if path.relative_to(ROOT).parts[0] in ("forensics", "rules"))
    kept_open = [path for path in sources if re.search(r"\.fetch(?:one|many)\(", path.read_text(encoding="utf-8"))]
    assert kept_open == []
