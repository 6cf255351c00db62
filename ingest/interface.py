"""What an ingester is: one package of this one that knows one source format.

A package takes part by having a module-level `INGESTER: Ingester`; there is no list to edit. An ingester never raises on bad
evidence: it yields a `Problem` with its position and goes on. It emits columns, not an object per event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forensics.bundle.artefact import Artefact

Column = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows for one table of `case/schema.sql`, as columns of equal length.

    Columns that are absent become null; `source_id`, and `host` and `rank` where the table has them and the batch has
    not, are filled from the artefact.
    """

    table: str
    columns: Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read; `locator` is its position in the artefact (`entry=12`, `line=3`, `byte=4096`).

    `fatal` means that nothing (more) of the artefact could be used.
    """

    message: str
    locator: str | None = None
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """What the content itself says of its origin; overrides what the path suggested.

    `kind` is that of the artefact that it stands for, where it is a summary of one.
    """

    rank: int | None = None
    host: str | None = None
    kind: str | None = None


Item = Batch | Problem | Identity

LAST_RESORT = 1
"""What `sniff` gives for content that is of a format only if something of the format is found in it."""


@dataclass(frozen=True, slots=True)
class Ingester:
    """One format: `sniff(head, path)` gives 0..100 from the first 4 KiB and the path; `rows(artefact)` streams its facts.

    `most` is the most that `sniff` gives: it is not asked where another ingester is surer. With `by_moment` captures of equal
    bytes of one process differ in the columns `sample` and `time_ns` only, which are the artefact's: they are read once.
    """

    name: str
    kind: str
    sniff: Callable[[bytes, str], int]
    rows: Callable[[Artefact], Iterator[Item]]
    most: int = 100
    by_moment: bool = False
