"""Brings about every live fault, asks every analyser, and writes docs/accuracy.md: `python -m tests.accuracy [--only NAME]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

from torch.distributed.flight_recorder.components.types import COLLECTIVES, P2P

from forensics import __version__
from tests.accuracy import analysers, dumps, page
from tests.accuracy.recording import Kind, kinds, recorded
from tests.accuracy.scoring import Row, Score, is_explained, score
from tests.live.commands import ROOT

BUNDLES = ROOT / "build/accuracy"
ATTEMPTS = 2


def compared(kind: Kind, bundle: Path) -> Row:
    """One fault, given to every analyser."""
    raw, groups = dumps.latest(bundle), dumps.members(bundle)
    readable = dumps.repaired(raw, groups, COLLECTIVES | P2P)
    own, verdict = analysers.forensics_on_bundle(bundle)
    named = {
        page.BUNDLE: own,
        page.DUMPS: analysers.forensics_on_dumps(readable),
        page.OFFICIAL: analysers.torchfrtrace(readable),
        page.RULE: analysers.missing_rank_rule(readable, groups),
    }
    answer, truth = kind.fault.answer, kind.fault.answer.ranks(kind.fault.position)
    return Row(
        fault=kind.name,
        moves=kind.moves,
        dumps=len(raw),
        truth=truth,
        named={name: tuple(sorted(found.ranks)) for name, found in named.items()},
        scores={name: score(found.ranks, truth) for name, found in named.items()},
        remarks={name: found.remark for name, found in named.items() if found.remark},
        cause_and_stage=is_explained(verdict, answer),
    )


def compare_all(chosen: Iterable[Kind], folder: Path, *, again: bool) -> list[Row]:
    rows = []
    for kind in chosen:
        row = compared(kind, bundle_of(kind, folder, again=again))
        rows.append(row)
        print(f"{row.fault:45}", *(f"{name} {row.scores[name]} {list(row.named[name])};" for name in row.scores), flush=True)
    return rows


def bundle_of(kind: Kind, folder: Path, *, again: bool) -> Path:
    """The recorded fault; a job that does not start in time on a busy machine gets another chance."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return recorded(kind, folder, again=again)
        except (TimeoutError, AssertionError) as error:
            print(f"{kind.name}: attempt {attempt} gave no bundle: {str(error)[:200]}", file=sys.stderr)
    raise SystemExit(f"{kind.name}: could not be recorded")


def with_earlier(rows: Iterable[Row], names: Iterable[str]) -> list[Row]:
    """The rows, and those of an earlier run for the faults that were left out this time, in the order of `names`."""
    earlier = json.loads(page.ROWS.read_text())["rows"] if page.ROWS.exists() else []
    known = {row["fault"]: page.row_of(row) for row in earlier} | {row.fault: row for row in rows}
    return [known[name] for name in names if name in known]


def document(rows: Iterable[Row]) -> dict[str, Any]:
    return {"schema": "forensics.accuracy/1", "versions": versions(), "rows": [asdict(row) for row in rows]}


def versions() -> Mapping[str, str]:
    return {
        "forensics": __version__,
        "torch": version("torch"),
        "py-spy": version("py-spy"),
        "Python": python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", help="only this fault; other rows stay as they are")
    parser.add_argument("--bundles", type=Path, default=BUNDLES, help="where the bundles are kept (default: build/accuracy)")
    parser.add_argument("--again", action="store_true", help="record anew what was recorded before")
    args = parser.parse_args()
    chosen = [kind for kind in kinds() if not args.only or kind.name in args.only]
    if not chosen:
        raise SystemExit(f"no such fault; there are {', '.join(kind.name for kind in kinds())}")
    rows = compare_all(chosen, args.bundles, again=args.again)
    table = with_earlier(rows, [kind.name for kind in kinds()]) if args.only else rows
    page.ROWS.write_text(json.dumps(document(table), indent=1) + "\n")
    page.PAGE.write_text(page.render(table, versions()))
    mistakes = [row.fault for row in rows if row.scores[page.BUNDLE] is not Score.EXACT]
    print(f"{len(rows) - len(mistakes)} of {len(rows)} exact", *mistakes)


if __name__ == "__main__":
    main()
