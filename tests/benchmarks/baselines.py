"""Methods that the papers compare with, beside their published figures: `python -m tests.benchmarks.baselines PAGE SEED`.

Each is given as many cases of its paper's kinds as `--cases` says, on machines as equal as the papers had
them. Nothing is diagnosed, only what a method reads is written.
With `--rows FILE` cases that ended before are not run again; after `--minutes` none is begun; the page counts them.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

from forensics.fixtures.simulator import losses
from forensics.fixtures.simulator.job import TESTBED
from forensics.fixtures.simulator.truth import truth
from forensics.fixtures.suites.baselines.methods import OF_OPERATORS
from forensics.fixtures.suites.baselines.stages import routings
from forensics.fixtures.suites.figures import compared, of_method
from forensics.fixtures.suites.interface import Case, Suite
from forensics.fixtures.suites.intervals import share
from forensics.fixtures.suites.matrix import stage_times
from forensics.fixtures.suites.preparing import Prepared, prepare, simulated, traced
from forensics.fixtures.suites.registry import SUITES
from forensics.fixtures.suites.results import Results, opened
from forensics.fixtures.suites.rows import Row, Rows, not_made
from forensics.fixtures.suites.running import examine, row
from forensics.fixtures.suites.tables import number

COMPARED = ("frontier", "accumulation", "sharding", "hang", "slowdown")
"""Suites whose papers give figures of other methods; those of Pulse are about machines (`tests.benchmarks.fidelity`)."""
CASES = 90
_PLACE = re.compile(r"(?<=<!-- baselines -->\n).*?(?=<!-- /baselines -->)", re.DOTALL)


def chosen(suite: Suite, seed: int, most: int) -> list[Case]:
    """The first cases of a suite that are of its paper's kinds, or of a kind with a published figure of its own (a control)."""
    alone = {one.measure.partition(", ")[2] for one in suite.published}
    every = (Case(suite.name, seed, each) for each in count())
    drawn = ((case, suite.draw(case.random(), case.number)) for case in every)
    return list(islice((case for case, one in drawn if one.as_published or one.about in alone), most))


def compare(case: Case) -> Row:
    """What the methods of a suite say of one case."""
    with tempfile.TemporaryDirectory(prefix="case-") as folder:
        try:
            prepared = _prepared(case, Path(folder))
        except Exception as error:
            return not_made(case, error)
        asked = SUITES[case.suite].baselines
        return row(case, prepared, examine(prepared.bundle, asked, methods_only=True) if asked else {})


def _prepared(case: Case, folder: Path) -> Prepared:
    """A case without what no method of its suite reads."""
    suite = SUITES[case.suite]
    if set(suite.baselines) - OF_OPERATORS:
        return prepare(case, folder, TESTBED)
    drawn, made = simulated(case, TESTBED)
    true = truth(made, losses.drawn(made.job.parallel.world, made.random("losses"), only=("recorder",)))
    path = folder / "operators.tar"
    if suite.baselines:
        traced(made, {key: value for key, value in drawn.options.items() if key != "sources"}, path)
    ranked = routings(stage_times(made)) if suite.stages else {}
    return Prepared(path, true, drawn.about, drawn.as_published, drawn.job.name, routings=ranked)


def sit(cases: Sequence[Case], results: Results, minutes: float) -> list[Case]:
    """Run the cases that have no row; the cases that have one when the time is over."""
    end = time.monotonic() + 60 * minutes
    for case in cases:
        if case not in results and time.monotonic() < end:
            results.add(compare(case))
    return [case for case in cases if case in results]


def taken_in_turns(names: Sequence[str], seed: int, number: int) -> list[Case]:
    """Cases of some suites, so that each has some whenever the time is over."""
    suites = [chosen(SUITES[name], seed, number) for name in names]
    return [case for turn in zip(*suites, strict=True) for case in turn]


def page(found: Sequence[tuple[Suite, Rows]], seed: int) -> str:
    """A table: each method with its published figures and those reached here, and the share of cases that it gets right."""
    lines = [line for suite, rows in found for line in _lines(suite, rows)]
    head = "| suite | method | cases | measure | published | here |\n|---|---|---|---|---|---|\n"
    errors = sum(bool(one.error) for _, rows in found for one in rows)
    said = f"Seed {seed}; {errors} cases ended in an error." if errors else f"Seed {seed}."
    return head + "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\n{said}\n"


def _lines(suite: Suite, rows: Rows) -> Iterator[tuple[str, ...]]:
    for name, one in compared(suite, rows).items():
        cases = sum(name in each.methods or name in each.routings for each in rows)
        for measure, here in one["measured"].items():
            yield suite.name, name, str(cases), measure, number(one["published"].get(measure)), number(here)
        if name in suite.baselines:
            figures = of_method(rows, name)
            yield suite.name, name, str(cases), "found", "-", share(figures.hits, figures.hits + figures.missed)


def main() -> None:
    """Run, and put the result between the marks of a page."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("page", type=Path)
    asked.add_argument("seed", type=int)
    asked.add_argument("--cases", type=int, default=CASES)
    asked.add_argument("--minutes", type=float, default=float("inf"))
    asked.add_argument("--rows", type=Path)
    asked.add_argument("--suites", nargs="+", choices=COMPARED, default=COMPARED)
    given = asked.parse_args()
    with opened(given.rows, in_field=False) as results:
        ended = sit(taken_in_turns(given.suites, given.seed, given.cases), results, given.minutes)
        mine = [(SUITES[name], [case for case in ended if case.suite == name]) for name in given.suites]
        found = page([(suite, results.of(cases)) for suite, cases in mine], given.seed)
    given.page.write_text(_PLACE.sub(lambda _: found, given.page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
