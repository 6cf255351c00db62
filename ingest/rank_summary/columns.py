"""Columns as the bytes of a section, and back; nothing in the bytes is believed before it was looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from forensics.ingest._shared.packed import Array, Packed, Types, encodable, is_coded
from forensics.ingest.rank_summary.layout import MOST_MEMBERS, NARROW

ROW_BYTES = 8
"""Rows may be as many as the expanded bytes have of these: a column of one value for all rows costs nothing."""
_MOST_WORDS = 1 << 20
_MOST_TEXT = 1 << 16


class Refused(Exception):
    """A part of a section that is not what a section has; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one table."""

    table: str
    count: int
    columns: Mapping[str, Packed]


def encoded(tables: Sequence[Rows], types: Mapping[str, Types]) -> bytes:
    """The columns of a section: the length and text of their directory, then their arrays one after the other."""
    arrays: list[bytes] = []
    directory = [
        {
            "table": each.table,
            "rows": each.count,
            "columns": [
                _encoded(name, column, types[each.table][name], arrays)
                for name, column in each.columns.items()
                if name in types[each.table]
            ],
        }
        for each in tables
        if each.table in types and each.count
    ]
    text = orjson.dumps(directory)
    return b"".join([len(text).to_bytes(4, "little"), text, *arrays])


def _encoded(name: str, column: Packed, kind: str, arrays: list[bytes]) -> dict[str, Any]:
    """One column of the directory; its bytes are added to `arrays`."""
    stated: dict[str, Any] = {"name": name}
    data = column.data
    if len(data) != column.length or column.length == 1:
        stated["one"] = True
    if column.mask is not None:
        stated["nulls"] = True
        data = np.where(column.mask, data[~column.mask][0] if not column.mask.all() else 0, data)
    if is_coded(kind):
        stated["words"] = [_word(word, kind) for word in column.words or ()]
    elif data.dtype != np.bool_ and len(data):
        base = int(data.min())
        if base and abs(int(data.max()) - base) < 1 << 62:
            stated["base"], data = base, data - base
    stated["type"] = "i1" if data.dtype == np.bool_ else _narrowest(data)
    arrays.append(np.ascontiguousarray(data).astype(f"<{stated['type']}").tobytes())
    if column.mask is not None:
        arrays.append(np.packbits(column.mask, bitorder="little").tobytes())
    return stated


def _narrowest(data: Array) -> str:
    low, high = (int(data.min()), int(data.max())) if len(data) else (0, 0)
    return next(kind for kind in NARROW if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)


def _word(word: str | None, kind: str) -> Any:
    """A text as it is, a list of numbers as runs of equal distance: [first, how many, distance]."""
    if word is None or not kind.endswith("[]"):
        return word
    numbers = orjson.loads(word)
    return None if len(numbers) > MOST_MEMBERS else list(_runs(numbers))


def _runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    begin = 0
    while begin < len(numbers):
        end, step = begin + 1, numbers[begin + 1] - numbers[begin] if begin + 1 < len(numbers) else 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        yield [numbers[begin], end - begin, step]
        begin = end


def decoded(content: bytes, types: Mapping[str, Types]) -> Iterator[Rows | str]:
    """The tables of a section, and in words what of it cannot be used; raises Refused where nothing more can be."""
    size = int.from_bytes(content[:4], "little")
    try:
        directory = orjson.loads(content[4 : 4 + size])
    except orjson.JSONDecodeError as error:
        raise Refused(f"the directory of its columns is no JSON: {error}") from error
    if not isinstance(directory, list):
        raise Refused("the directory of its columns is no list")
    place = 4 + size
    for entry in directory:
        stated = entry if isinstance(entry, dict) else {}
        table, count, listed = str(stated.get("table"))[:60], stated.get("rows"), stated.get("columns")
        if not isinstance(count, int) or not 0 <= count <= len(content) // ROW_BYTES or not isinstance(listed, list):
            raise Refused(f"{table!a}: {str(count)[:20]} rows, which is none or more than its bytes can hold")
        columns: dict[str, Packed] = {}
        for column in listed:
            own = column if isinstance(column, dict) else {}
            values, nulls, place = _arrays(content, place, own, count)
            name = str(own.get("name"))[:60]
            kind = types.get(table, {}).get(name)
            if kind is not None and count:
                columns[name] = _column(own, values, nulls, kind, count)
            elif table in types:
                yield f"{table}: a column {name!a} is not known"
        if table not in types:
            yield f"rows for a table that a summary does not have: {table!a}"
        elif columns:
            yield Rows(table, count, columns)


def _arrays(content: bytes, place: int, own: Mapping[str, Any], count: int) -> tuple[Array, Array | None, int]:
    """The stored numbers of a column, which of them are null, and where the next column begins."""
    kind = own.get("type")
    if kind not in NARROW:
        raise Refused(f"a column of the type {str(kind)[:20]!a}")
    stored = 1 if own.get("one") is True else count
    end = place + stored * np.dtype(kind).itemsize
    last = end + (stored + 7) // 8 if own.get("nulls") is True else end
    if last > len(content):
        raise Refused(f"its columns end at byte {len(content)} of {last}")
    values = np.frombuffer(content, f"<{kind}", stored, place).astype(np.int64)
    if last == end:
        return values, None, last
    bits = np.unpackbits(np.frombuffer(content, np.uint8, last - end, end), count=stored, bitorder="little")
    return values, bits.astype(np.bool_), last


def _column(own: Mapping[str, Any], values: Array, nulls: Array | None, kind: str, count: int) -> Packed:
    if is_coded(kind):
        words = _words(own.get("words"), kind)
        null = len(words) - 1
        codes = values if _are_within(values, null) else _within(values, null)
        codes = codes if nulls is None else np.where(nulls, null, codes)
        return Packed(count, codes.astype(np.int32), None, words)
    if kind == "BOOLEAN":
        return Packed(count, values != 0, nulls)
    base = own.get("base", 0)
    if not isinstance(base, int) or abs(base) >= 1 << 63:
        raise Refused("the base of a column is no number of 64 bits")
    return Packed(count, values + np.int64(base) if base else values, nulls)


def _are_within(codes: Array, null: int) -> bool:
    if len(codes) == 1:  # most columns hold one value: a comparison of numpy takes ten times as long
        return 0 <= int(codes[0]) < null
    return len(codes) > 0 and bool(codes.min() >= 0 and codes.max() < null)


def _within(codes: Array, null: int) -> Array:
    return np.where((codes >= 0) & (codes < null), codes, null)


def _words(listed: Any, kind: str) -> tuple[str | None, ...]:
    """The words of a column, the last one for null."""
    if not isinstance(listed, list) or len(listed) > _MOST_WORDS:
        raise Refused("a column of texts without a list of them")
    if kind.endswith("[]"):
        return (*(None if word is None else str(_expanded(word)) for word in listed), None)
    if {*map(type, listed)} <= {str} and all(map(str.isascii, listed)) and max(map(len, listed), default=0) <= _MOST_TEXT:
        return (*listed, None)
    return (*[_word_of(word) for word in listed], None)


def _word_of(word: Any) -> str | None:
    if type(word) is not str or len(word) > _MOST_TEXT:
        return None
    return word if word.isascii() else encodable(word)


def _expanded(runs: Any) -> list[int]:
    found: list[int] = []
    for run in runs if isinstance(runs, list) else ():
        is_run = isinstance(run, list) and len(run) == 3 and all(isinstance(number, int) for number in run)
        if not is_run or not 0 < run[1] <= MOST_MEMBERS - len(found) or max(map(abs, run)) >= 1 << 31:
            raise Refused("a list of numbers that is none, or too long")
        found += range(run[0], run[0] + run[1] * run[2], run[2]) if run[2] else [run[0]] * run[1]
    return found
