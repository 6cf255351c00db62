"""Rows of `log_stage_times`: what trainers print of the parts of a step, rank by rank.

In a line (`[rank 2] step 1800 data=3.497s fwd=0.408s allreduce_wait=0.02s`, `rank=2 time (ms) | forward: 27.4 | ...`,
`Time 0.38 (0.40) Data 0.01 (0.02)`), in a table with a row for each rank, or for each step and rank (also with commas or tabs,
then also in a file of each rank), or a column for each rank (`rank_columns.py`), in a JSON object for each step,
or in a list of ranks under each name. Numbers without a unit are times only where the line speaks of time.
Upstream: DeepSpeed's wall clock breakdown, `times across ranks` of megatron/core/timers.py, torch's ImageNet example, XTuner.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._job_logs.patterns import STATED_RANK, mentions
from forensics.ingest._job_logs.rank_columns import RankColumns, rank_columns
from forensics.ingest._job_logs.time_tables import MS, UNIT, Table, heading, ms_of, row
from forensics.ingest._job_logs.time_tables import WORDS as OF_TABLES
from forensics.ingest._shared.values import rank_number
from forensics.ingest.interface import Batch

WORDS = ("fwd", "bwd", "times across ranks", *OF_TABLES)
_STARTS = ("Data", "forward", "Forward", "backward", "Backward", "ompute")
_ENDS = {
    **{end: end for end in ("=", ": ", "_time", "_load", "_ms", " time", " load", "-compute")},
    " 0": r" \d",
    "  0": r"  \d",
}
# Logs are full of `data`: it is looked for by what follows it.
_OF_DATA = {"ta=0": r"ta=\d", "ta: 0": r"ta: \d", "ta_time": "ta_time", "ta_load": "ta_load", "ta_ms": "ta_ms", "ta(": r"ta\("}
EXPRESSIONS = {**{start + end: start + _ENDS[end] for start in _STARTS for end in _ENDS}, **_OF_DATA}
_MENTIONED = (*WORDS, *_STARTS, "data")
_PAIR = re.compile(
    r"(?<![\w./-])(?P<name>[A-Za-z][\w/.-]{0,47}(?: load(?:ing)?| wait| time)?)(?: ?\((?P<inner>m?s|sec)\))?['\"]?"
    r"(?: {0,2}[=:] {0,4}| {1,4})(?P<value>\d{1,9}(?:\.\d{1,18})?) ?(?P<unit>(?:ms|us|s|sec)\b)?(?![\w:/]|\.\w)"
)
_PASSES = re.compile(
    r"(?i)(?<![a-z])(?:fwd|forward)\b[ =:]{1,3}\d{1,6}\.\d.{0,60}(?<![a-z])(?:bwd|backward)\b[ =:]{1,3}\d{1,6}\.\d"
)
_JSON_RANK = re.compile(r'"(?:global_)?rank": ?(\d{1,7})\b')
_SHORT = re.compile(r"(?:\d\d:\d\d:\d\d(?:[.,]\d{1,6})? )?[rR](\d{1,5}) ")
_STEP = re.compile(
    r"(?<![\w-])(?i:global[_ ]?step|step|iteration|iter)['\"]?(?: ?[=:#] {0,3}| {1,6})\[?(\d{1,12})(?![\w.]*\.\w|\w)"
    r"|(?<![\w-])it(?P<it>\d{1,12})(?= )"
    r"|(?i:epoch):? ?\[?(?P<epoch>\d{1,7})\]? ?(?:\[|batch )\s{0,9}(?P<batch>\d{1,9})\b"
)
_LISTED = re.compile(r"times across ranks \((?P<unit>m?s)\):")
_SECTION = re.compile(r"^ {1,8}(?P<name>[A-Za-z][\w./-]{0,63}):$")
_ROW = re.compile(r"^ {1,12}rank {1,6}(?P<rank>\d{1,7}): (?P<value>\d{1,12}(?:\.\d{1,9})?)$")
_WHOLE = re.compile(r"(?i)^(?:(?:total|batch|step|iter(?:ation)?|epoch)?[-_ ]?time|total)(?:[-_ ]?(?:ms|s|sec))?$")
_MESSAGE = re.compile(r"(?i)recv|receive|send|p2p|pipeline|bubble")
_WAIT = re.compile(r"(?i)comm|reduce|gather|sync|wait|barrier|a2a|all_?to_?all|broadcast")
_STAGES = (
    ("data", re.compile(r"(?i)^data(?![-_ ]?parallel)|data[-_]?load|^loader|batch[-_]?(?:gen|load|fetch)|next[-_]batch")),
    ("backward", re.compile(r"(?i)(?<![a-z])(?:backward|bwd)")),
    ("forward", re.compile(r"(?i)(?<![a-z])(?:forward|fwd)")),
    ("optimizer", re.compile(r"(?i)^optim|^opt(?![a-z])")),
    # Forward and backward in one.
    ("compute", re.compile(r"(?i)(?<![a-z])compute(?![a-z])")),
)
_INNER = re.compile(r"(?i)(?<=[a-z]_)inner(?![a-z])")
_NO_TIME = re.compile(r"(?i)loss|(?<![a-z])lr|norm|mem|size|tokens?|sample|num|flops|rate|ratio|/s$|forward[-_]backward")
_LONGEST = 1024
_STEPS = 256
_MOST_VALUES = 1 << 18

Found = list[tuple[str, float]]


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str | None:
    """What a name stands for; None for what is no part of a step."""
    if _NO_TIME.search(name):
        return None
    stage = next((stage for stage, words in _STAGES if words.search(name)), None)
    if _MESSAGE.search(name):
        return "message"
    if _WAIT.search(name) and stage != "data":
        return "wait"
    return "whole" if _WHOLE.match(name) else stage


class StageTimes:
    """Collects them: of each rank those of its newest steps."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int | None, str | None], dict[int, tuple[int, Found]]] = defaultdict(dict)
        self._lines: Counter[tuple[int | None, str | None]] = Counter()
        self._table: Table | None = None
        self._wide: RankColumns | None = None
        self._tables = 0
        self._unit: float | None = None
        self._section: str | None = None
        self._listed: dict[int, Found] = defaultdict(list)
        self._values = 0

    @property
    def is_open(self) -> bool:
        """Whether a table or a list goes on."""
        return self._table is not None or self._unit is not None or self._wide is not None

    def feed(self, number: int, line: str, origin: Origin) -> None:
        """Take one line, and who wrote it."""
        if not self.is_open and not mentions(line, _MENTIONED):
            return
        text = origin.bare[origin.text :]
        if self.is_open and self._goes_on(number, text):
            return
        if found := _LISTED.search(text):
            self._unit = MS.get(found["unit"], 1000.0)
            self._tables += 1
        elif wide := rank_columns(text, kind_of):
            self._wide = wide
        elif len(line) <= _LONGEST:
            self._table = heading(text, kind_of)
            if self._table is None and (times := _pairs(text)):
                stated = _stated(text) if origin.rank is None else None
                rank = rank_number(stated[1]) if stated else origin.rank
                self._add(number, (rank, None if stated else origin.label), _step(text), times)

    def _goes_on(self, number: int, text: str) -> bool:
        """Whether a line belongs to the table or list that is open; else that is at its end."""
        if self._table is not None:
            if (cells := row(self._table, text)) is not None:
                of, step, found = cells
                self._add(number, (of, None), step, found)
                return True
            if text.strip(" -=+|"):
                self._table = None
            return not text.strip(" -=+|")
        if self._wide is not None:
            spread = self._wide.row(text)
            self._wide = self._wide if spread else None
            for of, times in spread[1].items() if spread else ():
                self._add(number, (of, None), spread[0] if spread else None, times)
            return spread is not None
        if section := _SECTION.match(text):
            self._section = kind_of(section["name"])
            return True
        if listed := _ROW.match(text):
            rank = rank_number(listed["rank"])
            if self._section and rank is not None and all(kind != self._section for kind, _ in self._listed[rank]):
                self._listed[rank].append((self._section, float(listed["value"]) * (self._unit or 1.0)))
            return True
        self._close_list(number)
        return False

    def _close_list(self, number: int) -> None:
        for rank, found in self._listed.items():
            self._add(number, (rank, None), None, found)
        self._unit, self._section = None, None
        self._listed.clear()

    def _add(self, number: int, who: tuple[int | None, str | None], step: int | None, found: Found) -> None:
        """One step of one rank: the first line that tells of it stands."""
        self._lines[who] += 1
        steps = self._rows[who]
        at = self._lines[who] if step is None else step
        if at in steps or self._values > _MOST_VALUES:
            return
        steps[at] = number, found
        self._values += len(found)
        if len(steps) > _STEPS:
            self._values -= len(steps.pop(next(iter(steps)))[1])

    def batches(self, ranks: Mapping[str, int], own: int | None) -> Iterator[Batch]:
        """All rows; `ranks` gives the rank of each label, `own` is that of the file."""
        self._close_list(0)
        columns: dict[str, list[Any]] = {name: [] for name in ("rank", "step", "locator", "kind", "ms")}
        for (rank, label), steps in self._rows.items():
            whose = rank if rank is not None else ranks.get(label or "", own)
            for step, (number, found) in steps.items():
                for kind, ms in found:
                    for name, value in zip(columns, (whose, step, number, kind, ms), strict=True):
                        columns[name].append(value)
        if columns["ms"]:
            yield Batch("log_stage_times", columns)


