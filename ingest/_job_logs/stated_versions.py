"""Versions of NCCL, PyTorch and the driver and the machine, as logs print them, and lines by which known defects show.

Upstream: NCCL's `NCCL version 2.28.9+cuda13.0`, torch.utils.collect_env, pip, nvidia-smi's table, the first line of the driver.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._shared.config import config_rows
from forensics.ingest.interface import Batch

DRIVER_WORDS = ("NVIDIA UNIX ",)
_NOTES = ("didn't receive a valid magic", "ncclMaxSharedMem ", "Comm config Blocking set to 0")
WORDS = (
    *("NCCL version ", "torch version", "PyTorch version", "torch==", "river version", "Driver Version"),
    *("Architecture: ", "Python platform", " GNU/Linux", *DRIVER_WORDS, *_NOTES),
)
_STATED = (
    re.compile(r"\bNCCL version v?(?P<nccl>\d{1,3}\.\d{1,3}\.\d{1,3})"),
    re.compile(r"\b(?:[Tt]orch version|PyTorch version)[\"']?[:=] ?[\"']?(?P<torch>\d[\w.+]{2,60})"),
    re.compile(r"\btorch==(?P<torch>\d[\w.+]{2,60})"),
    re.compile(r"(?:[Dd]river version|Driver Version) ?: ?(?P<driver>\d{3}(?:\.\d{1,4}){1,2})"),
    re.compile(r"NVIDIA UNIX (?:Open )?(?:\w+ )?Kernel Module(?: for \w+)? +(?P<driver>\d{3}(?:\.\d{1,4}){1,2})"),
    re.compile(r"(?:Architecture: +|Python platform: Linux-\S{1,200}?-)(?P<machine>x86_64|aarch64)\b"),
    re.compile(r"\b(?P<machine>x86_64|aarch64) GNU/Linux"),
)
_MOST = 8


class StatedVersions:
    """Collects what a file states, a few values of each."""

    def __init__(self) -> None:
        self._found: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def feed(self, line: str) -> None:
        """Take one line."""
        if not mentions(line, WORDS):
            return
        for stated in _STATED:
            for name, value in match.groupdict().items() if (match := stated.search(line)) else ():
                if value is not None:
                    self._keep("log.machine" if name == "machine" else f"log.{name}_version", value)
        if mentions(line, _NOTES):
            self._keep("log.note", line)

    def _keep(self, key: str, value: str) -> None:
        if len(self._found[key]) < _MOST:
            self._found[key][value] = None

    def batches(self) -> Iterator[Batch]:
        """One row for each value."""
        yield from config_rows(((key, value) for key, values in self._found.items() for value in values), rank=None)
