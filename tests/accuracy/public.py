"""Sits the logs modelled on public reports, and their part of docs/accuracy.md: `python -m tests.accuracy.public`."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from forensics.fixtures.suites.intervals import share
from forensics.report import json as json_report
from tests.accuracy.tally import Tally
from tests.recordings.verdicts import verdict_of

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "fixtures/field/public"
ROWS = ROOT / "docs/accuracy-public.json"
TITLE = "## Logs pasted in public"


class Score(StrEnum):
    """`EXACT`: the truth and nobody else. `GROUP`: a wider set that may be. `SILENT`: nobody, where somebody is at fault."""

    EXACT = "exact"
    GROUP = "group"
    SILENT = "silent"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Case:
    """One log and what an expert says from it alone; fixtures/field/public/README.md has the meaning of each field."""

    log: str
    source: str
    family: str
    outcome: tuple[str, ...]
    ranks: tuple[int, ...]
    acceptable: tuple[int, ...]
    cause: str | None
    reasoning: str


@dataclass(frozen=True, slots=True)
class Row:
    """One sitting of one case: who should be named, who was, and whether the outcome is one of the right ones."""

    log: str
    family: str
    truth: tuple[int, ...]
    named: tuple[int, ...]
    outcome: str
    outcome_right: bool
    score: Score


def cases() -> list[Case]:
    """The index, in its order."""
    index = json.loads((LOGS / "cases.json").read_text(encoding="utf-8"))
    return [Case(**_with_tuples(entry)) for entry in index]


def _with_tuples(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}


def score(suspects: Sequence[Mapping[str, Any]], case: Case) -> Score:
    """All ranks of all suspects count as named, alternatives included; a suspect without ranks names none."""
    named = {rank for suspect in suspects for rank in suspect["ranks"]}
    truth, allowed = set(case.ranks), {*case.ranks, *case.acceptable}
    if named == truth:
        return Score.EXACT
    if not named:
        return Score.SILENT
    one_of = all(suspect["members"] == "one_of" for suspect in suspects if suspect["ranks"])
    wide = len(named) > 1 and truth < named
    return Score.GROUP if wide and (named <= allowed or (one_of and truth)) else Score.WRONG


def sit(case: Case) -> Row:
    """The verdict on the log, given as the only file."""
    verdict = json.loads(json_report.render(verdict_of(LOGS / case.log)))
    named = tuple(sorted({rank for suspect in verdict["suspects"] for rank in suspect["ranks"]}))
    right = verdict["outcome"] in case.outcome
    return Row(case.log, case.family, case.ranks, named, verdict["outcome"], right, score(verdict["suspects"], case))


def figures(rows: Iterable[Row]) -> dict[str, int]:
    """Cases by what the truth is and what was said, and right outcomes."""
    found = list(rows)
    counts = Counter(f"{'named' if row.truth else 'nobody'} {row.score}" for row in found)
    keys = [f"{truth} {one}" for truth in ("named", "nobody") for one in Score if (truth, one) != ("nobody", Score.SILENT)]
    return {key: counts[key] for key in keys} | {"outcomes": sum(row.outcome_right for row in found), "cases": len(found)}


def section(rows: Sequence[Row], first: Mapping[str, int]) -> str:
    """The part of the page."""
    nobody = sum(not row.truth for row in rows)
    parts = [
        f"{TITLE}\n\n{len(rows)} [logs](../fixtures/field/public/README.md) modelled on public reports, each given as the\n"
        f"only file. In {nobody} of them an expert would name nobody. `python -m tests.accuracy.public` sits them again.",
        _totals({"first sitting, before the program was mended for them": first, "now": figures(rows)}),
        "Each case was written before the program had read it. Since the first sitting, which was blind, the set is known:\n"
        "later figures show what is kept, [not how new logs fare](#fresh-evidence-sat-once). **group** is a set that contains\n"
        "the truth, as far as the text can tell it.",
        _families(rows),
        _others([row for row in rows if row.score is not Score.EXACT]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n\n"


def _totals(sittings: Mapping[str, Mapping[str, int]]) -> str:
    lines = [
        "| sitting | right names, exact or group | silent | wrong names | right abstentions | right outcomes |",
        "|---|---|---|---|---|---|",
    ]
    for name, counted in sittings.items():
        to_name = sum(value for key, value in counted.items() if key.startswith("named "))
        nobody = sum(value for key, value in counted.items() if key.startswith("nobody "))
        right = counted["named exact"] + counted["named group"]
        wrong = counted["named wrong"] + counted["nobody wrong"]
        shares = [
            share(right, to_name),
            share(counted["named silent"], to_name),
            share(wrong, counted["cases"]),
            share(counted["nobody exact"], nobody),
            share(counted["outcomes"], counted["cases"]),
        ]
        lines.append(f"| {name} | {' | '.join(shares)} |")
    return "Shares with their 95 % intervals (Wilson):\n\n" + "\n".join(lines)


def _families(rows: Sequence[Row]) -> str:
    lines = ["| family | to name | exact | group | silent | wrong | nobody | abstained | group | wrong |", "|---" * 10 + "|"]
    for family in sorted({row.family for row in rows}):
        counted = figures(row for row in rows if row.family == family)
        named = [counted[f"named {one}"] for one in Score]
        nobody = [counted[f"nobody {one}"] for one in Score if one is not Score.SILENT]
        lines.append(f"| {family} | {' | '.join(map(str, [sum(named), *named, sum(nobody), *nobody]))} |")
    return "\n".join(lines)


def _others(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    lines = ["Not exact:", "", "| log | truth | named | score |", "|---|---|---|---|"]
    lines.extend(f"| {Path(row.log).stem} | {_ranks(row.truth)} | {_ranks(row.named)} | {row.score} |" for row in rows)
    return "\n".join(lines)


def _ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) or "-"


def stored() -> tuple[list[Row], dict[str, int]]:
    """The rows of the last sitting, and the figures of the first one."""
    found = json.loads(ROWS.read_text(encoding="utf-8"))
    return [Row(**_with_tuples(row) | {"score": Score(row["score"])}) for row in found["rows"]], found["first"]


def tally(rows: Sequence[Row]) -> Tally:
    """How many logs were right, named or not, and in how many others were named."""
    right = sum(row.score in (Score.EXACT, Score.GROUP) for row in rows)
    return Tally(right, sum(row.score is Score.WRONG for row in rows), len(rows))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy.public", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", help="only this log; nothing is written")
    args = parser.parse_args()
    rows = []
    for case in cases():
        if args.only and Path(case.log).stem not in args.only:
            continue
        rows.append(row := sit(case))
        if args.only or row.score is not Score.EXACT or not row.outcome_right:
            print(
                f"{row.score:7} {row.log:42} truth {_ranks(row.truth):10} named {_ranks(row.named):10} {row.outcome}",
                flush=True,
            )
    print(figures(rows))
    if not args.only:
        known = json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else {"first": figures(rows)}
        document = {"schema": "forensics.accuracy-public/1", "first": known["first"], "rows": [asdict(row) for row in rows]}
        ROWS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print("next: python -m tests.accuracy.page")


if __name__ == "__main__":
    main()
