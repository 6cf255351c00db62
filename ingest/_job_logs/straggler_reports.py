"""Rows of `straggler_reports`: what detectors of stragglers print of the ranks of a job that moves.

Upstream: NVIDIA/nvidia-resiliency-ext and its callbacks in NeMo (score: time of the fastest rank over the own one),
`StragglerDetector` of megatron/core/utils.py and `GlobalStragglerDetector` of mosaicml/composer (least and most of a value,
each with its rank), `gpu_sniff_test.py` of Megatron (outliers below a median, at first a mean), detectors that print the time
of a section by rank (FlagScale puts the node behind the rank).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from forensics.ingest._shared.values import rank_number
from forensics.ingest.interface import Batch

WORDS = (
    *("GPU relative performance", "GPU individual performance", "Score=", "Section Timings", "/Rank: ", "/Rnk: "),
    *("OUTLIER rank ", "[TFLOP/s/GPU]: median=", "[GB/s]: median="),
)
EXPRESSIONS = {" mean 0": r" mean \d[\d.]{0,9} TFLOP"}
_HEADING = re.compile(r"(?P<scores>GPU relative performance:)|GPU individual performance:|(?P<sections>Section [Tt]imings)")
_SCORE = re.compile(r"^ {1,8}Rank=(?P<rank>\d{1,7}) Node=\S{1,255} Score=(?P<value>\d{1,6}(?:\.\d{1,9})?)$")
_SECTION = re.compile(r"^ {1,8}(?P<name>[A-Za-z][\w. -]{0,63}):$")
_TIME = re.compile(r"^ {2,12}Rank (?P<rank>\d{1,7})(?: \(\S{1,255}\))?: (?P<value>\d{1,12}(?:\.\d{1,9})?) ?ms$")
_SUMMARY = re.compile(r"^ {1,12}(?:Min: |(?:Worst|Best) performing \d)|^ *$")
_EXTREME = re.compile(
    r"\b(?P<end>Min|Max|Mn|Mx)(?P<what>RoundTripTime|Rtt|Throughput|Etpt|Clock|Clk)/(?:Rank|Rnk): "
    r"(?P<value>\d{1,12}(?:\.\d{1,9})?)[A-Za-z]{0,4}/(?P<rank>\d{1,7})\b"
)
_MEAN = re.compile(r"\[[\w -]{1,40}\] (?P<report>.{0,40}?): (?P<what>.{1,80}?) mean (?P<value>\d{1,9}(?:\.\d{1,9})?) TFLOP/s")
_OUTLIER = re.compile(
    r"\[[\w -]{1,40}\] (?P<report>.{0,40}?): OUTLIER rank (?P<rank>\d{1,7})(?: \(\S{1,255}\))?: (?P<what>.{1,80}?) "
    r"(?P<value>\d{1,9}(?:\.\d{1,9})?) TFLOP/s"
)
_MEDIAN = re.compile(
    r"^ {0,8}(?P<what>.{1,120}?) \[(?P<unit>TFLOP/s/GPU|GB/s)\]: median=(?P<value>\d{1,9}(?:\.\d{1,9})?), mean="
)
_FAR = re.compile(r"^ {0,12}OUTLIER rank (?P<rank>\d{1,7})(?: \(\S{1,255}\))?: (?P<value>\d{1,9}(?:\.\d{1,9})?) \(")
_MEASURES = {"Rtt": "round trip", "RoundTripTime": "round trip", "Etpt": "throughput", "Throughput": "throughput"}
_MOST_ROWS = 1 << 18


class StragglerReports:
    """Collects the reports of a file."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, str, int, float, bool]] = []
        self._reports: Counter[str] = Counter()
        self._measure: str | None = None
        self._values: dict[int, tuple[int, float]] = {}
        self._ends: dict[str, dict[bool, tuple[float, int]]] = {}
        self._means: dict[str, tuple[str, float]] = {}
        self._median: tuple[str, float] | None = None
        self.is_open = False

    def feed(self, number: int, line: str) -> None:
        """Take one line without what stands in front of it."""
        if heading := _HEADING.search(line):
            self._close()
            self._measure = "score" if heading["scores"] else None
            self.is_open = True
        elif self.is_open:
            self._listed(number, line)
        for said in _EXTREME.finditer(line) if "/R" in line else ():
            self._extreme(number, said)
        if "FLOP/s" in line:
            self._tested(number, line)
        if ": median=" in line or "OUTLIER rank " in line:
            self._under_median(number, line)

    def _listed(self, number: int, line: str) -> None:
        if said := _SCORE.match(line) or _TIME.match(line):
            rank = rank_number(said["rank"])
            if self._measure is not None and rank is not None:
                self._values[rank] = number, float(said["value"])
        elif section := _SECTION.match(line):
            self._close()
            self._measure, self.is_open = f"section {section['name']}", True
        elif not _SUMMARY.match(line):
            self._close()

    def _close(self) -> None:
        """The list has ended: compare its ranks with the fastest of them."""
        values = [value for _, value in self._values.values()]
        if self._measure is not None and len(values) > 1 and min(values) > 0:
            self._reports[self._measure] += 1
            best = max(values) if self._measure == "score" else min(values)
            for rank, (number, value) in self._values.items():
                factor = best / value if self._measure == "score" else value / best
                self._add(number, self._measure, rank, factor, is_listed=True)
        self._measure, self._values, self.is_open = None, {}, False

    def _extreme(self, number: int, said: re.Match[str]) -> None:
        measure = _MEASURES.get(said["what"], "clock")
        rank = rank_number(said["rank"])
        ends = self._ends.setdefault(measure, {})
        if rank is None:
            return
        ends[said["end"] in ("Max", "Mx")] = float(said["value"]), rank
        if len(ends) == 2 and ends[False][0] > 0:
            self._reports[measure] += 1
            _, slowest = ends[measure == "round trip"]
            self._add(number, measure, slowest, ends[True][0] / ends[False][0], is_listed=False)
        if len(ends) == 2:
            ends.clear()

    def _tested(self, number: int, line: str) -> None:
        """A mean over all ranks begins a report; below it stand those that are far from it, if any."""
        if mean := _MEAN.search(line):
            self._reports[f"test {mean['what']}"] += 1
            self._means[mean["what"]] = mean["report"], float(mean["value"])
        elif (far := _OUTLIER.search(line)) and (rank := rank_number(far["rank"])) is not None:
            report, usual = self._means.get(far["what"], ("", 0.0))
            if report == far["report"] and float(far["value"]) > 0:
                self._add(number, f"test {far['what']}", rank, usual / float(far["value"]), is_listed=False)

    def _under_median(self, number: int, line: str) -> None:
        """A median begins a report; what each GPU does alone counts, for in a collective all ranks take their time together."""
        if median := _MEDIAN.search(line):
            self._median = None
            if median["unit"] != "GB/s":
                self._reports[f"test {median['what']}"] += 1
                self._median = f"test {median['what']}", float(median["value"])
        elif self._median and (far := _FAR.search(line)) and (rank := rank_number(far["rank"])) is not None:
            measure, usual = self._median
            if float(far["value"]) > 0:
                self._add(number, measure, rank, usual / float(far["value"]), is_listed=False)

    def _add(self, number: int, measure: str, rank: int, factor: float, is_listed: bool) -> None:
        if len(self._rows) < _MOST_ROWS:
            self._rows.append((number, self._reports[measure], measure, rank, factor, is_listed))

    def batches(self) -> Iterator[Batch]:
        """All rows, once the file was read."""
        self._close()
        names = ("locator", "report", "measure", "rank", "factor", "is_listed")
        if self._rows:
            columns: Mapping[str, Any] = dict(zip(names, map(list, zip(*self._rows, strict=True)), strict=True))
            yield Batch("straggler_reports", dict(columns))
