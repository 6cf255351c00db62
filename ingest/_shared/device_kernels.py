"""Kernels on a device as cuda-gdb lists them: the table of `info cuda kernels`, or the kernel that it puts in focus.

Upstream: CUDA-GDB 11 to 13, "Info CUDA Commands" and "Kernel Focus".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.collective_kernels import moves_data
from forensics.ingest._shared.dump_times import time_in
from forensics.ingest._shared.stack_headings import heading_of
from forensics.ingest._shared.stack_text import PROCESS
from forensics.ingest.interface import Batch

MAX_KERNELS = 100_000
_LONGEST = 2048
_TABLE = re.compile(r"\s*Kernel\s+Parent\s+Dev\s+Grid\s+Status\s")
_ROW = re.compile(
    r"[* ]\s*\d{1,9}\s+(?:-|\d{1,9})\s+(?P<device>\d{1,4})\s+(?P<grid>\d{1,18})\s+(?P<status>[A-Z][a-z]{2,15})\s+"
    r"(?:0x[0-9a-fA-F]{1,200}\s+|n/a\s+|-\s+)?(?:\(\d{1,10},\s?\d{1,10},\s?\d{1,10}\)\s+){2,3}(?P<name>\S.{0,1023})"
)
_FOCUS = re.compile(
    r"\[(?:Switching focus to|Current focus set to) CUDA kernel \d{1,9}, grid (?P<grid>\d{1,18}),.{0,160}?"
    r"device (?P<device>\d{1,4}),"
)
_PLACE = re.compile(r"(?:0x[0-9a-fA-F]{1,16} in )?(?P<name>[A-Za-z_][^()]{0,511}?)(?:<<<.{0,80}>>>)? ?\(")


def is_kernels(text: str) -> bool:
    """Whether a text has such a table, or a kernel in focus."""
    lines = [line[:_LONGEST] for line in text.splitlines()]
    return any(_TABLE.match(line) or _FOCUS.match(line) for line in lines)


class DeviceKernels:
    """Collects the kernels of a text; each table of a process is a sample of it."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = defaultdict(list)
        self._rank: int | None = None
        self._pid: int | None = None
        self._tables: Counter[tuple[int | None, int | None]] = Counter()
        self._time_ns: int | None = None
        self._focus: re.Match[str] | None = None

    def feed(self, number: int, line: str) -> None:
        """Take a line of the text."""
        if len(line) <= _LONGEST:
            self._read(number, line)

    def _read(self, number: int, line: str) -> None:
        if process := PROCESS.match(line):
            self._pid = int(process[1])
        elif (heading := heading_of(line)) and heading.rank is not None:
            self._rank, self._pid = heading.rank, None
        elif _TABLE.match(line):
            self._tables[self._rank, self._pid] += 1
        elif row := _ROW.match(line):
            # What is not active has not begun.
            if row["status"] == "Active":
                self._add(number, row, row["name"])
        elif focus := _FOCUS.match(line):
            self._focus = focus
        elif self._focus is not None and (place := _PLACE.match(line)):
            if not self._tables[self._rank, self._pid]:
                self._add(number, self._focus, place["name"])
            self._focus = None
        elif (written := time_in(line)) is not None:
            self._time_ns = written

    def _add(self, number: int, found: re.Match[str], name: str) -> None:
        if len(self._columns["locator"]) >= MAX_KERNELS:
            return
        values = {
            "locator": f"line={number}", "pid": self._pid, "sample": max(0, self._tables[self._rank, self._pid] - 1),
            "time_ns": self._time_ns, "device": int(found["device"]), "grid": int(found["grid"]), "kernel": name.strip(),
            "communicates": moves_data(name), "rank": self._rank,
        }  # fmt: skip
        for column, value in values.items():
            self._columns[column].append(value)

    def batches(self, artefact: Artefact) -> Iterator[Batch]:
        """Rows of `device_kernels`; a rank of the text goes before that of the file."""
        columns = dict(self._columns)
        if not columns:
            return
        if all(rank is None for rank in columns["rank"]):
            del columns["rank"]
        columns["pid"] = [artefact.pid if pid is None else pid for pid in columns["pid"]]
        columns["sample"] = [(artefact.sample or 0) + sample for sample in columns["sample"]]
        columns["time_ns"] = [artefact.captured_ns if time is None else time for time in columns["time_ns"]]
        yield Batch("device_kernels", columns)
