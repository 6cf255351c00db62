"""Tables of the times of steps: a row for each rank, or for each step and rank, or for each step in a file of each rank.

Names of columns may be German, French, Spanish or Chinese, as people name them who measure themselves, and numbers may have
a decimal comma where something else sets the cells off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from forensics.ingest._job_logs.patterns import STATED_RANK
from forensics.ingest._job_logs.rank_columns import SEPARATED
from forensics.ingest._shared.values import rank_number

WORDS = ("Daten", "données", "datos", "数据", "Rechnen", "calcul", "cálculo", "计算", "前向")
"""One of them stands in each heading in these languages that tells two parts of a step."""
MS = {"ms": 1.0, "us": 1e-3}
UNIT = re.compile(r"\((m?s|sec|seconds)\)|[-_](ms|s|sec)(?![a-z])")
_TIME = re.compile(r"(?i)\b(?:[a-z]+_)?time(?:s|_|\b)")
_CELL = re.compile(r"[^\s|]+(?: ?\(m?s\))?")
_RANK_COLUMN, _STEP_COLUMN = re.compile(r"(?:global[_ ])?rank"), re.compile(r"(?:global[_ ]?)?step|iter(?:ation)?|it")
_FRONT_COLUMN = re.compile(r"time(?:[-_ ]?stamp)?|ts|date(?:time)?|host(?:name)?|node|epoch")
_VALUE = re.compile(r"(\d{1,9}(?:[.,]\d{1,18})?)(?:ms|s|sec)?")
_ENGLISH = tuple(
    (re.compile(f"(?i){theirs}"), ours)
    for theirs, ours in (
        (r"^rang(?:o)?$|^(?:全局)?(?:排名|卡号|进程号?|rank号)$", "rank"),
        (r"^schritt$|^(?:étape|etape|paso|pas)$|^(?:步骤?|步数|迭代(?:步数)?)$", "step"),
        (r"zeitstempel|horodatage|marca de tiempo|时间戳", "timestamp"),
        (r"/(?:毫秒|ms)$", "(ms)"),
        (r"/(?:秒|s)$", "(s)"),
        (r"毫秒", "ms"),
        (r"秒", "s"),
        (r"（", "("),
        (r"）", ")"),
        (r"datenladen|daten|données|donnees|datos|数据(?:加载|读取)?", "data"),
        (r"rückwärts|rueckwaerts|arrière|atrás|(?:反向|后向)(?:传播|计算)?", "backward"),
        (r"vorwärts|vorwaerts|avant|adelante|(?:前向|正向)(?:传播|计算)?", "forward"),
        (r"warten|wartezeit|attente|espera|等待|通信", "wait"),
        (r"rechnen|rechenzeit|berechnung|calcul|cálculo|计算", "compute"),
        (r"optimierer|优化器?", "optimizer"),
        (r"耗时|用时|时间|(?<=[ _-])zeit|temps|tiempo|(?<=(?:data|wait))zeit", " time"),
    )
)


class Table(NamedTuple):
    """Columns of a table: where its rank and its step stand, and the kind of each other one with the ms of its unit.

    Without a column for the rank all rows are of the rank of the file.
    """

    rank: int | None
    step: int | None
    kinds: Mapping[int, tuple[str, float]]
    width: int


def ms_of(text: str) -> float | None:
    """Milliseconds of the unit that stands in a text; seconds where that only speaks of time."""
    if said := UNIT.search(text):
        return MS.get(said[1] or said[2], 1000.0)
    return 1000.0 if _TIME.search(text) else None


def heading(line: str, kind_of: Callable[[str], str | None]) -> Table | None:
    """The columns: rank or step in front, both or one of them, behind a date, a host or an epoch; two kinds of times at least.

    Without a rank the columns must be separated and their unit stated: a list of words is no table.
    """
    cells = [_in_english(cell) for cell in _cells(line)]
    usual = ms_of(",".join(cells))
    if not cells or usual is None or any(cell[:1].isdigit() for cell in cells):
        return None
    names = [cell.partition("(")[0].strip().strip('"').lower() for cell in cells]
    ranks = [at for at, name in enumerate(names) if _RANK_COLUMN.fullmatch(name)]
    steps = [at for at, name in enumerate(names) if _STEP_COLUMN.fullmatch(name)]
    first = min(ranks + steps, default=len(names))
    if len(ranks) > 1 or len(steps) > 1 or not all(map(_FRONT_COLUMN.fullmatch, names[:first])):
        return None
    if not ranks and (STATED_RANK.search(line) or not (SEPARATED.fullmatch(line) and UNIT.search(",".join(cells)))):
        return None
    found = {at: (kind, ms_of(cells[at]) or usual) for at, name in enumerate(names) if at > first and (kind := kind_of(name))}
    of, at = ranks[0] if ranks else None, steps[0] if steps else None
    return Table(of, at, found, len(cells)) if len({kind for kind, _ in found.values()}) > 1 else None


def row(table: Table, line: str) -> tuple[int | None, int | None, list[tuple[str, float]]] | None:
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
    """Cells of one line; commas between semicolons or tabs are those of numbers."""
    if not SEPARATED.fullmatch(line):
        return _CELL.findall(line)
    mark = next((mark for mark in ";\t" if line.count(mark) > 1), None)
    return line.split(mark) if mark else re.split(r"[,\t;]", line)


def _number(cell: str) -> float | None:
    said = _VALUE.fullmatch(cell)
    return float(said[1].replace(",", ".")) if said else None


def _in_english(cell: str) -> str:
    """The name of a column as it is known here; of one in English itself."""
    name = cell.strip()
    for theirs, ours in _ENGLISH:
        name = theirs.sub(ours, name)
    return name
