"""Every cell of Pulse's table 4 once, beside the methods on whole operators: `python -m tests.benchmarks.nic_matrix PAGE SEED`.

On machines as equal as the paper's, of which nothing of the collection was lost. With `--rows FILE` cells that ended before are
not run again; after `--minutes` none is begun. Cells come in an order that visits every kind early; the page counts them.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import TESTBED
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.suites.figures import Figures, by_machine
from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.nearness import Nearness, nearness
from forensics.fixtures.suites.nic import CELLS, GPT, KINDS, MOE, NEIGHBOURS, SUITE, cell, drawn
from forensics.fixtures.suites.preparing import laid_down
from forensics.fixtures.suites.results import Results, opened
from forensics.fixtures.suites.rows import Row, Rows, not_made
from forensics.fixtures.suites.running import examined, row

METHOD = "operator level"
JOBS = (GPT, MOE, NEIGHBOURS)
_PULSE = {
    "computation stops": ("near 100 %", "100 %"),
    "computation slow": ("over 80 %", "100 %"),
    "communication stops": ("near 100 %", "100 %"),
    "communication slow": ("near 100 %", "100 %"),
}
"""Figures 22 and 23 as 8.1 tells them: nearly all, but for 16 % false alarms where a CPU is short."""
_PLACE = re.compile(r"(?<=<!-- nic matrix -->\n).*?(?=<!-- /nic matrix -->)", re.DOTALL)


def sit(case: Case) -> Row:
    """Run the cell of this number, and score what is said of it."""
    random = case.random()
    found = drawn(*cell(case.number))
    found = replace(found, job=replace(found.job, noise=TESTBED))
    with tempfile.TemporaryDirectory(prefix="case-") as folder:
        try:
            made = simulate(
                found.job, [parse(text) for text in found.faults], int(random.integers(2**31)),
                iterations=found.iterations, onset=found.onset,
            )  # fmt: skip
            prepared = laid_down(SUITE, found, made, Path(folder))
        except Exception as error:
            return not_made(case, error)
        return row(case, prepared, examined(prepared, (METHOD,)))


def run(cases: Sequence[Case], results: Results, minutes: float) -> Rows:
    """Run the cells that have no row; the rows of all that have one when the time is over."""
    end = time.monotonic() + 60 * minutes
    for case in cases:
        if case not in results and time.monotonic() < end:
            results.add(sit(case))
    return results.of([case for case in cases if case in results])


def page(rows: Rows, seed: int) -> str:
    """A row for each kind and level, with a column for each job: how near forensics and the methods come."""
    at = {cell(one.case.number): one for one in rows}
    levels = [(kind, level) for kind in KINDS for level in kind.levels]
    lines = [f"| kind | level | {' | '.join(JOBS)} |\n|---|---|---|---|---|\n"]
    for kind, level in levels:
        words = [_words(at.get((kind, level, job))) if job in kind.jobs else "-" for job in JOBS]
        lines.append(f"| {kind.name} | {level.removeprefix(':') or '-'} | {' | '.join(words)} |\n")
    mild = sum(not one.is_positive for one in rows)
    failed = sum(bool(one.error) for one in rows)
    said = f"Seed {seed}; {len(rows)} of {len(CELLS)} cells, of which {mild} cost less than a tenth of an iteration"
    return f"{''.join(lines)}\n{said}{f' and {failed} ended in an error' if failed else ''}.\n\n{''.join(_figures(rows))}"


def _words(one: Row | None) -> str:
    """forensics / the methods; in parentheses what costs less than the gate."""
    if one is None:
        return "not run"
    if one.error:
        return "error"
    words = f"{_near(one).level} / {_near(one, METHOD).level}"
    return words if one.is_positive else f"({words})"


def _near(one: Row, method: str | None = None) -> Nearness:
    if method:
        return nearness(one.methods[method].blames, one.truth)
    suspects = one.verdict["suspects"] if one.verdict else ()
    return nearness([(each["ranks"], each["stage"].get("component")) for each in suspects], one.truth)


def _figures(rows: Rows) -> Iterator[str]:
    head = ("class", "cells", "published (Pulse)", "forensics", "wrong accusations", "operator level", "wrong accusations")
    yield f"| {' | '.join(head)} |\n{'|---' * len(head)}|\n"
    for group, published in _PULSE.items():
        mine = [one for one in rows if SUITE.groups.get(one.about) == group and not one.error and one.is_positive]
        here, theirs = _of(mine), _of(mine, METHOD)
        cells = (
            group, str(len(mine)), f"precision {published[0]}, recall {published[1]}",
            *_stated(here, len(mine)), *_stated(theirs, len(mine)),
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |\n"


def _of(rows: Iterable[Row], method: str | None = None) -> Figures:
    return by_machine((True, _near(one, method)) for one in rows)


def _stated(found: Figures, cells: int) -> tuple[str, str]:
    return f"{found.hits} found", f"{found.accused} of {cells}"


def main() -> None:
    """Run, and put the result between the marks of a page."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("page", type=Path)
    asked.add_argument("seed", type=int)
    asked.add_argument("--cells", type=int, default=len(CELLS))
    asked.add_argument("--minutes", type=float, default=float("inf"))
    asked.add_argument("--rows", type=Path)
    given = asked.parse_args()
    with opened(given.rows, in_field=False) as results:
        rows = run([Case(SUITE.name, given.seed, number) for number in range(given.cells)], results, given.minutes)
        found = page(rows, given.seed)
    given.page.write_text(_PLACE.sub(lambda _: found, given.page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
