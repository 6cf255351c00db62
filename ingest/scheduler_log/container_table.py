"""The one container of a job that ended by an error while others of its image run, by `docker ps -a` (or podman's).

Upstream: cli/command/formatter/container.go of docker/cli: columns by their headings, ages in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

HEADER = re.compile(r"(?=.*\bIMAGE\b)(?=.*\bSTATUS\b)(?=.*\bNAMES\b)[A-Z ]{10,400}")
_ENDED = re.compile(r"Exited \((?P<code>\d{1,3})\) (?P<age>.{2,40}) ago")
_RUNS = re.compile(r"Up (?P<age>.{2,40}?)(?: \(\w{1,20}\))?")
_AGE = re.compile(r"(?:(?P<count>\d{1,4})|Less than a|About an?) (?P<unit>second|minute|hour|day|week|month|year)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800, "month": 2_592_000, "year": 31_536_000}
_LEAST_OTHERS, _MOST = 2, 4096
KIND = "container_ended"


class _Row(NamedTuple):
    number: int
    line: str
    cells: dict[str, str]


class ContainerTable:
    """Takes lines; cells begin below their headings, or two spaces or a tab after the one before."""

    def __init__(self) -> None:
        self._names: list[tuple[int, str]] = []
        self._rows: list[_Row] = []

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if HEADER.fullmatch(line.rstrip()):
            self._names = [(found.start(), found[0]) for found in re.finditer(r"[A-Z]+(?: [A-Z]+)?", line)]
        elif self._names and line.strip() and len(self._rows) < _MOST:
            ends = [*(at for at, _ in self._names[1:]), len(line)]
            cells = {name: line[at:end].strip() for (at, name), end in zip(self._names, ends, strict=True)}
            self._rows.append(_Row(number, line, cells))
            self._names = self._names if _ENDED.fullmatch(cells["STATUS"]) or cells["STATUS"].startswith("Up ") else []
        else:
            self._names = []

    def ended(self) -> Iterator[tuple[int, str, str, str]]:
        """(line, text, kind, subject) of the one that ended after the others of its image began; they still run."""
        bad = [
            (row, said) for row in self._rows if (said := _ENDED.fullmatch(row.cells.get("STATUS", ""))) and said["code"] != "0"
        ]
        found = []
        for row, said in bad:
            others = [
                _age(up["age"]) for other in self._rows if (up := _RUNS.fullmatch(other.cells["STATUS"])) and _alike(row, other)
            ]
            if len(others) >= _LEAST_OTHERS and _age(said["age"]) < min(others):
                found.append((row, said["code"], len(others)))
        if len(found) == 1:
            row, code, others_count = found[0]
            yield row.number, row.line, KIND, f"{row.cells['NAMES']} code={code} running={others_count}"


def _alike(one: _Row, other: _Row) -> bool:
    return one.cells["IMAGE"] == other.cells["IMAGE"]


def _age(text: str) -> int:
    """Seconds; an age that is not understood is as long as any."""
    said = _AGE.fullmatch(text)
    return int(said["count"] or 1) * _SECONDS[said["unit"]] if said else _SECONDS["year"] * 1_000
