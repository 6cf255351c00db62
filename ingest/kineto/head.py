"""What a Kineto trace says of itself in its head and tail: rank, world, base of its times."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import orjson

from forensics.ingest._shared.values import integer, objects, rank_number, text

_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})')
_HOST = re.compile(rb'"host_name"\s*:\s*"([^"\\]{1,255})"')
_INFO = re.compile(rb'"distributedInfo"\s*:\s*(?=\{)')
_LONGEST_INFO = 1 << 20
_LATEST_NS = 4 * 10**18


@dataclass(frozen=True, slots=True)
class TraceHead:
    """Facts of the whole file; `groups` are process groups as (name, description, members)."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    base_ns: int = 0
    groups: tuple[tuple[str, str, tuple[int, ...]], ...] = ()


def trace_head(head: bytes, tail: bytes) -> TraceHead:
    """Read head, then tail: on-demand traces write the distributed part at their end."""
    base = _BASE.search(head) or _BASE.search(tail)
    host = _HOST.search(head) or _HOST.search(tail)
    info = _object(head) or _object(tail) or {}
    groups = [_group(group) for group in objects(info.get("pg_config"))]
    return TraceHead(
        rank=rank_number(info.get("rank")),
        world_size=integer(info.get("world_size")),
        backend=text(info.get("backend")),
        host=host[1].decode("utf-8", "replace") if host else None,
        base_ns=int(base[1]) if base and int(base[1]) < _LATEST_NS else 0,
        groups=tuple(group for group in groups if group),
    )


def _object(content: bytes) -> dict[str, Any] | None:
    """The object after the key."""
    found = _INFO.search(content)
    if not found:
        return None
    text = content[found.end() : found.end() + _LONGEST_INFO].decode("utf-8", "replace")
    try:
        value: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None
    return value


def _group(group: dict[str, Any]) -> tuple[str, str, tuple[int, ...]] | None:
    """A process group; members are a list, or its text in traces made on demand."""
    name, ranks = text(group.get("pg_name")), group.get("ranks")
    if isinstance(ranks, str):
        try:
            ranks = orjson.loads(ranks)
        except orjson.JSONDecodeError:
            ranks = None
    members = [rank_number(rank) for rank in ranks] if isinstance(ranks, list) else []
    known = tuple(rank for rank in members if rank is not None)
    return (name, text(group.get("pg_desc")) or "", known) if name is not None else None
