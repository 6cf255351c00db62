"""The table of Pulse's table 4: what is counted as found, as a wrong accusation, and as not run."""

from __future__ import annotations

from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.nic import CELLS, GPT, cell
from forensics.fixtures.suites.rows import Comparison, Row
from forensics.fixtures.suites.scoring import Score
from tests.benchmarks.nic_matrix import METHOD, page


def number_of(kind: str, level: str = "", job: str = GPT) -> int:
    return next(n for n in range(len(CELLS)) if (cell(n)[0].name, *cell(n)[1:]) == (kind, level, job))


def row(number: int, component: str, said: list[int], operators: tuple[int, ...], outcome: str = "slowdown") -> Row:
    """A fault of rank 9; hosts have eight ranks."""
    suspects = [{"ranks": said, "stage": {"component": "communication"}}] if said else []
    truth = {"outcome": outcome, "faults": [{"ranks": [9], "stage": {"component": component}}], "gpus_per_host": 8}
    methods = {METHOD: Comparison(operators, Score.WRONG, (), ((operators, "communication"),))}
    verdict = {"outcome": outcome, "suspects": suspects}
    case = Case("nic", 5, number)
    return Row(case, cell(number)[0].name, "", True, outcome != "healthy", truth, verdict, None, methods)


def test_a_cell_says_how_near_both_come_and_what_costs_too_little_is_not_counted() -> None:
    rows = [
        row(number_of("PCIe downgrade", ":50%"), "communication", [9, 10], (1, 9)),
        row(number_of("PCIe downgrade", ":40%"), "communication", [], (1, 9)),
        row(number_of("PCIe downgrade", ":30%"), "communication", [17], (1, 9), outcome="healthy"),
        row(number_of("CPU throttling"), "host", [9], (9,)),
    ]
    found = page(rows, 5)
    assert "| PCIe downgrade | 50% | machine / group | not run | not run |" in found
    assert "| PCIe downgrade | 40% | nobody / group |" in found and "| PCIe downgrade | 30% | (elsewhere / group) |" in found
    assert "| CPU throttling | - | misjudged / misjudged |" in found and "4 of 60 cells, of which 1 cost" in found
    slow = next(line for line in found.splitlines() if line.startswith("| communication slow"))
    assert slow.split(" | ")[1:] == [slow.split(" | ")[1], slow.split(" | ")[2], "1 found", "0 of 2", "2 found", "2 of 2 |"]
