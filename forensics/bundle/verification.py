"""Whether a bundle is what was collected: checksums, the form of its manifest, and whether all that it names is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from forensics.bundle import limits
from forensics.bundle.artefact import Artefact
from forensics.bundle.layout import BUNDLE, CHECKSUMS, HOST_BUNDLE, SCHEMA, Status, rank_path
from forensics.bundle.manifest import parsed
from forensics.bundle.reader import Bundle

_PARTS = ("nodes/", "ranks/", "job/")
_SINGLE = frozenset({BUNDLE, CHECKSUMS, "redactions.json"})
_KEYS: Mapping[str, type | tuple[type, ...]] = {
    "begin_ns": int,
    "end_ns": int,
    "nodes": list,
    "ranks": dict,
    "status": dict,
    "interrupted": bool,
}
_STATUSES = frozenset(Status)


class Weight(StrEnum):
    """How much a finding weighs: an `error` is damage, a `gap` is something the collection says it could not take."""

    ERROR = "error"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be; `path` is the member, None for the bundle as a whole."""

    weight: Weight
    path: str | None
    message: str


def verify(bundle: Bundle) -> list[Finding]:
    """All findings, errors first, by path; empty for a bundle that is whole and lacks nothing."""
    found = [Finding(Weight.ERROR, warning.path, warning.message) for warning in bundle.warnings]
    members = {artefact.path: artefact for artefact in bundle.artefacts}
    if BUNDLE not in members:
        found.append(Finding(Weight.ERROR, None, f"no {BUNDLE}: these are loose files, which nothing describes"))
    else:
        found += _manifest(members)
        found += _checksums(members)
        found += _runs(members)
        found += _strays(members)
    return sorted(set(found), key=lambda one: (one.weight.value, one.path or "", one.message))


def _manifest(members: Mapping[str, Artefact]) -> Iterator[Finding]:
    """The form of bundle.json, and identities of the nodes and ranks that it names."""
    document = _json(members[BUNDLE])
    if not isinstance(document, dict):
        yield Finding(Weight.ERROR, BUNDLE, "not a JSON object")
        return
    if document.get("schema") != SCHEMA:
        yield Finding(Weight.ERROR, BUNDLE, f"schema {document.get('schema')!r} is not {SCHEMA}")
    for key, kind in _KEYS.items():
        if not isinstance(document.get(key), kind):
            yield Finding(Weight.ERROR, BUNDLE, f"{key} is missing or of another type")
    if document.get("interrupted") is True:
        yield Finding(Weight.GAP, BUNDLE, "the collection was interrupted")
    yield from _ranks(document, members)
    nodes = document.get("nodes")
    for node in nodes if isinstance(nodes, list) else ():
        if not _answered(document.get("node_status"), node):
            continue
        for name in ("node.json", "collectors.jsonl"):
            if not any(f"nodes/{node}/{name}{suffix}" in members for suffix in ("", ".gz", ".zst")):
                yield Finding(Weight.ERROR, f"nodes/{node}/{name}", "not there, and the manifest names this node")


def _answered(statuses: Any, node: Any) -> bool:
    """Whether the bundle of a host came; one that did not is a gap of its own."""
    row = statuses.get(node) if isinstance(statuses, dict) else None
    return not isinstance(row, dict) or row.get(HOST_BUNDLE, Status.OK) == Status.OK


def _ranks(document: Mapping[str, Any], members: Mapping[str, Artefact]) -> Iterator[Finding]:
    ranks, world = document.get("ranks"), document.get("world_size")
    if not isinstance(ranks, dict):
        return
    for rank, facts in ranks.items():
        state = facts.get("state") if isinstance(facts, dict) else None
        if state == "unknown":
            continue
        if rank.isdecimal() and rank_path(int(rank), "rank.json") not in members:
            yield Finding(Weight.ERROR, rank_path(int(rank), "rank.json"), "not there, and the manifest names this rank")
        if state != "alive":
            yield Finding(Weight.GAP, BUNDLE, f"rank {rank} is {state}")
    if isinstance(world, int) and world > 0:
        seen = sum(1 for facts in ranks.values() if isinstance(facts, dict) and facts.get("state") != "unknown")
        if seen < world:
            yield Finding(Weight.GAP, BUNDLE, f"{seen} of {world} ranks are in this bundle")


def _checksums(members: Mapping[str, Artefact]) -> Iterator[Finding]:
    """Members without a checksum; those that differ from theirs are warnings of the reader."""
    if CHECKSUMS not in members:
        yield Finding(Weight.ERROR, CHECKSUMS, "not there: changed members cannot be detected")
        return
    lines = _content(members[CHECKSUMS]).decode("utf-8", "replace").splitlines()
    listed = {line[66:].removeprefix("./") for line in lines if len(line) > 66}
    for path in {path for path, one in members.items() if one.shard is None and one.summary is None} - listed - {CHECKSUMS}:
        yield Finding(Weight.ERROR, path, f"not in {CHECKSUMS}: it was added later")


def _runs(members: Mapping[str, Artefact]) -> Iterator[Finding]:
    """Runs of collectors: their form, what they wrote, and what they say they could not take."""
    for path, artefact in members.items():
        if path.rpartition("/")[2].partition(".")[0] != "collectors" or not path.startswith("nodes/"):
            continue
        for number, line in enumerate(_content(artefact).splitlines(), 1):
            row = parsed(line)
            if not isinstance(row, dict) or not isinstance(row.get("id"), str) or row.get("status") not in _STATUSES:
                yield Finding(Weight.ERROR, path, f"line {number} is no run of a collector")
            else:
                yield from _run(path, row, members)


def _run(path: str, row: Mapping[str, Any], members: Mapping[str, Artefact]) -> Iterator[Finding]:
    written, digest = row.get("path"), row.get("sha256")
    if isinstance(written, str):
        if written not in members:
            yield Finding(Weight.ERROR, written, f"{path} says it was written, and it is not there")
        elif digest is not None and members[written].sha256 not in (None, digest):
            yield Finding(Weight.ERROR, written, f"not the content that {path} says was written")
    if row["status"] not in (Status.OK, Status.NOT_CONFIGURED, Status.NOT_FOUND):
        whose = f"rank {row['rank']}" if row.get("rank") is not None else "host"
        yield Finding(Weight.GAP, written if isinstance(written, str) else path, f"{row['id']} of {whose}: {row['status']}")


def _strays(members: Mapping[str, Artefact]) -> Iterator[Finding]:
    for path in members:
        if not path.startswith(_PARTS) and path not in _SINGLE:
            yield Finding(Weight.ERROR, path, "no place of the layout has this name")


def _content(artefact: Artefact) -> bytes:
    """The content as far as it can be had, at most what a manifest may have."""
    try:
        with artefact.open() as stream:
            return stream.read(limits.MAX_MANIFEST_BYTES)
    except OSError:
        return b""


def _json(artefact: Artefact) -> Any:
    return parsed(_content(artefact))
