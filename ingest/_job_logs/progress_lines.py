"""Rows of `log_progress`: lines that count something up, as trainers and their bars print them.

The number of a step, of an item of a total (`validating 40/91000`) or of a bar (`280000/2969526 [29:55<4:48:08`). Lines of one
rank whose words agree are a series; a number that falls begins another part of it. Times are those in front of the lines, as
they stand there, or what a bar says has elapsed; averages over all steps so far (`s/it`, `samples/sec`) are not read.
Dictionaries of transformers that tell an epoch and no step (`{'loss': 2.1, ..., 'epoch': 0.01}`) are counted themselves.
Upstream: Megatron-LM, torchtitan, nanoGPT, DeepSpeed, tqdm (transformers, Lightning), rich
(Lightning), NeMo, Composer, verl, as of 2025.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from forensics.ingest._job_logs.line_origin import Origins
from forensics.ingest._job_logs.patterns import STATED_RANK
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.resumption import resumed, without_repeats
from forensics.ingest._shared.values import rank_number
from forensics.ingest.interface import Batch

SCANNED_BYTES = 4 << 20
"""Of longer files blocks are left out evenly."""
_MANY_RANKS, _OF_ONE_OF_MANY = 16, 1 << 18
"""Files of more ranks tell mostly the same: of each so many bytes are read, as it may be the last rank that counts for all."""
_MOST_POINTS = 512
_LONGEST = 2048
_SHOWN = 160
_KEY = r"(?:iteration|iter|global[_ ]?step|step|batch|update|num_updates|sample|image|shard|document)s?"
# A word of any sentence: beside its number stands the end of a column, or what was measured in the step.
_IT = r"it(?=[ :=]{1,3}\d{1,12}(?:/\d{1,12})? {0,12}(?:[|,:\])]|(?i:train_)?(?i:loss|lr)\b))"
_HINT = re.compile(
    rb"\d {0,12}(?:/|of ) {0,12}\d|\dit \[\d|\{'loss': "
    rb"|\bit[ :=]{1,3}\d|\d\s{1,8}(?:images|img|samples|examples|tokens)/s"
    rb"|(?i:iter|step|batch|update|sample|image|shard|document)\w{0,8}\W{1,12}\d"
)
_BAR = re.compile(
    r"(?:\| {0,8}|(?<!\d))(?P<step>\d{1,12})(?:/(?P<total>\d{1,12})|it) "
    r"(?:\[(?P<elapsed>(?:\d{1,4}:)?\d{1,2}:\d\d)[<,][^\]]{0,200}\]?|(?P<rich>\d{1,4}:\d\d:\d\d) • (?:-|\d)[^|]{0,200})"
)
_KEYED = re.compile(
    rf"(?<![\w-])(?:(?i:{_KEY})|{_IT})['\"]?(?: ?[:=#\]\[] {{0,3}}\[?| {{1,12}})(?P<step>\d{{1,12}})"
    r"(?:/ {0,12}(?P<total>\d{1,12}))?(?![\w.]*\.\w|\w)"
)
# Benchmarks of TensorFlow put the step first, and behind it what they measured.
_RATED = re.compile(
    r"(?<![\w./-])(?P<step>\d{1,12})(?P<total>)\s{1,8}(?:images|img|samples|examples|tokens)/s(?:ec(?:ond)?)?: {0,3}\d"
)
_REPORT = re.compile(r"\{'loss': [^{}]{1,400}'epoch': '?(?P<epoch>\d{1,6}(?:\.\d{1,9})?)'?[,}]")
# First word of the name of a series whose lines have no number of their own.
_REPORTS = "report"
_OF_TOTAL = re.compile(r"(?<![\w./:-])(?P<step>\d{1,12})(?: ?/ {0,12}| of )(?P<total>\d{1,12})(?![\w/:-]|\.\d)")
_STAMP = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?|(\d\d)/(\d\d)/(\d{4}),? (\d\d):(\d\d):(\d\d)"
)
_STATED = re.compile(
    r"elapsed time per iteration \(ms\): (?P<ms>\d{1,9}(?:\.\d{1,6})?)"
    r"|\b(?P<s>\d{1,6}(?:\.\d{1,6})?) ?s(?:ec)?/step\b"
    r"|\b(?:step[_ ]time(?:_s| \(s\))?|train_step_timing in s|timing_s/step)[=:] ?"
    r"(?P<s2>\d{1,6}(?:\.\d{1,6})?)(?!\d|\.\d| ?m?s\b)"
    r"|\b(?:(?:step|iter|batch)[_ ]?)?(?:time|dt)\b[=: ]{1,3}(?P<with_unit>\d{1,9}(?:\.\d{1,6})?) ?(?P<unit>ms|s)\b"
    r"|[|,(] {0,12}(?P<bare>\d{1,9}(?:\.\d{1,6})?) ?ms\)?\s{0,4}$"
)
_LOAD = re.compile(r"(?i:batch[ _]size|seq(?:uence)?[ _]?len(?:gth)?|num[ _]tokens|\bbsz?)['\"]?[ :=]{1,8}\d{1,12}")
_LAST = re.compile(r"(?:^|[ \t,|(\[])(?:rank|RANK|Rank)[ _:=]{1,2}(\d{1,7})[\])]? {0,4}$")
_NO_WORK = re.compile(
    r"(?i:wait|barrier|time[d ]?-?out|retr(?:y|ies)|attempt|heartbeat|alive|poll|connect|watchdog|nccl|frame #"
    r"|\b(?:rank|worker|node|gpu|process|device|thread|host)s?[ #:=]{0,3}$)"
)


_LOADS = re.compile(rb"(?i:\b(?:load|resum|restor|recover)(?:ing|ed) )[^\n]{0,60}?[Cc]heckpoint")
_MOST_LOADS = 1024


class Point(NamedTuple):
    """One line; `at_s` counts from 1970 as if a time in front were UTC, or from the begin of a bar."""

    locator: int
    step: int
    clock: str | None
    at_s: float | None
    stated_s: float | None
    load: str | None
    text: str


class _Key(NamedTuple):
    rank: int | None
    label: str | None
    series: str
    total: int | None


@dataclass(slots=True)
class _Series:
    """Kept points of the parts of a series: each `stride`-th one, and the newest of each part.

    `unread` gives the newest where it was not kept: of most lines nothing but the step is read.
    """

    parts: list[list[Point]] = field(default_factory=lambda: [[]])
    step: int = -1
    unread: Callable[[], Point] | None = None
    seen: int = 0

    def add(self, step: int, point: Callable[[], Point], stride: int) -> bool:
        """Take a point; whether it was kept."""
        if step == self.step:
            return False
        if step < self.step:
            self._close()
            self.parts.append([])
        self.step, self.unread = step, None
        self.seen += 1
        if self.seen % stride and self.parts[-1]:
            self.unread = point
            return False
        self.parts[-1].append(point())
        return True

    def _close(self) -> None:
        if self.unread is not None:
            self.parts[-1].append(self.unread())
            self.unread = None

    def thin(self) -> int:
        """Leave out every other point; how many are left."""
        newest = self.parts[-1][-1]
        self.parts = [part[::2] for part in self.parts]
        if self.unread is None and self.parts[-1][-1] is not newest:
            self.unread = partial(_same, newest)
        return sum(map(len, self.parts))

    def closed(self) -> list[list[Point]]:
        """All parts, each with its newest point."""
        self._close()
        return self.parts


class ProgressLines:
    """Collects them over a file of `size` bytes, which may be that of a rank."""

    def __init__(self, size: int, rank: int | None) -> None:
        self._every = 1 + size // (_OF_ONE_OF_MANY if rank is not None and rank >= _MANY_RANKS else SCANNED_BYTES)
        self._blocks = 0
        self._series: dict[_Key, _Series] = {}
        self._kept, self._stride, self._most = 0, 1, _MOST_POINTS
        self._pairs: dict[str, tuple[int, int]] = {}
        self._in_epochs: set[str] = set()
        self._reports: dict[_Key, tuple[int, float]] = {}
        self._loads: list[int] = []

    def survey(self, number: int, block: bytes, origins: Origins) -> None:
        """Take whole lines, the first of which has this number."""
        self._blocks += 1
        if (self._blocks - 1) % self._every:
            return
        if b"heckpoint" in block and len(self._loads) < _MOST_LOADS:
            self._loads += [number + block.count(b"\n", 0, found.start()) for found in _LOADS.finditer(block)]
        has_parts = b"\r" in block
        place = counted = 0
        while hit := _HINT.search(block, place):
            start = max(place, block.rfind(b"\n", place, hit.start()) + 1)
            start = max(start, block.rfind(b"\r", start, hit.start()) + 1) if has_parts else start
            part = block.find(b"\r", hit.end(), hit.end() + _LONGEST) if has_parts else -1
            end = len(block) if part < 0 else part
            place = block.find(b"\n", hit.end(), end)
            place = end if place < 0 else place
            number += block.count(b"\n", counted, start)
            counted = start
            self._line(number, block[start : min(place, start + _LONGEST)].decode("utf-8", "replace"), origins)

    def _line(self, number: int, line: str, origins: Origins) -> None:
        report = _REPORT.search(line)
        said = report or _BAR.search(line) or _KEYED.search(line) or _OF_TOTAL.search(line) or _RATED.search(line)
        if said is None:
            return
        place = said.start() if report else said.start("step")
        if _NO_WORK.search(line, 0, place):
            return
        origin = origins.feed(line[:place])
        stated = (STATED_RANK.search(line, 0, place) or _LAST.search(line)) if origin.rank is None else None
        rank = rank_number(stated[1]) if stated else origin.rank
        words = re.sub(r"[\d\W_]+", " ", _STAMP.sub("", origin.bare[origin.text :]))[-40:].strip()
        if report:
            key = _Key(rank, origin.label, f"{_REPORTS} {words}".strip(), None)
            step = self._reported(key, float(report["epoch"]))
        else:
            step, total = self._counted(words, said)
            key = _Key(rank, origin.label, words, total)
        self._take(key, step, partial(_point, number, step, said, line))

    def _take(self, key: _Key, step: int, point: Callable[[], Point]) -> None:
        self._kept += self._series.setdefault(key, _Series()).add(step, point, self._stride)
        if self._kept >= self._most:
            self._kept = sum(series.thin() for series in self._series.values())
            self._stride *= 2
            self._most = max(_MOST_POINTS, 2 * self._kept)

    def _reported(self, key: _Key, epoch: float) -> int:
        """Number of a report that has none, from 1 on; again from 1 where the epoch falls."""
        count, last = self._reports.get(key, (0, 0.0))
        self._reports[key] = found = (count + 1 if epoch >= last else 1, epoch)
        return found[0]

    def _counted(self, words: str, said: re.Match[str]) -> tuple[int, int | None]:
        """Number and total; an epoch and what is counted in it, where the second number grows beside one that stays."""
        first, second = int(said["step"]), int(said["total"]) if said["total"] else None
        if said.re is not _KEYED or second is None:
            return first, second
        before = self._pairs.get(words)
        if before is not None and before[0] == first and before[1] < second:
            self._in_epochs.add(words)
        if before is not None or len(self._pairs) < _MOST_POINTS:
            self._pairs[words] = first, second
        return (second, None) if words in self._in_epochs else (first, second)

    def resumed(self, ends: Sequence[int], stalls: Sequence[int], errors: Sequence[int] = ()) -> int | None:
        """The line in which steps go on after the last of these ends, or begin again after watchdogs gave up or an error.

        Bars are left out: work that one rank does by itself may outlast the end of another one.
        """
        series = [
            [[p for p in part if p.clock != "bar"] for part in without_repeats(each.closed())] for each in self._series.values()
        ]
        return resumed([[part for part in each if part] for each in series], ends, stalls, errors, self._loads)

    def unresumed(self, rows: Iterable[LogPosition]) -> Iterator[LogPosition]:
        """Rows of reports below which no steps go on: the program that got such an error may have tried again."""
        reported = list(rows)
        over = {line for line in {row.locator for row in reported} if self.resumed((line,), ()) is not None}
        return (row for row in reported if row.locator not in over)

    def batches(self, ranks: Mapping[str, int], own: int | None) -> Iterator[Batch]:
        """All rows; `ranks` gives the rank of each label, `own` is that of the file."""
        columns: dict[str, list[Any]] = {name: [] for name in ("rank", "series", "part", "total", *Point._fields)}
        for index, (key, series) in enumerate(self._series.items()):
            rank = key.rank if key.rank is not None else ranks.get(key.label or "", own)
            for part, points in enumerate(series.closed()):
                for point in points if len(points) > 1 else ():
                    values = (rank, f"{index} {key.series}".strip(), part, key.total, *point)
                    for name, value in zip(columns, values, strict=True):
                        columns[name].append(value)
        if columns["step"]:
            yield Batch("log_progress", columns)


def _point(number: int, step: int, said: re.Match[str], line: str) -> Point:
    # What another process writes into the line of a bar is not the bar's.
    own = line[: said.end()] if said.re is _BAR else line
    clock, at = _clock(said, line)
    load = " ".join(found[0] for found in _LOAD.finditer(own)) or None
    text = own[max(0, len(own) - _SHOWN) :] if said.re is _BAR else own[:_SHOWN]
    return Point(number, step, clock, at, _stated(own), load, text.strip())


def _same(point: Point) -> Point:
    return point


def _clock(said: re.Match[str], line: str) -> tuple[str | None, float | None]:
    if said.re is _BAR:
        parts = [int(part) for part in (said["elapsed"] or said["rich"]).split(":")]
        return "bar", float(sum(part * 60**place for place, part in enumerate(reversed(parts))))
    stamp = _STAMP.search(line, 0, _SHOWN)
    if stamp is None:
        return None, None
    numbers = [int(number) for number in stamp.groups() if number]
    year, month, day = numbers[:3] if stamp[1] else (numbers[2], *numbers[:2])
    hour, minute, second = numbers[3:6]
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None, None
    return "line", moment.timestamp() + (float(f"0.{stamp[7]}") if stamp[7] else 0.0)


def _stated(line: str) -> float | None:
    said = _STATED.search(line)
    if said is None:
        return None
    if said["with_unit"]:
        return float(said["with_unit"]) / (1000 if said["unit"] == "ms" else 1)
    ms = said["ms"] or said["bare"]
    return float(ms) / 1000 if ms else float(said["s"] or said["s2"])
