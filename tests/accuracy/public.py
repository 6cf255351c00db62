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
from tests.accuracy.scorecard import Tally
from tests.recordings.verdicts import verdict_of

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "fixtures/field/public"
ROWS = ROOT / "docs/accuracy-public.json"
_UNSEEN = """\
How new evidence fares: logs written from other public threads, and folders as people gather them, by somebody who did not
know the program, each set sat once before anything was mended for it. What a set taught was mended, so each is older than the
program of today. Afterwards 69 of the 78 ranks of the four sets of 2026-11-23 were named, and 34 of the 38 of the two after
them; one verdict of these says that one of all 16 ranks is at fault where nobody is. Of the newest set two folders of tables
are refused as no evidence, of which one is silence about a slow rank; its two wrong names are mended. Of the eight wrong names
of folders before it four had the right rank among several, three were of innocent ranks alone. Of the two sets after it three
logs (of JAX's rendezvous, Neuron, MPICH) were refused as no evidence, which counts as abstention; afterwards 11 of the 13
and 5 of the 6 ranks were named. The set of 2026-11-25 was written after new readers for such logs, by who had written these: it
flatters. One of its logs was refused as no evidence; afterwards 9 of the 10 ranks were named. That of its evening was
written by somebody else; its wrong name is of a sound job of which one round of stacks was given, and stands now below
`if the job is stuck`; afterwards 7 of the 13 ranks were named. Of the two of 2026-11-26 one list of events was refused as no
evidence, and one node that was lost counts among the ranks; afterwards 7 of the 15 and 9 of the 11 were named, and 13
of the 16 of its evening. Of its night two nodes count among the ranks, and four outputs of a benchmark were refused as
no evidence; afterwards 11 of the 15 were named, one of them below `if the job is stuck`; the next steps point to the
others. Of the two after it, stacks of two cases were written cut at first and count as silent; two texts of the first and
one folder of the second were refused as no evidence. Their wrong names were of a pod that had been killed days before,
and of a rank that its failed peer had killed; afterwards 10 of the 13 and 6 of the 7 were named. Silent stay outputs of
a benchmark of pairs, clocks in exports of nvidia-smi, a link that is down, and stacks in logs of one node of which
nothing tells the ranks. Of the two of 2026-11-27 six were refused as no evidence (metrics of ranks in JSON lines, records of
pods, a page of torch's debug server, a table of a dashboard), of which four are silence about a rank, and stacks of one case
were written cut; most of the silent ones are tables of devices, of which nothing tells the ranks: afterwards the next steps
point to seven of the fifteen. Of the two of its morning eleven were refused as no evidence, of which six are silence (figures
of a benchmark by pairs of nodes, an AMD kernel log, nvidia-smi dmon, perfquery, an event log of a BMC, metrics of ranks in JSON
lines); the next steps pointed to four of the silent ones. The wrong name was of a worker of Ray that went away with its
finished job; afterwards 6 of the 19 and 6 of the 6 were named. Of the two of its forenoon eleven were refused as no evidence
(metrics in JSON lines, figures of pairs of nodes, tables of dashboards, nvidia-smi dmon, traces of system calls, a report of
a profiler, perfquery, an event of Ray, a journal), of which three are silence; the next steps pointed to four of the silent
ones. Afterwards 12 of the 18 and 2 of the 6 were named. Of those of its afternoon fifteen were refused as no evidence (nvidia-
smi dmon, traces of system calls, tables of dashboards, figures of pairs of nodes, an event log of a BMC, a table of sacct,
results of nccl-tests, instructions, source, a chat and the like), of which two are silence, and stacks of one case were written
cut. The wrong names were of ranks that a stall of Horovod which passed had missed, and of one of all ranks that ended by the
same assertion; afterwards 19 of the 27, with those stacks whole, and 10 of the 12 were named, nobody wrongly, and the next
steps pointed to seven of the silent ones; of the others dmon and system calls are read since then. Of the two of its late
afternoon eleven were refused as no evidence (results of nccl-tests, tables of sacct, a chat, exports of a dashboard, texts
without a log), none of which is silence about a rank; where the answer written before allowed a rank or nobody (nine of
them), what was answered counts. A sound job beside instructions that quote a watchdog was called hung, without a name (mended).
The wrong name was of a GPU whose loss `dmesg -T` dates three weeks before, by what the first set had taught: mended. Afterwards
15 of the 20 and 9 of the 9 were named, nobody wrongly, and the next steps point to two of the silent ones; tables of sacct
are read since then. The four sets of its evening are of a program: stacks of all ranks of a made-up job of a known
framework, of one moment, as py-spy, pystack and faulthandler print them, in one text or in files, taken by people, srun,
ssh, kubectl, clush or pdsh. One moment proves no hang: who is named there stands below `if the job is stuck`. The six wrong
names were of processes counted in the order of their ids, beside headings, labels and commands that tell the ranks (all
read since then); the one after them is of one of two ranks that waited for data, on the second host of a text of two (read
since then). Of the 25 silent ones of the newest the next steps point to the right ranks in 23."""
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


@dataclass(frozen=True, slots=True)
class Sitting:
    """A set of logs sat once: how many name somebody and how many nobody, and how many of each were right."""

    about: str
    to_name: int
    named: int
    wrong: int
    nobody: int
    abstained: int


