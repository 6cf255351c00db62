"""docs/accuracy.md from the stored rows, `python -m tests.accuracy.page`: scorecard, what was compared, how it was scored."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.accuracy import public, scorecard, sittings, thresholds
from tests.accuracy.scoring import Row, Score

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/accuracy.md"
ROWS = ROOT / "docs/accuracy.json"

BUNDLE, DUMPS, OFFICIAL, RULE = "forensics", "forensics, dumps alone", "torchfrtrace", "missing-rank rule"
ANALYSERS = (BUNDLE, DUMPS, OFFICIAL, RULE)

_NIC_CAPTURES = Path(__file__).with_name("nic_captures.md")

_INTRODUCTION = """## Real hangs

Every fault of [tests/live](../tests/live) is brought about on a real job of four ranks (torch, gloo, CPU), collected once from
outside, and given to the analysers. `make accuracy` does it all, writes this page and [the rows](accuracy.json); it takes about
25 minutes, less when the bundles of an earlier run are still in `build/accuracy`. `make accuracy ONLY=stopped` takes one fault
and leaves the other rows as they are.
"""

_THRESHOLDS = """## Thresholds of slow passes

`python -m tests.accuracy.thresholds` sweeps what makes an iteration slow (the usual one takes less than this share of it) and
a pass over-long (`m_node`, beyond what is expected), as figure 14 of VenusTrace. Jobs of 16 simulated ranks, 1F1B, GPipe and
interleaved; in three of four a pass of one rank takes longer once, by 20 ms to 3 s. Recall is of the iterations that became
slower, whether a whole step of the record shows them or not; precision is of the groups of ranks that are late on a critical
path: these figures are of the path alone, not of verdicts. In force are 90 % and 0.5. Its alpha and beta follow an expectation
that drifts with what it judges; there is none here ([decision 19](decisions/0019-printed-algorithms.md)).
"""

_METHOD = """
## How it is scored

The truth is the rank that the fault was done to, or the set of ranks that nothing in the evidence can tell apart (a cycle of
groups, two ranks that face each other). The tests in `tests/live` hold it beside each fault; no analyser sees it.

- **exact**: the ranks named are the truth, and nobody else is named
- **partial**: the truth is named, and others are too
- **wrong**: nobody is named, or others only, or a part of the truth

For a job that moves the truth is nobody. All ranks of all suspects count as named, alternatives included.

| column | what is given to it | what counts as named |
|---|---|---|
| forensics | the bundle: dumps, stacks, processes, logs | ranks of the suspects |
| forensics, dumps alone | the last dump of each rank, repaired, nothing else | ranks of the suspects |
| torchfrtrace | the same files | missing ranks, culprits of a mismatch, ranks whose dump it misses |
| missing-rank rule | the same files | members that have nothing pending in a group in which others wait, or issued less |

The missing-rank rule is that of nvidia-resiliency-ext (`fr_attribution.py` at commit d8686d9), written anew from its
description. torchfrtrace runs with `--allow-incomplete-ranks`, on files in the order of their ranks.

### What is repaired

torchfrtrace stops at every raw dump of gloo, because these name no group. What the analysers of dumps get is better than what a
user has, on purpose:

- each group has its name, its description and its members, as forensics infers them from the whole bundle
- an operation that is retired is `completed`; gloo reports all of them as `scheduled`
- `pg_status` counts collectives only; gloo counts its unrecorded sends and receives too
- an operation without sizes gets an empty size, and a collective that torchfrtrace does not know gets the name of one that it
  does and that the job does not use, so that the difference is seen; torchfrtrace would stop at both
- JSON of the worker server becomes the pickle that torch would have written

