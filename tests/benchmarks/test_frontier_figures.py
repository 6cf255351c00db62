"""The figures of StageFrontier that `forensics evaluate frontier` has not, printed beside the published ones."""

from __future__ import annotations

from tests.benchmarks import frontier_studies as studies
from tests.benchmarks.frontier_studies import Table

SEED = 1


def shown(title: str, table: Table) -> None:
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table)
    print(f"\n{title}", *lines, sep="\n  ")


def test_the_fifty_rows() -> None:
    rows = list(studies.rows_of_e3(SEED))
    assert len(rows) == 50
    shown("table 14: 50 rows by scenario", studies.scenarios(rows))
    shown("table 15: threshold of the candidate set, 50 rows", studies.thresholds(rows))


def test_detectability() -> None:
    shown("figure 3b: one rank's batches late", studies.detectability())


def test_callbacks() -> None:
    shown("section 6.2, table 14: callbacks of one of 8 ranks late", studies.callbacks())


def test_removed_injection() -> None:
    shown("E6: 120 ms in the callbacks of one of 8 ranks, with a barrier, in B only", studies.removal())
