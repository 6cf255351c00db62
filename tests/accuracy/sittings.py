"""Evidence sat once before anything was mended for it, docs/accuracy-sittings.json, and its part of docs/accuracy.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.accuracy.tally import Tally

STORED = Path(__file__).parents[2] / "docs/accuracy-sittings.json"
EVIDENCE = {
    "real": "real jobs of programs that are not in the repository (torch; gloo on CPUs, in one set NCCL on a GPU)",
    "made": "evidence by other generators than the simulator, and traces of the simulator",
    "simulated": "bundles of the simulator, suites of `forensics evaluate` on a seed that was not seen before",
    "written": "logs, tables, stacks and folders, each written anew after a public report",
}
"""What a set is made of, by the key that the file has."""
JOBS = ("hung", "ended", "slow", "sound", "of all kinds", "at fault", "sound or unrelated")
"""Kinds of jobs, in the order of the page. `of all kinds` is hung, slow and sound ones, `at fault` all but sound ones."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """One set in one form: in how many cases the ranks were right, and in how many an innocent one was named."""

    set: str
    evidence: str
    jobs: str
    form: str
    right: int
    others: int
    cases: int

    def tally(self) -> Tally:
        return Tally(self.right, self.others, self.cases)


def stored() -> list[Sitting]:
    """All of the file, in its order, which is that of their days."""
    return [Sitting(**row) for row in json.loads(STORED.read_text(encoding="utf-8"))["sittings"]]


def pooled(sittings: Iterable[Sitting]) -> dict[tuple[str, str, str], Tally]:
    """Sums over all sets of one evidence, kind of jobs and form, in the order of the page."""
    found: dict[tuple[str, str, str], Tally] = {}
    for one in sittings:
        key = (one.evidence, one.jobs, one.form)
        found[key] = found.get(key, Tally(0, 0, 0)) + one.tally()
    kinds = tuple(EVIDENCE)
    order = sorted(found, key=lambda key: (kinds.index(key[0]), JOBS.index(key[1]), -found[key].cases, key[2]))
    return {key: found[key] for key in order}


def overview(sittings: Sequence[Sitting]) -> str:
    """A table for each evidence: by kind of jobs and form, all sets together."""
    sums = pooled(sittings)
    parts = []
    for evidence, about in EVIDENCE.items():
        lines = ["| jobs | given | right | named others |", "|---" * 4 + "|"]
        lines += [f"| {jobs} | {form} | {sums[key].cells()} |" for key in sums for of, jobs, form in [key] if of == evidence]
        parts.append(f"{about[0].upper()}{about[1:]}:\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def every(sittings: Sequence[Sitting]) -> str:
    """One line for each set and form."""
    lines = ["| set | jobs | given | right | named others | cases |", "|---" * 6 + "|"]
    lines += [f"| {one.set} | {one.jobs} | {one.form} | {one.right} | {one.others} | {one.cases} |" for one in sittings]
    return "\n".join(lines)
