"""Shim logs as small files: the entries that are in use, under another host name; and a bundle of them.

The writer's smallest log has a megabyte, nearly all of it zero. What is left out here another writer might not have made.
"""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from forensics.bundle.layout import member_order
from forensics.ingest.shim_log import layout

_USED = {layout.COMMS: "generation", layout.PROXY_OPS: "generation", layout.QUEUE_PAIRS: "generation"}
_TYPES = {layout.COMMS: layout.COMM, layout.PROXY_OPS: layout.PROXY_OP, layout.QUEUE_PAIRS: layout.QUEUE_PAIR}
_CLOCKS = 8
BOOT = "5f2b6a0e-0000-4000-8000-000000000000"


def trimmed(content: bytes, host: str) -> bytes:
    """The log with the entries in use, rings of the least size that holds their records, and facts of the machine replaced."""
    head = np.frombuffer(content[: layout.HEAD_BYTES], layout.HEAD).copy()
    sections = {int(s["kind"]): s.copy() for s in head["sections"][0][: int(head["section_count"][0])]}
    rings, records = _rings(content, sections)
    bodies = {kind: _used(content, section) for kind, section in sections.items()}
    bodies |= {layout.RINGS: rings, layout.RECORDS: records}
    pairs = len(bodies[layout.QUEUE_PAIRS]) // layout.QUEUE_PAIR.itemsize
    each = int(head["epoch_bins"][0]) * layout.EPOCH_BIN.itemsize
    bodies[layout.EPOCHS] = bodies[layout.EPOCHS][: pairs * each]
    offset = 2 * layout.HEAD_BYTES
    parts = []
    for section in head["sections"][0][: int(head["section_count"][0])]:
        body = bodies[int(section["kind"])]
        section["offset"], section["count"] = offset, len(body) // int(section["entry_bytes"])
        parts.append(body.ljust(-(-len(body) // 64) * 64, b"\0"))
        offset += len(parts[-1])
    head["file_bytes"] = offset
    facts = {"host": host, "boot_id": BOOT, "executable": "/srv/job/trainer", "build": "", "job": "job"}
    for name, value in facts.items():
        head[name] = value.encode()
    head["checksum"] = 0
    head["checksum"] = zlib.crc32(head.tobytes())
    return b"".join([head.tobytes(), content[layout.HEAD_BYTES : 2 * layout.HEAD_BYTES], *parts])


def _used(content: bytes, section: Any) -> bytes:
    kind, size, begin, count = (int(section[name]) for name in ("kind", "entry_bytes", "offset", "count"))
    if kind in _USED:
        table = np.frombuffer(content, _TYPES[kind], count, begin)
        used = np.flatnonzero(table[_USED[kind]])
        count = int(used[-1]) + 1 if len(used) else 1
    elif kind == layout.CLOCKS:
        count = min(count, _CLOCKS)
    return content[begin : begin + count * size]


def _rings(content: bytes, sections: Mapping[int, Any]) -> tuple[bytes, bytes]:
    """Rings that were used and have not wrapped, each with the least power of two of records."""
    directory, records = sections[layout.RINGS], sections[layout.RECORDS]
    rings = np.frombuffer(content, layout.RING, int(directory["count"]), int(directory["offset"]))
    rings = rings[rings["thread"] > 0].copy()
    kept, first = [], 0
    for ring in rings:
        least = 1 << max(3, (int(ring["head"]) - 1).bit_length())
        size = min(least, int(ring["records"]))
        begin = int(records["offset"]) + int(ring["first"]) * 64
        kept.append(content[begin : begin + size * 64])
        ring["first"], ring["records"] = first, size
        first += size
    return rings.tobytes(), b"".join(kept)


def last_sign(content: bytes) -> int:
    """CLOCK_REALTIME of the last heartbeat of a log."""
    live = np.frombuffer(content[layout.HEAD_BYTES : 2 * layout.HEAD_BYTES], layout.LIVE)[0]
    return int(live["last_clock"]["realtime_ns"])


def host_of(rank: int) -> str:
    """One host for each rank, as in the test bed."""
    return f"gpu-{rank:03d}"


def bundle(logs: Mapping[int, bytes]) -> bytes:
    """A tar of the logs as a collector leaves them, all copied when the last of them beat."""
    copied = max(map(last_sign, logs.values()))
    members = {}
    for rank, content in logs.items():
        small, node = trimmed(content, host_of(rank)), host_of(rank)
        path = f"ranks/{rank}/shim/{node}.{rank}.{4100 + rank}.1000.frx"
        run = {"id": "shim.log", "rank": rank, "pid": None, "sample": 0, "argv": [], "begin_ns": copied, "end_ns": copied}
        run |= {"status": "ok", "reason": None, "bytes": len(small), "truncated": False, "sha256": None, "path": path}
        members[path] = small
        members[f"nodes/{node}/collectors.jsonl"] = json.dumps({**run, "captured_ns": copied}).encode() + b"\n"
    members["bundle.json"] = json.dumps(_manifest(logs, copied)).encode()
    return tar_of(members)


def _manifest(logs: Mapping[int, bytes], copied: int) -> dict[str, Any]:
    """A collection that copied the logs and did not look at the processes."""
    ranks = {rank: {"node": host_of(rank), "pid": None, "state": "unknown", "reason": None} for rank in logs}
    head: dict[str, Any] = {"schema": "forensics.bundle/1", "tool": "tests", "begin_ns": copied, "end_ns": copied}
    head |= {"interrupted": False, "job_id": None, "world_size": len(logs), "nodes": [host_of(rank) for rank in logs]}
    return {**head, "ranks": ranks, "status": {}, "node_status": {}, "warnings": []}


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """Members in bundle order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(members, key=member_order):
            member = tarfile.TarInfo(path)
            member.size = len(members[path])
            tar.addfile(member, io.BytesIO(members[path]))
    return out.getvalue()


def logs_in(folder: Path) -> dict[int, bytes]:
    """The logs of a job by rank, from the folder it wrote them to."""
    found = {}
    for path in sorted(folder.rglob("*.frx")):
        content = path.read_bytes()
        found[int(np.frombuffer(content[: layout.HEAD_BYTES], layout.HEAD)[0]["rank"])] = content
    return found