def _pairs(line: str) -> Found:
    """Times of one line: at least two parts of a step, of which one is no wait, all with a unit."""
    # Who tells both passes of a step tells times.
    usual = ms_of(line) or (1000.0 if _PASSES.search(line) else None)
    found: Found = []
    for pair in _PAIR.finditer(line):
        kind, named = kind_of(pair["name"]), UNIT.search(pair["name"])
        unit = pair["unit"] or pair["inner"] or (named[1] or named[2] if named else None)
        if (
            kind is None
            or not (unit or "." in pair["value"])
            or (kind == "whole" and any(each == "whole" for each, _ in found))
        ):
            continue
        ms = MS.get(unit, 1000.0) if unit else usual
        if ms is None:
            return []
        # Parts of a part are stated beside it; DeepSpeed's `bwd` holds the wait that stands there too, `bwd_inner` does not.
        if kind == "backward" and _INNER.search(pair["name"]):
            found = [each for each in found if each[0] != kind]
        if kind in ("wait", "message") or all(each != kind for each, _ in found):
            found.append((kind, float(pair["value"]) * ms))
    kinds = {kind for kind, _ in found}
    return found if len(kinds) > 1 and kinds - {"wait", "message", "whole"} else []


def _stated(text: str) -> re.Match[str] | None:
    return _JSON_RANK.search(text) or STATED_RANK.search(text) or _SHORT.match(text)


def is_table(line: str) -> bool:
    """Whether a line is the header of a table of times of ranks, or a record of those of a step."""
    return is_record(line) or heading(line, kind_of) is not None or rank_columns(line, kind_of) is not None


def is_record(line: str) -> bool:
    """Whether a line is a JSON object with times of a step."""
    is_object = line[:1] == "{" and line[-1:] == "}" and len(line) <= _LONGEST
    return is_object and _step(line) is not None and len(_pairs(line)) > 1


def _step(line: str) -> int | None:
    said = _STEP.search(line)
    if said is None:
        return None
    if said["it"]:
        return int(said["it"])
    return int(said[1]) if said[1] else int(said["epoch"]) * 10**9 + int(said["batch"])