UNSEEN = (
    Sitting("logs of public threads, 2026-11", 38, 21, 0, 22, 22),
    Sitting("rare frameworks, 2026-11", 34, 11, 1, 16, 15),
    Sitting("drawn like the cases of somebody on call, 2026-11", 24, 15, 0, 12, 12),
    Sitting("drawn likewise by somebody else, 2026-11-23", 26, 21, 0, 18, 18),
    Sitting("folders of 2 to 40 files, 2026-11-23", 22, 7, 1, 14, 14),
    Sitting("other folders by somebody else, 2026-11-23, after what the first taught was mended", 18, 3, 3, 12, 11),
    Sitting("a third set of folders, half of them to tempt, 2026-11-23, after what the second taught", 12, 8, 3, 12, 10),
    Sitting("logs of public threads by somebody else again, 2026-11-24", 24, 14, 0, 12, 12),
    Sitting("a fourth set of folders, by a new hand, 2026-11-24", 14, 8, 1, 10, 9),
    Sitting("logs and folders, half of them to tempt, 2026-11-24, after what these two taught", 15, 9, 0, 15, 13),
    Sitting("logs and folders by somebody else, half naming nobody, 2026-11-24, after what that taught", 13, 5, 0, 13, 13),
    Sitting("ten logs more by the same hand, after what these taught", 6, 3, 0, 4, 4),
    Sitting("logs and folders, 2026-11-25, by a hand that knew the readers, half naming nobody", 10, 6, 0, 10, 10),
    Sitting("logs and folders, 2026-11-25 evening", 13, 6, 1, 11, 10),
    Sitting("logs and folders of public threads, 2026-11-26, by somebody else", 15, 6, 0, 12, 12),
    Sitting("the same hand again, after what that taught", 11, 8, 0, 11, 11),
    Sitting("logs and folders of public threads, 2026-11-26 evening, by a hand that knew the readers", 16, 7, 0, 12, 12),
    Sitting("logs and folders of public threads, 2026-11-26 night, half naming nobody", 15, 7, 0, 14, 14),
    Sitting("the same hand again, after what that taught, 2026-11-26 night", 6, 5, 0, 6, 6),
    Sitting("logs and folders of public threads, 2026-11-26 late, half of them to tempt", 13, 6, 1, 13, 12),
    Sitting("the same hand again, after what that taught, 2026-11-26 late", 7, 3, 1, 5, 5),
    Sitting("logs, tables and folders of public threads, 2026-11-27, by a hand new to the readers", 16, 6, 0, 13, 13),
    Sitting("the same hand again, 2026-11-27, before what that taught was mended but for ports and clocks", 9, 4, 0, 7, 7),
    Sitting("logs, tables and folders of public threads, 2026-11-27 morning, a third to tempt", 19, 5, 1, 9, 8),
    Sitting("the same hand again, after what that taught, 2026-11-27 morning, half naming nobody", 6, 5, 0, 6, 6),
    Sitting("logs, tables and folders of public threads, 2026-11-27 forenoon, half naming nobody", 18, 9, 0, 15, 15),
    Sitting("the same hand again, after what that taught, 2026-11-27 forenoon", 6, 2, 0, 6, 6),
    Sitting("logs, tables and folders of public threads, 2026-11-27 afternoon, half naming nobody", 27, 16, 2, 27, 25),
    Sitting("the same hand again, after what that taught, 2026-11-27 afternoon, most of them to tempt", 12, 9, 0, 33, 33),
    Sitting("fifteen more by the same hand, to mislead, 2026-11-27 afternoon", 7, 7, 0, 8, 8),
    Sitting(
        "logs, tables, pages and folders of public threads, 2026-11-27 late afternoon, by a hand new to them", 20, 13, 0, 38, 38
    ),
    Sitting(
        "the same hand again, after what that taught, 2026-11-27 late afternoon, some to tempt what was mended", 9, 9, 1, 17, 16
    ),
    Sitting("stacks of one moment in nine forms, of a program, 2026-11-27 evening", 39, 14, 6, 12, 12),
    Sitting("stacks by other samplers and launchers in eleven forms, 36 of 40", 24, 6, 0, 12, 12),
    Sitting("others of these, after what they taught", 28, 11, 1, 12, 12),
    Sitting("fresh ones of both kinds, after all that", 54, 29, 0, 20, 20),
)


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
        "later figures show what is kept, not how new logs fare. **group** is a set that contains the truth, as far as the\n"
        "text can tell it.",
        _UNSEEN,
        _unseen(),
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


def _unseen() -> str:
    lines = ["| set | right names | wrong names | right abstentions |", "|---|---|---|---|"]
    for one in UNSEEN:
        counted = ((one.named, one.to_name), (one.wrong, one.to_name + one.nobody), (one.abstained, one.nobody))
        lines.append(f"| {one.about} | {' | '.join(share(*pair) for pair in counted)} |")
    return "\n".join(lines)


def unseen() -> Tally:
    """All sets that were sat once."""
    right = sum(one.named + one.abstained for one in UNSEEN)
    return Tally(right, sum(one.wrong for one in UNSEEN), sum(one.to_name + one.nobody for one in UNSEEN))


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
