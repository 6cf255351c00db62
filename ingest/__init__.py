"""Ingesters: one package for each source format, found by looking into this folder."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache

from forensics.ingest.interface import Ingester

SNIFF_BYTES = 4096
"""How much of an artefact an ingester sees before it is chosen."""


@cache
def discover() -> tuple[Ingester, ...]:
    """All ingesters, by name; packages whose name starts with an underscore are shared by several."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple(module.INGESTER for module in modules if hasattr(module, "INGESTER"))


_COLOURS = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")


def without_colours(content: bytes) -> bytes:
    """A text as it was before a terminal coloured it; what is not text stays as it is."""
    return _COLOURS.sub(b"", content) if b"\x1b[" in content and b"\0" not in content else content


def choose(head: bytes, path: str) -> Ingester | None:
    """The ingester that is surest of the first `SNIFF_BYTES`; the first by name among equals, None when nobody knows them."""
    # What was copied from a terminal with its colours is the text all the same: readers of lines drop them too.
    head = without_colours(head)
    best, found = 0, None
    for ingester in _surest_first():
        if ingester.most < best:
            break
        score = ingester.sniff(head, path)
        if score > best or (score == best and found is not None and ingester.name < found.name):
            best, found = score, ingester
    return found


@cache
def _surest_first() -> tuple[Ingester, ...]:
    return tuple(sorted(discover(), key=lambda ingester: -ingester.most))
