"""Tests of GPUs that failed, by the table of `dcgmi diag` (DCGM 2 and 3): `Fail - GPU: 1` beside the test or below it.

Where all GPUs fail (`Fail - All`) none differs from its peers. DCGM 4 prints another table, which is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from forensics.ingest.nvidia_smi.document import MAX_TEXT

_MOST = 1_024
_TITLE = re.compile(r"^\| Diagnostic {2,40}\| Result {2,60}\|", re.MULTILINE)
_ROW = re.compile(r"\| (?P<test>[A-Z][\w /]{0,40}?)? *\| (?P<result>.{1,80}?) *\|\s*$")
_FAILED = re.compile(r"Fail - GPUs?: (\d{1,3}(?:, \d{1,3}){0,63})$")
_NOTES = ("Warning", "Error", "Info")


def is_diagnostics(head: str) -> bool:
    """Whether it begins with the table."""
    return _TITLE.search(head) is not None


def failed_tests(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Line, number of the GPU and name of each test that it failed."""
    test: str | None = None
    found = 0
    for number, whole in lines:
        row = _ROW.match(whole[:MAX_TEXT])
        if row is None:
            test = None
            continue
        test = row["test"] or test
        failed = _FAILED.match(row["result"]) if test not in (None, *_NOTES) else None
        for gpu in failed[1].split(", ") if failed and found < _MOST else ():
            found += 1
            yield number, int(gpu), str(test)
