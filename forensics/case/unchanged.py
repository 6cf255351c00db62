"""Captures that have the bytes of the one before them: a process that stands still is read once, and stated at each moment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter

from forensics.bundle.artefact import Artefact
from forensics.case.reading import Reading, read_packed
from forensics.ingest import discover
from forensics.ingest._shared.packed import PackedBatch, Types, constant
from forensics.ingest.interface import Batch

_NUMBERS = re.compile(r"\d+")
_OF_A_MOMENT = frozenset({"path", "open", "sample", "captured_ns"})
_beside_moment = attrgetter(*(field.name for field in fields(Artefact) if field.name not in _OF_A_MOMENT))


def repeats(artefact: Artefact, before: Artefact | None) -> bool:
    """Whether it is another numbered capture of the same process, of the same bytes, that differs in its moment only."""
    if before is None or artefact.sha256 is None or artefact.sha256 != before.sha256:
        return False
    is_like = artefact.numbered and artefact.has_stated_rank and _beside_moment(artefact) == _beside_moment(before)
    # A reader may be chosen by the name as well.
    return is_like and _NUMBERS.sub("0", artefact.path) == _NUMBERS.sub("0", before.path)


@cache
def _by_moment() -> frozenset[str | None]:
    """Names of ingesters of which an artefact that is repeated need not be read again."""
    return frozenset(ingester.name for ingester in discover() if ingester.by_moment)


def read_in_turn(artefacts: Iterable[Artefact], types: Mapping[str, Types]) -> Iterator[Reading | None]:
    """The reading of each artefact; None for one that says what the artefact before it said, at another moment."""
    before: Artefact | None = None
    is_by_moment = False
    for artefact in artefacts:
        if is_by_moment and repeats(artefact, before):
            yield None
        else:
            reading = read_packed(artefact, types)
            is_by_moment = reading.parser in _by_moment()
            yield reading
        before = artefact


def with_repeated(found: Iterable[tuple[Artefact, Reading | None]], types: Mapping[str, Types]) -> Iterator[Reading]:
    """The readings, those that were left out made of the ones before them."""
    reading: Reading | None = None
    for artefact, each in found:
        reading = each if each is not None or reading is None else _at(artefact, reading, types)
        assert reading is not None  # the first one of a process, and of a task, is read
        yield reading


def _at(artefact: Artefact, reading: Reading, types: Mapping[str, Types]) -> Reading:
    """The same at the moment of another artefact."""
    moment = {"sample": artefact.sample or 0, "time_ns": artefact.captured_ns}
    return replace(reading, batches=[_moved(batch, moment, types[batch.table]) for batch in reading.batches])


def _moved(batch: Batch | PackedBatch, moment: Mapping[str, int | None], types: Types) -> Batch | PackedBatch:
    stamped = [name for name in moment if name in batch.columns]
    if not stamped:
        return batch
    count = len(batch.columns[stamped[0]])
    columns = {name: constant(moment[name], types[name], count) for name in stamped}
    return PackedBatch(batch.table, {**batch.columns, **columns})
