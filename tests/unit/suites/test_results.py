"""Rows of an exam in a file: what is written stays, an exam that was cut off goes on, and rows that do not fit are refused."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.errors import ForensicsError
from forensics.fixtures.suites import exam, results, tables
from forensics.fixtures.suites.baselines.stages import Routing
from forensics.fixtures.suites.documents import pieces
from forensics.fixtures.suites.field import Sitting, Standing
from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.registry import SUITES
from forensics.fixtures.suites.results import opened
from forensics.fixtures.suites.rows import Comparison, Row, read, written
from forensics.fixtures.suites.scoring import Score
from tests.unit.suites.documents import fault, suspect, truth, verdict
from tests.unit.suites.rows import row

HANG = SUITES["hang"]
RIGHT, NOT_MADE = (verdict("hang", suspect(5)), truth("hang", fault(5))), (None, truth("hang", fault(5)))
WHERE = exam.Where(1)


def _row(number: int, said: Any = RIGHT) -> Row:
    return row(number, *said, sources=("recorder",))


def _ask(monkeypatch: pytest.MonkeyPatch, *, fails_at: int | None = None) -> list[int]:
    """Answer cases without running them; the numbers of those that were asked for."""
    asked: list[int] = []

    def answered(cases: Sequence[Case], workers: int, *, in_field: bool) -> Iterator[Row]:
        for case in cases:
            if case.number == fails_at:
                raise KeyboardInterrupt
            asked.append(case.number)
            yield _row(case.number)

    monkeypatch.setattr(exam, "on_processes", answered)
    return asked


def _sit(path: Path | None, cases: int, *, in_field: bool = False) -> tuple[str, list[tuple[int, int]]]:
    seen: list[tuple[int, int]] = []
    with opened(path, in_field=in_field) as rows:
        found = exam.run(exam.listed([HANG], 7, [cases]), rows, WHERE, lambda *stated: seen.append(stated), in_field=in_field)
        return tables.text(found), seen


def test_a_row_is_the_same_after_it_was_written_and_read() -> None:
    routing = Routing(("data", "forward"), (0.75, 0.25), 1, True, True, False)
    sitting = Sitting(1, ("cut", "merged"), Standing.SILENT, "nothing", (3, 4))
    full = replace(
        _row(3), methods={"missing rank": Comparison((5, 6), Score.PARTIAL, (6,), (((5, 6), "host"),))},
        routings={"frontier": routing}, field_forms=(sitting,), standing=Standing.EXACT, absent=("nic",),
    )  # fmt: skip
    assert read(written(full)) == full
    assert read(written(_row(4, NOT_MADE))) == _row(4, NOT_MADE)


def test_an_exam_that_was_cut_off_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "exam.jsonl"
    first = _ask(monkeypatch, fails_at=3)
    with pytest.raises(KeyboardInterrupt):
        _sit(path, 5)
    assert first == [0, 1, 2]
    with path.open("ab") as file:
        file.write(written(_row(3))[:40])
    second = _ask(monkeypatch)
    found, seen = _sit(path, 5)
    assert second == [3, 4]
    assert seen == [(3, 5), (4, 5), (5, 5)]
    _ask(monkeypatch)
    assert found == _sit(None, 5)[0]


def test_more_cases_are_added_to_those_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _ask(monkeypatch)
    _sit(tmp_path / "exam.jsonl", 2)
    _sit(tmp_path / "exam.jsonl", 4)
    assert asked == [0, 1, 2, 3]


def test_cases_that_ended_in_an_error_are_run_again_and_the_new_row_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "exam.jsonl"
    with opened(path, in_field=False) as rows:
        rows.add(_row(0, NOT_MADE))
        rows.add(_row(1))
    asked = _ask(monkeypatch)
    found, _ = _sit(path, 2)
    assert asked == [0]
    assert "no verdict" not in found
    with opened(path, in_field=False) as rows:
        assert rows.row(Case("hang", 7, 0)).error == ""


def test_rows_of_another_forensics_or_of_another_kind_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "exam.jsonl", tmp_path / "notes.txt"
    _ask(monkeypatch)
    _sit(path, 1)
    before = path.read_bytes()
    with pytest.raises(ForensicsError, match="without --field"):
        _sit(path, 1, in_field=True)
    monkeypatch.setattr(results, "digest", lambda: "another")
    with pytest.raises(ForensicsError, match="another forensics"):
        _sit(path, 1)
    for content in ("my notes", "my\nnotes\n", '["a list"]\n'):
        other.write_text(content)
        with pytest.raises(ForensicsError, match="holds no rows"):
            _sit(other, 1)
        assert other.read_text() == content
    assert path.read_bytes() == before


def test_two_exams_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "exam.jsonl"
    with opened(path, in_field=False), pytest.raises(ForensicsError, match="in use"), opened(path, in_field=False):
        pass


def test_a_line_that_is_no_row_is_stated_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "exam.jsonl"
    with opened(path, in_field=False) as rows:
        rows.add(_row(0))
    with path.open("ab") as file:
        file.write(b'{"case": 1}\n')
    before = path.read_bytes()
    with pytest.raises(ForensicsError, match="damaged at byte"), opened(path, in_field=False):
        pass
    assert path.read_bytes() == before


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Five hundred cases whose verdicts have 20 KB each: 10 MB of rows, of which a fraction is in memory at any time."""
    said = {**RIGHT[0], "summary": "x" * 20_000}
    cases = [Case("hang", 7, number) for number in range(500)]
    tracemalloc.start()
    with opened(tmp_path / "exam.jsonl", in_field=False) as rows:
        for case in cases:
            rows.add(_row(case.number, (said, RIGHT[1])))
        found = [(HANG, rows.of(cases))]
        assert "500" in tables.text(found)
        assert sum(map(len, pieces(found, 7))) > 10e6
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6
