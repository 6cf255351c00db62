"""A packet: the newest stages of all ranks as one small file in the recorder's own format, gzip compressed."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import Any

from duckdb import DuckDBPyConnection

from forensics.recorder import layout

_STEPS = """
SELECT t.rank, t.step, t.begin_ns, t.wall_ns, coalesce(t.accumulation, 1), s.host, t.source_id,
    (SELECT min(group_role) FROM stage_spans p WHERE p.source_id = t.source_id AND p.rank = t.rank)
FROM steps t JOIN sources s USING (source_id) WHERE t.rank IS NOT NULL AND t.begin_ns IS NOT NULL AND t.wall_ns >= 0
QUALIFY row_number() OVER (PARTITION BY t.rank, t.source_id ORDER BY t.step DESC) <= ? ORDER BY t.rank, t.source_id, t.step
"""
_SPANS = """
SELECT p.source_id, p.rank, p.step, coalesce(p.substage, p.stage), coalesce(p.side_channel, false), coalesce(p.substep, 0),
    p.begin_ns, p.duration_ns, p.device_ns, p.device_ready
FROM stage_spans p WHERE p.begin_ns IS NOT NULL AND p.duration_ns >= 0
ORDER BY p.source_id, p.rank, p.step, p.order_index, p.begin_ns, p.substage
"""
_WORLD = "SELECT max(try_cast(value AS INTEGER)) FROM job_config WHERE key = 'world_size'"

_Step = tuple[Any, ...]


def write_packet(connection: DuckDBPyConnection, newest: int) -> bytes:
    """The stages of the `newest` steps of every rank; read back like the files of the recorder."""
    spans: dict[tuple[int, int, int], list[_Step]] = defaultdict(list)
    for row in connection.execute(_SPANS).fetchall():
        spans[row[:3]].append(row[3:])
    steps: dict[tuple[int, int], list[_Step]] = defaultdict(list)
    for row in connection.execute(_STEPS, [newest]).fetchall():
        steps[row[0], row[6]].append(row)
    ((world,),) = connection.execute(_WORLD).fetchall()
    sections = [_section(rows, spans, int(world or -1)) for rows in steps.values()]
    return gzip.compress(b"".join(sections), 9, mtime=0)


def _section(rows: list[_Step], spans: dict[tuple[int, int, int], list[_Step]], world: int) -> bytes:
    rank, source, host, role = rows[0][0], rows[0][6], rows[0][5], rows[0][7]
    own = [spans.get((source, rank, row[1]), []) for row in rows]
    names = {key: number for number, key in enumerate(dict.fromkeys((span[0], span[1]) for each in own for span in each))}
    names = dict(list(names.items())[: layout.NAMES])
    most = max((len(each) for each in own), default=0) or 1
    texts = json.dumps({name: value for name, value in (("host", host), ("role", role)) if value}).encode()[: layout.TEXT_BYTES]
    header = layout.HEADER.pack(
        *(layout.MAGIC, layout.VERSION, 0, layout.NAMES_OFFSET, layout.SLOTS_OFFSET, layout.slot_bytes(most), len(rows)),
        *(rank, world, -1, 0, len(texts), 0, 0, len(rows), 0, 0, 0, 0, len(names)),
    )
    block = header.ljust(layout.HEADER_BYTES, b"\0") + texts
    table = b"".join(_name(name, side) for name, side in names)
    head = (block.ljust(layout.NAMES_OFFSET, b"\0") + table).ljust(layout.SLOTS_OFFSET, b"\0")
    slots = [_slot(serial, row, each, names, most) for serial, (row, each) in enumerate(zip(rows, own, strict=True), 1)]
    return head + b"".join(slots)


def _name(name: str, side: bool) -> bytes:
    text = name.encode(errors="replace")[:60].decode(errors="ignore").encode()
    return layout.NAME.pack(layout.SIDE_CHANNEL if side else 0, len(text), text)


def _slot(serial: int, row: _Step, spans: list[_Step], names: dict[tuple[str, bool], int], most: int) -> bytes:
    _, step, begin, wall, accumulation = row[:5]
    kept = [span for span in spans if (span[0], span[1]) in names]
    parts = [layout.STEP.pack(serial, step, begin, wall, -1, len(kept), 0, accumulation)]
    for name, side, substep, start, duration, device, ready in kept:
        flags = 0 if ready is None else layout.SPAN_DEVICE_ASKED | (layout.SPAN_DEVICE_READY if ready else 0)
        parts.append(
            layout.SPAN.pack(names[name, side], substep, flags, start - begin, duration, -1 if device is None else device)
        )
    parts.append(bytes((most - len(kept)) * layout.SPAN.size) + layout.TAIL.pack(serial))
    return b"".join(parts)
