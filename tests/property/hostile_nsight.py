"""Exports of 1 MB made to take a reader's time or memory: many rows, and pages that many places point to."""

from __future__ import annotations

import itertools
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.property.hostile import SIZE

File = tuple[str, str, str, bytes]


def exports(size: int = SIZE) -> Iterator[File]:
    ranges = "CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid)"
    row = "INSERT INTO NVTX_EVENTS SELECT {} FROM n"
    count = size // 40
    yield (
        "nsight: steps",
        "nsight",
        "a.sqlite",
        database(count, ranges, row.format("i*9, i*9+5, 59, 'ProfilerStep#' || (i % 10), NULL, 16777216+i%3")),
    )
    yield "nsight: processes", "nsight", "a.sqlite", database(count, ranges, row.format("i, i+1, 59, 'forward', 0, i << 24"))
    yield "nsight: open ranges", "nsight", "a.sqlite", database(count, ranges, row.format("i, NULL, 59, 'forward', 0, 1 << 24"))
    yield (
        "nsight: small rows",
        "nsight",
        "a.sqlite",
        database(size // 14, ranges, row.format("NULL, NULL, 59, NULL, NULL, NULL")),
    )
    kernels = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName, correlationId, globalPid, deviceId, streamId)"
    yield (
        "nsight: kernels",
        "nsight",
        "a.sqlite",
        database(count, kernels, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT i, i+5, 1, i, 1<<24, 0, 7 FROM n"),
    )
    tables = [f"CREATE TABLE t{number} (a)" for number in range(size // 5000)]
    yield "nsight: tables", "nsight", "a.sqlite", database(1, ranges, *tables, page=512)
    words = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)"
    yield (
        "nsight: texts",
        "nsight",
        "a.sqlite",
        database(size // 12, ranges, words, "INSERT INTO StringIds SELECT i, 'a' || i FROM n"),
    )
    yield "nsight: rows of rows", "nsight", "a.sqlite", shared_pages(ranges, row)
    yield "nsight: one text of many rows", "nsight", "a.sqlite", shared_text(size)


def database(count: int, *statements: str, page: int = 4096) -> bytes:
    """A database after some statements, of which those that insert take numbers from `n`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        with sqlite3.connect(path) as made:
            made.execute(f"PRAGMA page_size = {page}")
            for statement in statements:
                numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
                made.execute((numbers if statement.startswith("INSERT") else "") + statement)
        made.close()
        return path.read_bytes()


def shared_pages(ranges: str, row: str) -> bytes:
    """Inner pages of a table whose children are all the same page, level over level."""
    raw = bytearray(database(33_000, ranges, row.format("i, i+1, 59, 'forward', 0, 1 << 24")))
    root = 2
    inner = [at for at in range(1, len(raw) // 4096) if raw[at * 4096] == 5]
    leaf = next(at for at in range(1, len(raw) // 4096) if raw[at * 4096] == 13)
    chain = [root - 1, *[at for at in range(1, len(raw) // 4096) if at not in (root - 1, leaf)][:4], leaf]
    assert inner
    for page, child in itertools.pairwise(chain):
        place, cells = page * 4096, 400
        head = struct.pack(">BHHHBI", 5, 0, cells, 4096 - 5 * cells, 0, child + 1)
        pointers = b"".join(struct.pack(">H", 4096 - 5 * (number + 1)) for number in range(cells))
        body = b"".join(struct.pack(">IB", child + 1, 1) for _ in range(cells))
        raw[place : place + 4096] = (head + pointers).ljust(4096 - 5 * cells, b"\0") + body
    return bytes(raw)


def shared_text(size: int) -> bytes:
    """Rows whose long text lies on the same pages."""
    words = "CREATE TABLE StringIds (id, value TEXT)"
    texts = "INSERT INTO StringIds SELECT i, zeroblob(12000) FROM n"
    raw = bytearray(database(size // 12_500, "CREATE TABLE NVTX_EVENTS (start)", words, texts))
    leaves = [at for at in range(1, len(raw) // 4096) if raw[at * 4096] == 13 and raw[at * 4096 + 4] > 0]
    for at in leaves:
        place = at * 4096
        (first,) = struct.unpack_from(">H", raw, place + 8)
        cells = (first - 8) // 2
        raw[place + 3 : place + 5] = struct.pack(">H", cells)
        raw[place + 8 : place + 8 + 2 * cells] = struct.pack(">H", first) * cells
    return bytes(raw)
