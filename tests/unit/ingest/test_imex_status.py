"""Connections of NVLink between hosts: the one that is apart, and tables that show nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import read, sample


def table(*rows: str) -> str:
    count = len(rows[0].split())
    head = f"Nodes From\\To  {'   '.join(map(str, range(count)))}\n"
    body = "".join(f"       {number}       {row}\n" for number, row in enumerate(rows))
    return f"{head}{body}Node Configuration: {', '.join(f'{n} - 10.0.0.{n} - nv-{n}' for n in range(count))}\n"


def apart(text: str) -> list[str]:
    result = read(text.encode(), "imex.txt")
    assert result.ingester == "imex_status"
    return [row["subject"] for row in result.rows("log_events")]


def test_the_sample() -> None:
    assert [row["subject"] for row in sample("imex_status/handmade_one_apart.txt").rows("log_events")] == ["nv-b"]


@pytest.mark.parametrize("above", ["", "$ sudo nvidia-imex-ctl -N\n"])
def test_the_one_apart_is_where_to_begin(tmp_path: Path, above: str) -> None:
    (tmp_path / "imex.txt").write_text(above + table("C C D", "C C D", "I I I"))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert "nv-2" in verdict.leads[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (table("C C C", "C C C", "C C C"), []),
        (table("C D C", "D C C", "C C C"), []),  # either end
        (table("C D D C C", "D I I I I", "D I I I I", "C D D C C", "C D D C C"), ["nv-1", "nv-2"]),
        (table("C D", "I I"), []),  # of two, nothing shows which
        (table("C C D", "C C D", "I I I") + table("C C C", "C C C", "C C C"), []),  # it came back
        (table("C C D", "C C D", "I I I").replace("       0       C C D\n", ""), []),  # a row is missing
    ],
)
def test_what_tables_show(text: str, found: list[str]) -> None:
    assert apart(text) == found


def test_several_are_no_lead(tmp_path: Path) -> None:
    (tmp_path / "imex.txt").write_text(table("C D D C C", "D I I I I", "D I I I I", "C D D C C", "C D D C C"))
    assert not verdict_of(tmp_path).leads


def test_cut_and_hostile_tables() -> None:
    assert read(b"Nodes From\\To  0   1\n" + b"9" * 5_000_000, "imex.txt").problems
