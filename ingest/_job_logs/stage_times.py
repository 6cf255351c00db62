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
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._job_logs.patterns import STATED_RANK, mentions
from forensics.ingest._job_logs.rank_columns import SEPARATED, RankColumns, rank_columns
from forensics.ingest._shared.values import rank_number
from forensics.ingest.interface import Batch

WORDS = ("fwd", "bwd", "times across ranks")
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
_UNIT = re.compile(r"\((m?s|sec|seconds)\)|[-_](ms|s|sec)(?![a-z])")
_TIME = re.compile(r"(?i)\b(?:[a-z]+_)?time(?:s|_|\b)")
_MS = {"ms": 1.0, "us": 1e-3}
_LISTED = re.compile(r"times across ranks \((?P<unit>m?s)\):")
_SECTION = re.compile(r"^ {1,8}(?P<name>[A-Za-z][\w./-]{0,63}):$")
_ROW = re.compile(r"^ {1,12}rank {1,6}(?P<rank>\d{1,7}): (?P<value>\d{1,12}(?:\.\d{1,9})?)$")
_CELL = re.compile(r"[^\s|]+(?: ?\(m?s\))?")
_RANK_COLUMN, _STEP_COLUMN = re.compile(r"(?:global[_ ])?rank"), re.compile(r"(?:global[_ ]?)?step|iter(?:ation)?|it")
_FRONT_COLUMN = re.compile(r"time(?:[-_ ]?stamp)?|ts|date(?:time)?|host(?:name)?|node|epoch")
_VALUE = re.compile(r"(\d{1,9}(?:\.\d{1,18})?)(?:ms|s|sec)?")
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
_NO_TIME = re.compile(r"(?i)loss|(?<![a-z])lr|norm|mem|size|tokens?|sample|num|flops|rate|ratio|/s$|forward[-_]backward")
_LONGEST = 1024
_STEPS = 256
_MOST_VALUES = 1 << 18

Found = list[tuple[str, float]]


class _Table(NamedTuple):
    """Columns of a table: where its rank and its step stand, and the kind of each other one with the ms of its unit.

    Without a column for the rank all rows are of the rank of the file.
    """

    rank: int | None
    step: int | None
    kinds: Mapping[int, tuple[str, float]]
    width: int


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
        self._table: _Table | None = None
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
            self._unit = _MS.get(found["unit"], 1000.0)
            self._tables += 1
        elif wide := rank_columns(text, kind_of):
            self._wide = wide
        elif len(line) <= _LONGEST:
            self._table = _header(text)
            if self._table is None and (times := _pairs(text)):
                stated = _stated(text) if origin.rank is None else None
                rank = rank_number(stated[1]) if stated else origin.rank
                self._add(number, (rank, None if stated else origin.label), _step(text), times)

    def _goes_on(self, number: int, text: str) -> bool:
        """Whether a line belongs to the table or list that is open; else that is at its end."""
        if self._table is not None:
            if (cells := _row(self._table, text)) is not None:
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
        if row := _ROW.match(text):
            rank = rank_number(row["rank"])
            if self._section and rank is not None and all(kind != self._section for kind, _ in self._listed[rank]):
                self._listed[rank].append((self._section, float(row["value"]) * (self._unit or 1.0)))
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
    usual = _ms(line) or (1000.0 if _PASSES.search(line) else None)
    found: Found = []
    for pair in _PAIR.finditer(line):
        kind, named = kind_of(pair["name"]), _UNIT.search(pair["name"])
        unit = pair["unit"] or pair["inner"] or (named[1] or named[2] if named else None)
        if (
            kind is None
            or not (unit or "." in pair["value"])
            or (kind == "whole" and any(each == "whole" for each, _ in found))
        ):
            continue
        ms = _MS.get(unit, 1000.0) if unit else usual
        if ms is None:
            return []
        # Parts of a part (`backward`, `backward_inner`) are stated beside it.
        if kind in ("wait", "message") or all(each != kind for each, _ in found):
            found.append((kind, float(pair["value"]) * ms))
    kinds = {kind for kind, _ in found}
    return found if len(kinds) > 1 and kinds - {"wait", "message", "whole"} else []


def _ms(text: str) -> float | None:
    """Milliseconds of the unit that stands in a text; seconds where that only speaks of time."""
    if said := _UNIT.search(text):
        return _MS.get(said[1] or said[2], 1000.0)
    return 1000.0 if _TIME.search(text) else None


def _stated(text: str) -> re.Match[str] | None:
    return _JSON_RANK.search(text) or STATED_RANK.search(text) or _SHORT.match(text)


def is_table(line: str) -> bool:
    """Whether a line is the header of a table of times of ranks, or a record of those of a step."""
    return is_record(line) or _header(line) is not None or rank_columns(line, kind_of) is not None


def is_record(line: str) -> bool:
    """Whether a line is a JSON object with times of a step."""
    is_object = line[:1] == "{" and line[-1:] == "}" and len(line) <= _LONGEST
    return is_object and _step(line) is not None and len(_pairs(line)) > 1


def _header(line: str) -> _Table | None:
    """The columns: rank or step in front, both or one of them, behind a date, a host or an epoch; two kinds of times at least.

    Without a rank the columns must be separated and their unit stated: a list of words is no table.
    """
    cells, usual = _cells(line), _ms(line)
    if not cells or usual is None or any(cell[:1].isdigit() for cell in cells):
        return None
    names = [cell.partition("(")[0].strip().strip('"').lower() for cell in cells]
    ranks = [at for at, name in enumerate(names) if _RANK_COLUMN.fullmatch(name)]
    steps = [at for at, name in enumerate(names) if _STEP_COLUMN.fullmatch(name)]
    first = min(ranks + steps, default=len(names))
    if len(ranks) > 1 or len(steps) > 1 or not all(map(_FRONT_COLUMN.fullmatch, names[:first])):
        return None
    if not ranks and (STATED_RANK.search(line) or not (SEPARATED.fullmatch(line) and _UNIT.search(line))):
        return None
    found = {at: (kind, _ms(cells[at]) or usual) for at, name in enumerate(names) if at > first and (kind := kind_of(name))}
    of, at = ranks[0] if ranks else None, steps[0] if steps else None
    return _Table(of, at, found, len(cells)) if len({kind for kind, _ in found.values()}) > 1 else None


def _row(table: _Table, line: str) -> tuple[int | None, int | None, Found] | None:
    """Rank, if it stands there, step and times of a row; None for another line."""
    cells = _cells(line)
    if len(cells) != table.width:
        return None
    rank = rank_number(cells[table.rank].lower().removeprefix("rank").strip()) if table.rank is not None else None
    step = cells[table.step].strip() if table.step is not None else None
    values = {at: _number(cells[at].strip()) for at in table.kinds}
    if (
        (rank is None) is (table.rank is not None)
        or None in values.values()
        or (step is not None and not (step.isdecimal() and len(step) <= 12))
    ):
        return None
    found = [(kind, value * ms) for at, (kind, ms) in table.kinds.items() if (value := values[at]) is not None]
    return rank, None if step is None else int(step), found


def _cells(line: str) -> Sequence[str]:
    return re.split(r"[,\t;]", line) if SEPARATED.fullmatch(line) else _CELL.findall(line)


def _number(cell: str) -> float | None:
    said = _VALUE.fullmatch(cell)
    return float(said[1]) if said else None


def _step(line: str) -> int | None:
    said = _STEP.search(line)
    if said is None:
        return None
    if said["it"]:
        return int(said["it"])
    return int(said[1]) if said[1] else int(said["epoch"]) * 10**9 + int(said["batch"])
