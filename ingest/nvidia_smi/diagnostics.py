"""Tests of GPUs that failed, by the table of `dcgmi diag`: `Fail - GPU: 1` (DCGM 2 and 3), or `GPU1: Fail` among all (DCGM 4).

They stand beside the name of the test or below it. Where all GPUs fail (`Fail - All`) none differs from its peers.
With `-j` it is a document: tests of categories, each with results by `gpu_ids` (DCGM 2), `gpu_id` (3) or `entity_id` (4).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from forensics.ingest.nvidia_smi.document import MAX_TEXT

_MOST = 1_024
_TITLE = re.compile(r"^\| Diagnostic {2,40}\| Result {2,60}\|", re.MULTILINE)
_ROW = re.compile(r"\| (?P<test>[A-Za-z][\w /:]{0,40}?)? *\| (?P<result>.{1,80}?) *\|\s*$")
_FAILED = re.compile(r"Fail - GPUs?: (\d{1,3}(?:, \d{1,3}){0,63})$")
_OF_EACH = re.compile(r"GPU(\d{1,3}): (Pass|Fail|Skip|Warn)")
_NOTES = ("Warning", "Error", "Info")
_DOCUMENT = re.compile(r"\s*\{\s*\"DCGM (?:GPU )?Diagnostic\"\s*:")
MOST_BYTES = 4 << 20
"""What a host of sixteen GPUs writes is a hundredth of it."""


def is_diagnostics(head: str) -> bool:
    """Whether it begins with the table."""
    return _TITLE.search(head) is not None


def is_document(head: bytes) -> bool:
    """Whether it begins as the document that `-j` prints."""
    return _DOCUMENT.match(head[:256].decode("utf-8", "replace")) is not None


def failed_in_document(document: Any) -> Iterator[tuple[int, str]]:
    """Number of the GPU and name of each test that it failed and others passed; the document has no lines of its own."""
    (whole,) = [value for name, value in document.items() if name.startswith("DCGM ")][:1] or [None]
    for category in _listed(whole, "test_categories"):
        for test in _listed(category, "tests"):
            results = [
                (gpu, str(each.get("status", "")).capitalize()) for each in _listed(test, "results") for gpu in _numbers(each)
            ]
            failed = [gpu for gpu, status in results if status == "Fail"]
            if any(status == "Pass" for _, status in results):
                yield from ((gpu, str(test.get("name", ""))[:MAX_TEXT]) for gpu in failed[:_MOST])


def _listed(value: Any, name: str) -> list[dict[str, Any]]:
    found = value.get(name) if isinstance(value, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _numbers(result: dict[str, Any]) -> list[int]:
    """The GPUs of one result; other entities than GPUs are left out."""
    if result.get("entity_group", "GPU") != "GPU":
        return []
    stated = next((result[name] for name in ("gpu_ids", "gpu_id", "entity_id") if name in result), "")
    return [int(number) for number in str(stated).split(",") if number.strip().isdecimal()]


def failed_tests(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Line, number of the GPU and name of each test that it failed."""
    test: str | None = None
    found = 0
    results: dict[str, dict[int, tuple[str, int]]] = {}
    for number, whole in lines:
        row = _ROW.match(whole[:MAX_TEXT])
        if row is None:
            test = None
            continue
        test = row["test"] or test
        if test is None or test.startswith(_NOTES) or found >= _MOST:
            continue
        failed, each = _FAILED.match(row["result"]), _OF_EACH.match(row["result"])
        for gpu in failed[1].split(", ") if failed else ():
            found += 1
            yield number, int(gpu), test
        if each:
            found += 1
            results.setdefault(test, {})[int(each[1])] = each[2], number
    for name, of_gpus in results.items():
        if any(result == "Pass" for result, _ in of_gpus.values()):
            yield from ((number, gpu, name) for gpu, (result, number) in of_gpus.items() if result == "Fail")
