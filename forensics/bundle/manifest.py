"""What the bundle says of its own members: collectors.jsonl, bundle.json and SHA256SUMS."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from forensics.bundle import limits
from forensics.bundle.layout import BUNDLE, CHECKSUMS
from forensics.bundle.members import Member
from forensics.bundle.streams import chunks, content_opener

COPYING_COLLECTORS = frozenset({"fr.files", "log.files"})
"""Collectors that copy files written before: when they ran says nothing of the time their content is from."""

_CHECKSUM = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
_RUNS_FILE = re.compile(r"nodes/([^/]+)/collectors\.jsonl(?:\.gz|\.zst)?")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a collector that wrote a member: its node, and what the line in collectors.jsonl says of its origin."""

    node: str | None = None
    collector: str | None = None
    rank: int | None = None
    pid: int | None = None
    sample: int | None = None
    begin_ns: int | None = None
    captured_ns: int | None = None

    @property
    def content_ns(self) -> int | None:
        """When the content is from: stated, or when the collector ran unless it only copies what was written before."""
        if self.captured_ns is not None or self.collector in COPYING_COLLECTORS:
            return self.captured_ns
        return self.begin_ns


@dataclass(frozen=True, slots=True)
class Manifest:
    """Of one bundle root: runs by member path, the node of each rank, and the digests it states."""

    runs: Mapping[str, Run] = field(default_factory=dict)
    nodes: Mapping[int, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)


def read_manifest(members: Mapping[str, Member]) -> Manifest:
    """The manifest of a bundle whose members are given by their path below its root; unreadable parts are left out.

    Nothing is reported here: the ingesters of these files say what is wrong with them.
    """
    runs: dict[str, Run] = {}
    nodes: dict[int, str] = {}
    for path in sorted(members):
        if match := _RUNS_FILE.fullmatch(path):
            runs.update(_runs(member_content(members[path]), match[1]))
    if BUNDLE in members:
        nodes.update(_nodes(member_content(members[BUNDLE])))
    for run in runs.values():
        if run.rank is not None and run.node is not None:
            nodes.setdefault(run.rank, run.node)
    digests = _digests(member_content(members[CHECKSUMS])) if CHECKSUMS in members else {}
    return Manifest(runs, nodes, digests)


def member_content(member: Member) -> bytes:
    """The decompressed content as far as it can be had, of what describes a bundle: little more than `MAX_MANIFEST_BYTES`."""
    opener: Callable[[], Any] = content_opener(member.open_raw, member.stored_bytes)
    content = bytearray()
    try:
        with opener() as stream:
            for chunk in chunks(stream):
                content += chunk
                if len(content) > limits.MAX_MANIFEST_BYTES:
                    break
    except OSError:
        return bytes(content)
    return bytes(content)


def _runs(content: bytes, node: str) -> Iterator[tuple[str, Run]]:
    for line in content.splitlines():
        row = _object(line)
        path = row.get("path")
        if isinstance(path, str):
            integers = {key: _integer(row.get(key)) for key in ("rank", "pid", "sample", "begin_ns", "captured_ns")}
            name = row.get("id")
            yield path, Run(node, name if isinstance(name, str) else None, **integers)


def _nodes(content: bytes) -> Iterator[tuple[int, str]]:
    ranks = _object(content).get("ranks")
    for rank, facts in ranks.items() if isinstance(ranks, dict) else ():
        node = facts.get("node") if isinstance(facts, dict) else None
        if isinstance(node, str) and rank.isdecimal() and len(rank) <= 7:
            yield int(rank), node


def _digests(content: bytes) -> dict[str, str]:
    lines = content.decode("utf-8", "replace").splitlines()
    matches = (_CHECKSUM.fullmatch(line.rstrip("\r")) for line in lines)
    return {match[2].removeprefix("./"): match[1].lower() for match in matches if match}


def parsed(text: bytes) -> Any:
    """The value of a JSON document; None where it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _object(text: bytes) -> dict[str, Any]:
    value = parsed(text)
    return value if isinstance(value, dict) else {}


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None