Where no dump could be got (`no dump`) an analyser of dumps has nothing to read, so that the totals stand for all faults and for
those that left a dump. Where ranks wait in sends and receives of gloo, the dumps hold nothing of it. With one undated dump of
each rank forensics rather names nobody; torchfrtrace lists every rank without a dump, which is right when that rank has died.
"""


def render(rows: Sequence[Row], versions: Mapping[str, str]) -> str:
    """The page."""
    stuck = [row for row in rows if not row.moves]
    dumped = [row for row in stuck if row.dumps]
    logs, first = public.stored()
    fresh = sittings.stored()
    parts = [
        "# Accuracy",
        scorecard.section(rows, (BUNDLE, DUMPS), public.tally(logs), fresh),
        _INTRODUCTION,
        f"{len(stuck)} faults:\n\n{_totals(stuck)}",
        f"The {len(dumped)} of them that left a dump:\n\n{_totals(dumped)}",
        _explained(stuck),
        _moving([row for row in rows if row.moves]),
        public.section(logs, first),
        f"{_THRESHOLDS}\n{thresholds.TABLE.read_text(encoding='utf-8')}",
        f"\n{_NIC_CAPTURES.read_text(encoding='utf-8')}",
        _METHOD,
        f"## Every fault\n\nRanks that were named; `-` is nobody.\n\n{_table(rows)}",
        f"## Every set, sat once\n\n{sittings.every(fresh)}",
        "## Versions\n\n" + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".\n",
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _totals(rows: Sequence[Row]) -> str:
    lines = ["| analyser | exact | partial | wrong: others named | wrong: nobody named |", "|---|---|---|---|---|"]
    for name in ANALYSERS:
        counts = Counter(row.scores[name] for row in rows)
        nobody = sum(row.scores[name] is Score.WRONG and not row.named[name] for row in rows)
        others = counts[Score.WRONG] - nobody
        lines.append(f"| {name} | {counts[Score.EXACT]} | {counts[Score.PARTIAL]} | {others} | {nobody} |")
    return "\n".join(lines)


def _explained(rows: Sequence[Row]) -> str:
    count = sum(row.cause_and_stage and row.scores[BUNDLE] is Score.EXACT for row in rows)
    return (
        "forensics also says why, and in which stage of a step: with the bundle it names the right ranks, an accepted cause\n"
        f"and an accepted stage for {count} of {len(rows)}. The other analysers name neither."
    )


def _moving(rows: Sequence[Row]) -> str:
    """How often somebody is accused in a job that moves: one dump of each rank has no date, and looks like a hang."""
    lines = [
        f"Jobs that moved all the while, and in which ranks are accused wrongly, of {len(rows)}:",
        "",
        "| analyser | accused |",
    ]
    lines.append("|---|---|")
    lines.extend(f"| {name} | {sum(row.scores[name] is not Score.EXACT for row in rows)} |" for name in ANALYSERS)
    return "\n".join(lines) if rows else ""


def _table(rows: Sequence[Row]) -> str:
    lines = [f"| fault | truth | {' | '.join(ANALYSERS)} | cause and stage |", "|---" * (len(ANALYSERS) + 3) + "|"]
    for row in rows:
        truth = " or ".join(_ranks(one) for one in row.truth)
        cells = " | ".join(_cell(row, name) for name in ANALYSERS)
        why = "" if row.moves else "right" if row.cause_and_stage else "other"
        lines.append(f"| {row.fault.replace('_', ' ')} | {truth} | {cells} | {why} |")
    return "\n".join(lines)


def _cell(row: Row, name: str) -> str:
    remark = row.remarks.get(name)
    return f"{row.scores[name]}: {remark if remark and not row.named[name] else _ranks(row.named[name])}"


def _ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) or "-"


def row_of(found: Mapping[str, Any]) -> Row:
    """A row as it was written."""
    named = {name: tuple(ranks) for name, ranks in found["named"].items()}
    scores = {name: Score(value) for name, value in found["scores"].items()}
    return Row(**{**found, "truth": tuple(map(tuple, found["truth"])), "named": named, "scores": scores})


def main() -> None:
    found = json.loads(ROWS.read_text(encoding="utf-8"))
    PAGE.write_text(render([row_of(row) for row in found["rows"]], found["versions"]), encoding="utf-8")


if __name__ == "__main__":
    main()
